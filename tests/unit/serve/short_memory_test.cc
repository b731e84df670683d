// Requests and answers at every point where memory can end: each says so, and nothing stays.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/heap.h"
#include "engine/formats/json.h"
#include "engine/serve/anthropic_convert.h"
#include "engine/serve/anthropic_request.h"
#include "engine/serve/openai_request.h"
#include "engine/toolcalls/chat_parser.h"

namespace {

/* Refuses everything from the n-th charge on. */
struct Tracker {
    weir_memory_tracker tracker = { charge, refund, nullptr };
    size_t used = 0;
    int left;
    static bool charge(weir_memory_tracker *tracker, size_t bytes)
    {
        Tracker *const self = reinterpret_cast<Tracker *>(tracker);
        if (self->left-- <= 0) return false;
        self->used += bytes;
        return true;
    }
    static void refund(weir_memory_tracker *tracker, size_t bytes)
    {
        reinterpret_cast<Tracker *>(tracker)->used -= bytes;
    }
};

const char *const chat =
    R"({"messages":[{"role":"system","content":[{"type":"text","text":"a\u00e9"}]},
    {"role":"user","content":"b","name":"n"},
    {"role":"assistant","reasoning_content":"r","tool_calls":[{"id":"1","function":{"name":"f",
     "arguments":"{\"a\":[{\"\\u0062\":1.5},[],null,\"\\u0041\"],\"c\":{\"d\":[1,2,3]}}"}},
     {"function":{"name":"g","arguments":{"x":[1,[2]]}}},
     {"function":{"name":"h","arguments":"no"}}]},
    {"role":"tool","tool_call_id":"1","content":"c"}],
    "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",
     "properties":{"a":{"type":"string"}}}}}],"logit_bias":{"5":1,"6":-2},"stop":["x","y"],
    "cache_salt":"s","session":"t","kv_policy":"h2o",
    "chat_template_kwargs":{"enable_thinking":true}})";

weir_request_limits limits()
{
    weir_request_limits l = {};
    l.model_name = "m";
    l.n_vocab = 1000;
    l.n_slots = 4;
    l.window = 4096;
    l.sampling.temperature = 1;
    l.sampling.top_p = 1;
    l.sampling.repetition_penalty = 1;
    return l;
}

class ShortMemory : public testing::Test {
  protected:
    static void SetUpTestSuite() { weir_json_use_memory(); }

    /* Runs it with memory for 0, 1, 2 ... blocks until it succeeds; how often it did not. */
    template <typename Run> int sweep(Run run)
    {
        for (int n = 0; n < 5000; n++) {
            Tracker tracker;
            tracker.left = n;
            (void)weir_memory_tracker_set(&tracker.tracker);
            const weir_status status = run();
            (void)weir_memory_tracker_set(nullptr);
            EXPECT_EQ(tracker.used, 0u) << n << " blocks";
            if (status == WEIR_OK) return n;
            EXPECT_EQ(status, WEIR_ENOMEM) << n << " blocks";
            if (HasFailure()) break;
        }
        return -1;
    }
};

TEST_F(ShortMemory, OfARequest)
{
    const weir_request_limits l = limits();
    const int refused = sweep([&] {
        weir_openai_request request = {};
        weir_api_error error = {};
        const weir_status status =
            weir_openai_request_read(&request, true, chat, strlen(chat), &l, &error);
        if (status != WEIR_OK) EXPECT_EQ(error.status, 503) << error.message;
        weir_openai_request_free(&request);
        return status;
    });
    EXPECT_GT(refused, 150);
}

const char *const message =
    R"({"max_tokens":2000,"system":[{"type":"text","text":"s"},{"type":"text","text":"t"}],
    "messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"h"},{"type":"text","text":"b"},
     {"type":"tool_use","id":"i","name":"f","input":{"k":[1,2]}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"i","is_error":true,
     "content":[{"type":"text","text":"r"}]},{"type":"text","text":"go"}]},
    {"role":"system","content":"l"},{"role":"system","content":"m"}],
    "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
    "tool_choice":{"type":"auto","disable_parallel_tool_use":true},"stop_sequences":["x"],
    "thinking":{"type":"enabled","budget_tokens":1024},"output_config":{"effort":"max"},
    "context_management":{"edits":[{"type":"clear_thinking_20251015"}]}})";

TEST_F(ShortMemory, OfARequestOfAnthropicsApi)
{
    const weir_request_limits l = limits();
    const int refused = sweep([&] {
        weir_openai_request request = {};
        weir_api_error error = {};
        char warning[WEIR_WARNING_BYTES] = "";
        bool omits = false;
        weir_status status = weir_anthropic_request_read(
            &request, WEIR_ANTHROPIC_MESSAGE, message, strlen(message), &l, &omits, warning, &error
        );
        if (status != WEIR_OK) EXPECT_EQ(error.status, 503) << error.message;
        if (status == WEIR_OK) status = weir_anthropic_fold_system(request.messages, true);
        weir_openai_request_free(&request);
        return status;
    });
    EXPECT_GT(refused, 150);
}

TEST_F(ShortMemory, OfAnAnswersToolCalls)
{
    const std::string text =
        "<think>hm</think>a "
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":\"\\u0041\"}]}}"
        "</tool_call><tool_call><function=g><parameter=x>{\"y\":[1,2]}</parameter><parameter=z>text"
        "</parameter></function></tool_call>b<tool_call>{no call}</tool_call>";
    weir_chat_parser_options options = {};
    options.format = weir_chat_format_find("hermes");
    options.tools = json_array();
    const int refused = sweep([&] {
        weir_chat_parser *parser = nullptr;
        weir_buffer content = {}, reasoning = {};
        weir_status status = weir_chat_parser_open(&parser, &options);
        if (status == WEIR_OK)
            status = weir_chat_parser_push(parser, &content, &reasoning, text.data(), text.size());
        if (status == WEIR_OK) status = weir_chat_parser_finish(parser, &content, &reasoning);
        if (status == WEIR_OK) {
            size_t n;
            const weir_tool_call *const calls = weir_chat_parser_calls(parser, &n);
            EXPECT_EQ(n, 2u);
            EXPECT_STREQ(calls[0].arguments, "{\"a\":[1,{\"b\":\"\\u0041\"}]}");
            EXPECT_STREQ(calls[1].arguments, "{\"x\": {\"y\":[1,2]}, \"z\": \"text\"}");
            EXPECT_STREQ(content.data, "ab<tool_call>{no call}</tool_call>");
            EXPECT_STREQ(reasoning.data, "hm");
        }
        weir_chat_parser_close(parser);
        weir_buffer_free(&content);
        weir_buffer_free(&reasoning);
        return status;
    });
    json_decref(const_cast<json_t *>(options.tools));
    EXPECT_GT(refused, 10);
}

} // namespace
