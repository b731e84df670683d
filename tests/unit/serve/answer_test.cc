// One choice from token ids to text, reasoning, tool calls and scores.
#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/serve/answer.h"

namespace {

class Answer : public testing::Test {
  protected:
    void SetUp() override
    {
        weir_error error = {};
        ASSERT_EQ(
            WEIR_OK, weir_tokenizer_open_json(
                         &tokenizer_, "tests/golden/text/tok/qwen35.tokenizer.json", &error
                     )
        ) << error.text;
        answer_.tokenizer = tokenizer_;
        answer_.stop.list = &stop_;
        answer_.logprobs.width = 2;
    }
    void TearDown() override
    {
        weir_answer_free(&answer_);
        json_decref(tools_);
        weir_tokenizer_close(tokenizer_);
    }

    std::vector<int32_t> encode(const std::string &text, bool special = true) const
    {
        weir_ids ids = {};
        weir_encode_options options = {};
        weir_error error = {};
        options.parse_special = special;
        EXPECT_EQ(
            WEIR_OK,
            weir_tokenizer_encode(tokenizer_, &ids, text.data(), text.size(), &options, &error)
        );
        const std::vector<int32_t> result(ids.data, ids.data + ids.count);
        weir_ids_free(&ids);
        return result;
    }

    bool push(int32_t token)
    {
        const weir_logprob top[2] = { { token, -0.5f }, { 0, -1.5f } };
        weir_event event = {};
        bool go_on = false;
        event.type = WEIR_EVENT_TOKEN;
        event.token = token;
        event.logprob = { token, -0.5f };
        event.top = top;
        event.n_top = 2;
        EXPECT_EQ(WEIR_OK, weir_answer_token(&answer_, &event, &go_on));
        return go_on;
    }

    void push_all(const std::string &text)
    {
        for (const int32_t id : encode(text))
            if (!push(id)) break;
    }

    std::string content() const
    {
        return std::string(
            answer_.content.data != nullptr ? answer_.content.data : "", answer_.content.size
        );
    }
    std::string reasoning() const
    {
        return std::string(
            answer_.reasoning.data != nullptr ? answer_.reasoning.data : "", answer_.reasoning.size
        );
    }

    /* Calls are of Hermes' form. */
    void open_parser(weir_reasoning_state state, bool one_call = false)
    {
        weir_chat_parser_options options = {};
        options.format = weir_chat_format_find("hermes");
        options.tools = tools_ = json_array();
        options.one_call = one_call;
        options.start.state = state;
        ASSERT_EQ(WEIR_OK, weir_chat_parser_open(&answer_.parser, &options));
    }
    std::vector<weir_tool_call> calls() const
    {
        size_t n;
        const weir_tool_call *const list = weir_answer_calls(&answer_, &n);
        return std::vector<weir_tool_call>(list, list + n);
    }

    weir_tokenizer *tokenizer_ = nullptr;
    json_t *tools_ = nullptr;
    weir_stop_list stop_ = {};
    weir_answer answer_ = {};
};

TEST_F(Answer, CharactersAreNeverCut)
{
    const std::string text =
        "caf\xc3\xa9 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb \xe4\xbd\xa0";
    for (const int32_t id : encode(text)) {
        push(id);
        json_t *const valid =
            json_stringn(answer_.content.data, answer_.content.size); /* refuses ill-formed UTF-8 */
        EXPECT_NE(nullptr, valid);
        json_decref(valid);
    }
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_LENGTH));
    EXPECT_EQ(text, content());
    EXPECT_STREQ("length", weir_answer_reason(&answer_));
}

TEST_F(Answer, BytesThatCanNeverBeACharacterComeOutAtTheEnd)
{
    const std::vector<int32_t> ids = encode("\xf0\x9f\x91\xa9");
    ASSERT_GT(ids.size(), 1u) << "the test needs a character of several tokens";
    push(ids[0]);
    EXPECT_EQ("", content());
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_LENGTH));
    EXPECT_EQ("\xef\xbf\xbd", content());
}

TEST_F(Answer, StopStringAcrossTokens)
{
    char stop[] = "two thr";
    stop_.text[0] = stop;
    stop_.length[0] = 7;
    stop_.count = 1;
    push_all("one two three four");
    EXPECT_TRUE(answer_.stop.matched);
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    EXPECT_EQ("one ", content());
    EXPECT_STREQ("stop", weir_answer_reason(&answer_));
}

TEST_F(Answer, ControlTokensHaveNoText)
{
    push_all("a<|im_end|>b");
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    EXPECT_EQ("ab", content());
    EXPECT_EQ(3, answer_.n_tokens);
}

TEST_F(Answer, ReasoningAndToolCalls)
{
    open_parser(WEIR_THINK_INSIDE);
    push_all("hm\n</think>\n\nWait. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
             "1}}\n</tool_call>");
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    EXPECT_EQ("hm", reasoning());
    EXPECT_EQ("Wait.", content());
    ASSERT_EQ(1u, calls().size());
    EXPECT_STREQ("f", calls()[0].name);
    EXPECT_STREQ("{\"a\": 1}", calls()[0].arguments);
    EXPECT_STREQ("tool_calls", weir_answer_reason(&answer_));
    EXPECT_GT(answer_.n_reasoning_tokens, 0);
    EXPECT_LT(answer_.n_reasoning_tokens, answer_.n_tokens);
}

TEST_F(Answer, ControlTokensOfTheMarkupAreText)
{
    /* Qwen's vocabulary has the tags of Hermes as ordinary tokens: the format's tag is another. */
    weir_chat_format format = *weir_chat_format_find("hermes");
    format.opener[0].text = "<|im_start|>";
    weir_chat_parser_options options = {};
    options.format = &format;
    options.tools = tools_ = json_array();
    options.start.state = WEIR_THINK_CONTENT;
    ASSERT_EQ(WEIR_OK, weir_chat_parser_open(&answer_.parser, &options));
    push_all("a<|im_end|><|im_start|>{\"name\": \"f\"}</tool_call><|im_start|>");
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    EXPECT_EQ(1u, calls().size());
    EXPECT_EQ("a<|im_start|>", content());
}

TEST_F(Answer, OneCallEndsTheChoice)
{
    const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    open_parser(WEIR_THINK_CONTENT, true);
    answer_.one_call = true;
    push_all("text " + call + call);
    EXPECT_EQ(1u, calls().size()) << "no token was taken after its end";
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    EXPECT_STREQ("tool_calls", weir_answer_reason(&answer_));
}

TEST_F(Answer, ScoresOfChat)
{
    answer_.want_logprobs = true;
    const std::string text = "x\xf0\x9f\x91\xa9";
    push_all(text);
    weir_buffer out = {};
    weir_json_out json = {};
    json.buffer = &out;
    weir_logprob_list_write_chat(&json, &answer_.logprobs, 0, tokenizer_);
    ASSERT_EQ(WEIR_OK, json.status);
    json_t *const list = json_loads(out.data, 0, nullptr);
    weir_buffer_free(&out);
    ASSERT_EQ(static_cast<size_t>(answer_.n_tokens), json_array_size(list));
    std::string bytes;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const token = json_array_get(list, i), *const raw =
                                                                 json_object_get(token, "bytes");
        EXPECT_DOUBLE_EQ(-0.5, json_number_value(json_object_get(token, "logprob")));
        EXPECT_EQ(2u, json_array_size(json_object_get(token, "top_logprobs")));
        for (size_t k = 0; k < json_array_size(raw); k++)
            bytes += static_cast<char>(json_integer_value(json_array_get(raw, k)));
    }
    EXPECT_EQ(text, bytes);
    json_decref(list);
}

TEST_F(Answer, ScoresOfCompletions)
{
    answer_.want_logprobs = true;
    weir_logprob_list prompt = {};
    const std::vector<int32_t> ids = encode("\xe4\xbd\xa0 a");
    prompt.width = 2;
    ASSERT_EQ(WEIR_OK, weir_logprob_list_add(&prompt, ids[0], NAN, nullptr, 0, 0));
    push_all("b\xc3\xa9 c");
    weir_buffer out = {};
    weir_json_out json = {};
    json.buffer = &out;
    weir_logprob_list_write_completion(&json, &prompt, &answer_.logprobs, 0, tokenizer_);
    ASSERT_EQ(WEIR_OK, json.status);
    json_t *const object = json_loads(out.data, 0, nullptr);
    weir_buffer_free(&out);
    const size_t n = 1 + static_cast<size_t>(answer_.n_tokens);
    for (const char *key : { "tokens", "token_logprobs", "top_logprobs", "text_offset" })
        EXPECT_EQ(n, json_array_size(json_object_get(object, key))) << key;
    EXPECT_TRUE(json_is_null(json_array_get(json_object_get(object, "token_logprobs"), 0)));
    EXPECT_TRUE(json_is_null(json_array_get(json_object_get(object, "top_logprobs"), 0)));
    const json_t *const offsets = json_object_get(object, "text_offset");
    EXPECT_EQ(0, json_integer_value(json_array_get(offsets, 1)));
    EXPECT_EQ(2, json_integer_value(json_array_get(offsets, n - 1)))
        << "code points, not bytes, before \" c\"";
    json_decref(object);
    weir_logprob_list_free(&prompt);
}

/* The same order for a reader that takes all at the end. */
TEST_F(Answer, KeepsTheOrderOfItsParts)
{
    open_parser(WEIR_THINK_INSIDE);
    answer_.has_parts = true;
    push_all("Hm.</think>One.<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
             "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>Two.");
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    size_t n = 0;
    const weir_answer_part *const parts = weir_answer_parts(&answer_, &n);
    std::string order;
    for (size_t i = 0; i < n; i++) {
        const weir_answer_part &part = parts[i];
        const size_t length = part.end - part.begin;
        order += part.kind == WEIR_PART_REASONING ? "r:" + reasoning().substr(part.begin, length)
                 : part.kind == WEIR_PART_CONTENT ? "c:" + content().substr(part.begin, length)
                                                  : std::string("f:") + calls()[part.begin].name;
        order += "|";
    }
    EXPECT_EQ("r:Hm.|c:One.|f:f|f:g|c:Two.|", order);
    weir_answer_free(&answer_);
    answer_ = {};
}

/* One push ends a call that a stream may have begun, and has text behind it. */
TEST_F(Answer, TextBehindACallIsAPartBehindIt)
{
    static char text[] = "</function>\n</tool_call>Z";
    weir_chat_parser_options options = {};
    size_t n;
    stop_.text[0] = text;
    stop_.length[0] = sizeof text - 1;
    stop_.count = 1;
    options.format = weir_chat_format_find("qwen3_coder");
    options.tools = tools_ = json_array();
    options.is_sure = true;
    options.start.state = WEIR_THINK_CONTENT;
    ASSERT_EQ(WEIR_OK, weir_chat_parser_open(&answer_.parser, &options));
    answer_.has_parts = true;
    push_all("<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n"
             "</tool_call>Well.");
    ASSERT_EQ(WEIR_OK, weir_answer_finish(&answer_, WEIR_FINISH_STOP));
    const weir_answer_part *const parts = weir_answer_parts(&answer_, &n);
    ASSERT_EQ(2u, n);
    EXPECT_EQ(WEIR_PART_CALL, parts[0].kind);
    EXPECT_EQ(WEIR_PART_CONTENT, parts[1].kind);
}

} // namespace
