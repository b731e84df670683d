// Requests, one row each: what is accepted, what is refused and under which name.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/serve/openai_request.h"

namespace {

weir_request_limits limits()
{
    weir_request_limits l = {};
    l.model_name = "m";
    l.n_vocab = 100;
    l.n_slots = 4;
    l.window = 64;
    l.sampling.temperature = 1;
    l.sampling.top_p = 1;
    l.sampling.repetition_penalty = 1;
    return l;
}

struct Row {
    const char *fields; /* put behind messages or prompt */
    int status; /* 200: accepted */
    const char *param;
};

weir_status read(
    weir_openai_request *out, bool chat, const std::string &body, weir_api_error *error
)
{
    const weir_request_limits l = limits();
    return weir_openai_request_read(out, chat, body.c_str(), body.size(), &l, error);
}

/* What a row accepts is a field of the API, or is meant to be unknown. */
bool has_unknown(const Row &row) { return strstr(row.fields, "some_future_key") != nullptr; }

void check(bool chat, const std::string &begin, const Row &row)
{
    const std::string body = begin + row.fields + "}";
    weir_openai_request request = {};
    weir_api_error error = {};
    const weir_status status = read(&request, chat, body, &error);
    EXPECT_EQ(row.status == 200 ? 0 : row.status, status == WEIR_OK ? 0 : error.status) << body;
    if (row.param != nullptr)
        EXPECT_EQ(
            row.param,
            std::string(error.param).substr(0, std::string(error.param).find_first_of("[."))
        ) << body;
    if (status != WEIR_OK) EXPECT_NE('\0', error.message[0]) << body;
    if (status == WEIR_OK) EXPECT_EQ(has_unknown(row), request.unknown.count > 0) << body;
    weir_openai_request_free(&request);
}

const Row both_rows[] = {
    { "", 200, nullptr },
    { R"(,"model":"m")", 200, nullptr },
    { R"(,"model":null)", 200, nullptr },
    { R"(,"model":"x")", 404, "model" },
    { R"(,"model":"m\u0000")", 404, "model" },
    { R"(,"model":5)", 400, "model" },
    { R"(,"some_future_key":{"a":[1]})", 200, nullptr },
    { R"(,"stop":null,"seed":null,"top_p":null,"n":null,"logit_bias":null,)"
      R"("response_format":null,"stream":null)",
      200, nullptr },
    { R"(,"temperature":0)", 200, nullptr },
    { R"(,"temperature":2)", 200, nullptr },
    { R"(,"temperature":2.0000001)", 400, "temperature" },
    { R"(,"temperature":-0.1)", 400, "temperature" },
    { R"(,"temperature":"hot")", 400, "temperature" },
    { R"(,"temperature":true)", 400, "temperature" },
    { R"(,"top_p":0)", 400, "top_p" },
    { R"(,"top_p":1.1)", 400, "top_p" },
    { R"(,"min_p":2)", 400, "min_p" },
    { R"(,"top_k":-1)", 200, nullptr },
    { R"(,"top_k":-5)", 400, "top_k" },
    { R"(,"top_k":2.0)", 400, "top_k" },
    { R"(,"repetition_penalty":0)", 400, "repetition_penalty" },
    { R"(,"presence_penalty":3)", 400, "presence_penalty" },
    { R"(,"frequency_penalty":-3)", 400, "frequency_penalty" },
    { R"(,"n":0)", 400, "n" },
    { R"(,"n":4)", 200, nullptr },
    { R"(,"n":5)", 400, "n" },
    { R"(,"n":9223372036854775808)", 400, "n" },
    { R"(,"max_tokens":-1)", 400, "max_tokens" },
    { R"(,"max_tokens":true)", 400, "max_tokens" },
    { R"(,"max_tokens":5.5)", 400, "max_tokens" },
    { R"(,"max_tokens":9223372036854775807)", 200, nullptr },
    { R"(,"max_tokens":5,"min_tokens":6)", 400, "min_tokens" },
    { R"(,"min_tokens":-1)", 400, "min_tokens" },
    { R"(,"stop":"")", 400, "stop" },
    { R"(,"stop":["a",""])", 400, "stop" },
    { R"(,"stop":["a",null])", 400, "stop" },
    { R"(,"stop":5)", 400, "stop" },
    { R"(,"stop":{})", 400, "stop" },
    { R"(,"stop":["a","b","c","d"])", 200, nullptr },
    { R"(,"stop":["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])", 400,
      "stop" },
    { R"(,"logit_bias":{"99":100})", 200, nullptr },
    { R"(,"logit_bias":{"100":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{"-1":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{"1.5":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{"":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{" 1":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{"99999999999999999999":1})", 400, "logit_bias" },
    { R"(,"logit_bias":{"1":101})", 400, "logit_bias" },
    { R"(,"logit_bias":{"1":"x"})", 400, "logit_bias" },
    { R"(,"logit_bias":[1])", 400, "logit_bias" },
    { R"(,"seed":-5)", 200, nullptr },
    { R"(,"seed":1.5)", 400, "seed" },
    { R"(,"seed":"42")", 400, "seed" },
    { R"(,"stream":"yes")", 400, "stream" },
    { R"(,"stream":1)", 400, "stream" },
    { R"(,"stream_options":{})", 400, "stream_options" },
    { R"(,"stream":true,"stream_options":true)", 400, "stream_options" },
    { R"(,"stream":true,"stream_options":{"include_usage":1})", 400, "stream_options" },
    { R"(,"stream":true,"stream_options":{"include_usage":true})", 200, nullptr },
    { R"(,"ignore_eos":"no")", 400, "ignore_eos" },
    { R"(,"cache_prompt":1)", 400, "cache_prompt" },
    { R"(,"cache_salt":"s")", 200, nullptr },
    { R"(,"cache_salt":"a\u0000b")", 400, "cache_salt" },
    { R"(,"response_format":{"type":"text"})", 200, nullptr },
    { R"(,"response_format":{"type":"json_object"})", 400, "response_format" },
    { R"(,"response_format":{"type":"poem"})", 400, "response_format" },
    { R"(,"response_format":"json")", 400, "response_format" },
    { R"(,"suffix":"x")", 400, "suffix" },
    { R"(,"response_format":{"type":"json_schema","json_schema":{}})", 400, "response_format" },
    { R"(,"prompt_logprobs":1)", 400, "prompt_logprobs" },
    { R"(,"prompt_logprobs":0)", 400, "prompt_logprobs" },
    { R"(,"prompt_logprobs":null)", 200, nullptr },
    { R"(,"structured_outputs":{"choice":["a"]})", 400, "structured_outputs" },
    { R"(,"guided_json":{})", 400, "guided_json" },
    { R"(,"stop_token_ids":[1])", 400, "stop_token_ids" },
    { R"(,"return_progress":true)", 400, "return_progress" },
    { R"(,"return_progress":false,"use_beam_search":false)", 200, nullptr },
    { R"(,"return_progress":1)", 400, "return_progress" },
    { R"(,"kv_polcy":"h2o")", 400, "kv_polcy" },
    { R"(,"kv_x":null)", 400, "kv_x" },
    { R"(,"kvpolicy":"h2o")", 400, "kvpolicy" },
    { R"(,"stream":true,"stream_options":{"include_obfuscation":1})", 400, "stream_options" },
    { R"(,"user":5)", 400, "user" },
    { R"(,"prompt_cache_retention":24)", 400, "prompt_cache_retention" },
    { R"(,"safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h")", 200,
      nullptr },
    { R"(,"metadata":{"a":"b"},"store":false,"service_tier":"auto")", 200, nullptr },
    { R"(,"priority":1)", 400, "priority" },
};

const Row chat_rows[] = {
    { R"(,"max_tokens":0)", 400, "max_tokens" },
    { R"(,"max_completion_tokens":0)", 400, "max_completion_tokens" },
    { R"(,"logprobs":3)", 400, "logprobs" },
    { R"(,"logprobs":true,"top_logprobs":20)", 200, nullptr },
    { R"(,"logprobs":true,"top_logprobs":21)", 400, "top_logprobs" },
    { R"(,"logprobs":true,"top_logprobs":1.5)", 400, "top_logprobs" },
    { R"(,"top_logprobs":2)", 400, "top_logprobs" },
    { R"(,"chat_template":"{{ 1 }}")", 400, "chat_template" },
    { R"(,"chat_template_kwargs":5)", 400, "chat_template_kwargs" },
    { R"(,"chat_template_kwargs":{"enable_thinking":false})", 200, nullptr },
    { R"(,"chat_template_kwargs":{"enable_thinking":1})", 400, "chat_template_kwargs" },
    { R"(,"chat_template_kwargs":{"other":1})", 400, "chat_template_kwargs" },
    { R"(,"reasoning_effort":"low")", 200, nullptr },
    { R"(,"reasoning_effort":"huge")", 400, "reasoning_effort" },
    { R"(,"reasoning_effort":"none")", 200, nullptr },
    { R"(,"reasoning_effort":"xhigh")", 200, nullptr },
    { R"(,"reasoning_effort":3)", 400, "reasoning_effort" },
    { R"(,"verbosity":"low","modalities":["text"])", 200, nullptr },
    { R"(,"verbosity":"loud")", 400, "verbosity" },
    { R"(,"modalities":["text","audio"])", 400, "modalities" },
    { R"(,"modalities":"text")", 400, "modalities" },
    { R"(,"prediction":{"type":"content","content":"a"})", 200, nullptr },
    { R"(,"prediction":"a")", 400, "prediction" },
    { R"(,"audio":{"voice":"x"})", 400, "audio" },
    { R"(,"functions":[])", 400, "functions" },
    { R"(,"parallel_tool_calls":"yes")", 400, "parallel_tool_calls" },
    { R"(,"tools":{})", 400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}},)"
      R"({"type":"function","function":{"name":"f"}}])",
      400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f","description":5}}])", 400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f","strict":"yes"}}])", 400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"poem"}}}])", 400,
      "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":[]}}}])", 400,
      "tools" },
    { R"(,"tool_choice":"required")", 400, "tool_choice" },
    { R"(,"tools":[null])", 400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"a b"}}])", 400, "tools" },
    { R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],)"
      R"("tool_choice":"auto")",
      200, nullptr },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")", 400,
      "tool_choice" },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],)"
      R"("tool_choice":{"type":"function","function":{"name":"f"}})",
      400, "tool_choice" },
    { R"(,"tool_choice":{"type":"function","function":{"name":"nowhere"}})", 400, "tool_choice" },
    { R"(,"tool_choice":"perhaps")", 400, "tool_choice" },
    { R"(,"add_generation_prompt":true,"continue_final_message":true)", 400,
      "add_generation_prompt" },
};

const Row completion_rows[] = {
    { R"(,"max_tokens":0)", 400, "max_tokens" }, { R"(,"max_tokens":0,"echo":true)", 200, nullptr },
    { R"(,"echo":"yes")", 400, "echo" },         { R"(,"logprobs":0)", 200, nullptr },
    { R"(,"logprobs":5)", 200, nullptr },        { R"(,"logprobs":6)", 400, "logprobs" },
    { R"(,"logprobs":true)", 400, "logprobs" },  { R"(,"best_of":1,"n":2)", 400, "best_of" },
    { R"(,"best_of":3,"n":2)", 400, "best_of" }, { R"(,"best_of":2,"n":2)", 200, nullptr },
};

TEST(Request, FieldsOfBoth)
{
    for (const Row &row : both_rows) {
        check(true, R"({"messages":[{"role":"user","content":"a"}])", row);
        check(false, R"({"prompt":"a")", row);
    }
}
TEST(Request, FieldsOfChat)
{
    for (const Row &row : chat_rows)
        check(true, R"({"messages":[{"role":"user","content":"a"}])", row);
}
TEST(Request, FieldsOfCompletions)
{
    for (const Row &row : completion_rows) check(false, R"({"prompt":"a")", row);
}

TEST(Request, Messages)
{
    const Row rows[] = {
        { "null", 400, "messages" },
        { "{}", 400, "messages" },
        { "[]", 400, "messages" },
        { R"("hi")", 400, "messages" },
        { R"(["a"])", 400, "messages" },
        { R"([{"content":"a"}])", 400, "messages" },
        { R"([{"role":"wizard","content":"a"}])", 400, "messages" },
        { R"([{"role":"User","content":"a"}])", 400, "messages" },
        { R"([{"role":"user","content":5}])", 400, "messages" },
        { R"([{"role":"user","content":null}])", 400, "messages" },
        { R"([{"role":"user","content":["a"]}])", 400, "messages" },
        { R"([{"role":"user","content":[{"type":"text"}]}])", 400, "messages" },
        { R"([{"role":"assistant"}])", 400, "messages" },
        { R"([{"role":"assistant","content":null,"tool_calls":[]}])", 400, "messages" },
        { R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}])",
          200, nullptr },
        { R"([{"role":"assistant","tool_calls":[{}]}])", 400, "messages" },
        { R"([{"role":"tool","content":"x"}])", 400, "messages" },
        { R"([{"role":"tool","tool_call_id":5,"content":"x"}])", 400, "messages" },
        { R"([{"role":"tool","tool_call_id":"c","content":"x"}])", 200, nullptr },
        { R"([{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])",
          200, nullptr },
    };
    for (const Row &row : rows) check(true, R"({"messages":)", row);
}

TEST(Request, NoPartButTextAndNothingIsFetched)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    EXPECT_EQ(
        WEIR_EINVAL,
        read(
            &request, true,
            R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]})",
            &error
        )
    );
    EXPECT_EQ(400, error.status);
    EXPECT_STREQ("unsupported_content", error.code);
}

TEST(Request, MessagesTakeTheShapeOfTemplates)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK,
        read(
            &request, true,
            R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"role":"assistant","reasoning":"r","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"k\":[1]}"}},{"function":{"name":"g","arguments":"oops"}}]}]})",
            &error
        )
    ) << error.message;
    char *const text = json_dumps(request.messages, JSON_COMPACT | JSON_SORT_KEYS);
    EXPECT_STREQ(
        R"([{"content":"ab","role":"system"},{"content":"","reasoning_content":"r","role":"assistant","tool_calls":[)"
        R"({"function":{"arguments":{"k":[1]},"name":"f"},"id":"c","type":"function"},{"function":{"arguments":"oops","name":"g"},"type":"function"}]}])",
        text
    );
    free(text);
    weir_openai_request_free(&request);
}

TEST(Request, Prompts)
{
    const Row rows[] = {
        { R"("a")", 200, nullptr },       { "[1,2]", 200, nullptr },
        { R"(["a","b"])", 200, nullptr }, { R"([[1],"a"])", 200, nullptr },
        { R"("")", 400, "prompt" },       { "5", 400, "prompt" },
        { "null", 400, "prompt" },        { "{}", 400, "prompt" },
        { "[]", 400, "prompt" },          { "[[]]", 400, "prompt" },
        { "[true]", 400, "prompt" },      { "[1.5]", 400, "prompt" },
        { "[-1]", 400, "prompt" },        { "[100]", 400, "prompt" },
        { R"([1,"a"])", 400, "prompt" },  { R"(["a",1])", 400, "prompt" },
        { "[[1],[100]]", 400, "prompt" }, { R"(["a",""])", 400, "prompt" },
    };
    for (const Row &row : rows) check(false, R"({"prompt":)", row);
    std::string many = "[\"a\"";
    for (int i = 1; i < WEIR_PROMPTS; i++) many += ",\"a\"";
    check(false, R"({"prompt":)", { (many + "]").c_str(), 200, nullptr });
    check(false, R"({"prompt":)", { (many + ",\"a\"]").c_str(), 400, "prompt" });
}

TEST(Request, Values)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK,
        read(
            &request, true,
            R"({"messages":[{"role":"user","content":"a"}],"max_tokens":9,"max_completion_tokens":3,"seed":-1,"top_k":7,
        "temperature":0.5,"stop":["x","yz"],"logit_bias":{"3":-100},"stream":true,"stream_options":{"include_usage":true},"n":2})",
            &error
        )
    );
    EXPECT_EQ(3, request.max_tokens) << "max_completion_tokens wins";
    EXPECT_EQ(UINT64_MAX, request.sampling.seed);
    EXPECT_EQ(7, request.sampling.top_k);
    EXPECT_FLOAT_EQ(0.5f, request.sampling.temperature);
    EXPECT_FLOAT_EQ(1.0f, request.sampling.top_p) << "the server's default";
    EXPECT_EQ(2u, request.stop.count);
    ASSERT_EQ(1u, request.sampling.n_bias);
    EXPECT_EQ(3, request.sampling.bias[0].id);
    EXPECT_TRUE(request.stream && request.include_usage && request.cache_prompt);
    EXPECT_EQ(2, request.n);
    weir_openai_request_free(&request);

    ASSERT_EQ(WEIR_OK, read(&request, false, R"({"prompt":[[1,2],"b"]})", &error));
    EXPECT_EQ(16, request.max_tokens);
    ASSERT_EQ(2u, weir_openai_prompt_count(request.prompt));
    EXPECT_EQ(2u, json_array_size(weir_openai_prompt_at(request.prompt, 0)));
    EXPECT_STREQ("b", json_string_value(weir_openai_prompt_at(request.prompt, 1)));
    weir_openai_request_free(&request);
}

/* 400, and a code that says it is no matter of the value: clients send a 501 again. */
TEST(Request, WhatIsNotSupportedIsNamed)
{
    const char *const bodies[] = { R"({"prompt":"a","suffix":"b"})",
                                   R"({"prompt":"a","best_of":2})",
                                   R"({"prompt":"a","priority":1})",
                                   R"({"prompt":"a","response_format":{"type":"json_object"}})" };
    for (const char *const body : bodies) {
        weir_openai_request request = {};
        weir_api_error error = {};
        ASSERT_NE(WEIR_OK, read(&request, false, body, &error)) << body;
        EXPECT_EQ(400, error.status) << body;
        EXPECT_STREQ("invalid_request_error", error.type) << body;
        EXPECT_STREQ("unsupported_parameter", error.code) << body;
    }
}

TEST(Request, MessagesSayWhatToDo)
{
    const struct {
        const char *body, *said;
    } rows[] = {
        { R"({"prompt":"a","n":5})", "batch.max_sequences" },
        { R"({"prompt":"a","kv_polcy":"h2o"})", "the nearest is kv_policy" },
        { R"({"prompt":"a","kv_budgets":1})", "the nearest is kv_budget" },
        { R"({"prompt":"a","kv":"h2o"})", "" },
    };
    for (const auto &row : rows) {
        weir_openai_request request = {};
        weir_api_error error = {};
        const weir_status status = read(&request, false, row.body, &error);
        EXPECT_EQ(row.said[0] == '\0', status == WEIR_OK) << row.body;
        EXPECT_NE(std::string::npos, std::string(error.message).find(row.said)) << error.message;
        weir_openai_request_free(&request);
    }
}

TEST(Request, UnknownFieldsAreNoted)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    char warning[WEIR_WARNING_BYTES] = "";
    ASSERT_EQ(
        WEIR_OK, read(
                     &request, true,
                     R"({"messages":[{"role":"user","content":"a"}],"tempreature":1,"a\r\nb":null,)"
                     R"("echo":true,"user":"u","stream":true,"stream_options":{"usage":true}})",
                     &error
                 )
    ) << error.message;
    EXPECT_EQ(4u, request.unknown.count);
    weir_warning_unknown(warning, &request.unknown);
    const std::string text = warning;
    EXPECT_EQ(0u, text.find("unknown fields are ignored: ")) << text;
    for (const char *const part :
         { "tempreature (temperature?)", "a??b", "echo", "stream_options.usage" })
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
    for (const char c : text) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
    weir_openai_request_free(&request);

    ASSERT_EQ(WEIR_OK, read(&request, false, R"({"prompt":"a","user":"u","top_k":3})", &error));
    EXPECT_EQ(0u, request.unknown.count) << "read or ignored by design";
    weir_openai_request_free(&request);
}

TEST(Request, AWarningHasALimit)
{
    std::string body = R"({"prompt":"a")";
    for (int i = 0; i < 100; i++)
        body += ",\"" + std::string(200, 'x') + std::to_string(i) + "\":1";
    weir_openai_request request = {};
    weir_api_error error = {};
    char warning[WEIR_WARNING_BYTES] = "";
    ASSERT_EQ(WEIR_OK, read(&request, false, body + "}", &error)) << error.message;
    EXPECT_EQ(100u, request.unknown.count);
    weir_warning_unknown(warning, &request.unknown);
    EXPECT_EQ(sizeof warning - 1, strlen(warning));
    EXPECT_STREQ("...", warning + sizeof warning - 4);
    weir_warning_add(warning, "more");
    EXPECT_STREQ("...", warning + sizeof warning - 4);
    weir_openai_request_free(&request);
}

TEST(Request, EffortSetsThinking)
{
    const struct {
        const char *fields, *variables;
    } rows[] = {
        { R"("reasoning_effort":"none")", R"({"enable_thinking":false})" },
        { R"("reasoning_effort":"low")", R"({"enable_thinking":true,"reasoning_effort":"low"})" },
        { R"("reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false})",
          R"({"enable_thinking":false})" },
        { R"("reasoning_effort":null)", "{}" },
    };
    for (const auto &row : rows) {
        weir_openai_request request = {};
        weir_api_error error = {};
        const std::string body =
            R"({"messages":[{"role":"user","content":"a"}],)" + std::string(row.fields) + "}";
        ASSERT_EQ(WEIR_OK, read(&request, true, body, &error)) << error.message;
        char *const text = json_dumps(request.variables, JSON_COMPACT | JSON_SORT_KEYS);
        EXPECT_STREQ(row.variables, text);
        free(text);
        weir_openai_request_free(&request);
    }
}

bool named(const std::string &text, const std::string &name)
{
    return text.find(name) != std::string::npos;
}

/* Whoever adds a field tells users of it. */
TEST(Request, EveryFieldIsDocumented)
{
    std::ifstream file("docs/api.md");
    const std::string text{ std::istreambuf_iterator<char>(file),
                            std::istreambuf_iterator<char>() };
    ASSERT_FALSE(text.empty());
    size_t count = 0;
    const weir_field_row *const rows = weir_field_rows(&count);
    for (size_t i = 0; i < count; i++) {
        const std::string key = rows[i].key;
        EXPECT_TRUE(named(text, "`" + key + "`") || named(text, "\"" + key + "\"")) << key;
    }
}

TEST(Request, TheServersDefaultsAreTaken)
{
    weir_request_limits l = limits();
    weir_openai_request request = {};
    weir_api_error error = {};
    const std::string chat = R"({"messages":[{"role":"user","content":"a"}])";
    const auto take = [&](bool is_chat, const std::string &body) {
        weir_openai_request_free(&request);
        EXPECT_EQ(
            WEIR_OK,
            weir_openai_request_read(&request, is_chat, body.c_str(), body.size(), &l, &error)
        );
    };
    take(true, chat + "}");
    EXPECT_EQ(-1, request.max_tokens) << "to the end of the window";
    l.max_tokens = 50;
    l.sampling.seed = 7;
    l.has_seed = true;
    take(true, chat + "}");
    EXPECT_EQ(50, request.max_tokens);
    EXPECT_EQ(7u, request.sampling.seed);
    take(true, chat + R"(,"max_tokens":60,"seed":8})");
    EXPECT_EQ(60, request.max_tokens);
    EXPECT_EQ(8u, request.sampling.seed);
    take(false, R"({"prompt":"a"})");
    EXPECT_EQ(16, request.max_tokens) << "OpenAI's default of completions";
    weir_openai_request_free(&request);
}

TEST(Request, RequestsWithoutSeedDiffer)
{
    weir_openai_request a = {}, b = {};
    weir_api_error error = {};
    ASSERT_EQ(WEIR_OK, read(&a, false, R"({"prompt":"a"})", &error));
    ASSERT_EQ(WEIR_OK, read(&b, false, R"({"prompt":"a"})", &error));
    EXPECT_NE(a.sampling.seed, b.sampling.seed);
    weir_openai_request_free(&a);
    weir_openai_request_free(&b);
}

} // namespace
