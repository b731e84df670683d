// Requests, one row each: what is accepted, what is refused and under which name.
#include "tests/unit/serve/request.h"

namespace request {
namespace {

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
    { R"(,"response_format":{"type":"json_object"})", 200, nullptr },
    { R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{}}})", 200, nullptr },
    { R"(,"response_format":{"type":"json_schema","json_schema":{"schema":5}})", 400,
      "response_format" },
    { R"(,"response_format":{"type":"poem"})", 400, "response_format" },
    { R"(,"response_format":"json")", 400, "response_format" },
    { R"(,"suffix":"x")", 400, "suffix" },
    { R"(,"response_format":{"type":"json_schema","json_schema":{}})", 400, "response_format" },
    { R"(,"prompt_logprobs":1)", 400, "prompt_logprobs" },
    { R"(,"prompt_logprobs":0)", 400, "prompt_logprobs" },
    { R"(,"prompt_logprobs":null)", 200, nullptr },
    { R"(,"structured_outputs":{"choice":["a"]})", 200, nullptr },
    { R"(,"structured_outputs":{"choice":["a"],"json":null,"json_object":false})", 200, nullptr },
    { R"(,"structured_outputs":{"json_object":true})", 200, nullptr },
    { R"(,"structured_outputs":{"json_object":1})", 400, "structured_outputs" },
    { R"(,"structured_outputs":{"choice":["a"],"regex":"b"})", 400, "structured_outputs" },
    { R"(,"structured_outputs":{"structural_tag":"a"})", 400, "structured_outputs" },
    { R"(,"structured_outputs":{})", 400, "structured_outputs" },
    { R"(,"structured_outputs":[])", 400, "structured_outputs" },
    { R"(,"guided_json":{})", 200, nullptr },
    { R"(,"guided_json":[])", 400, "guided_json" },
    { R"(,"guided_regex":5)", 400, "guided_regex" },
    { R"(,"guided_choice":"a")", 400, "guided_choice" },
    { R"(,"guided_grammar":{})", 400, "guided_grammar" },
    { R"(,"grammar":5)", 400, "grammar" },
    { R"(,"json_schema":5)", 400, "json_schema" },
    { R"(,"json_schema":{},"guided_json":{})", 400, "json_schema" },
    { R"(,"response_format":{"type":"text"},"guided_json":{})", 200, nullptr },
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
    { R"(,"priority":-1000)", 200, nullptr },
    { R"(,"priority":1001)", 400, "priority" },
    { R"(,"priority":1.5)", 400, "priority" },
    { R"(,"timeout":0.5)", 200, nullptr },
    { R"(,"timeout":0)", 400, "timeout" },
    { R"(,"timeout":86401)", 400, "timeout" },
    { R"(,"sse_ping_interval":1)", 200, nullptr },
    { R"(,"sse_ping_interval":-1)", 200, nullptr },
    { R"(,"sse_ping_interval":0)", 400, "sse_ping_interval" },
    { R"(,"sse_ping_interval":-2)", 400, "sse_ping_interval" },
    { R"(,"sse_ping_interval":86401)", 400, "sse_ping_interval" },
    { R"(,"sse_ping_interval":true)", 400, "sse_ping_interval" },
    { R"(,"timeout":"1")", 400, "timeout" },
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
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)"
      R"({"type":"custom","function":{"name":"f"}})",
      400, "tool_choice" },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)"
      R"({"type":"allowed_tools","allowed_tools":{"mode":"some","tools":[]}})",
      400, "tool_choice" },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)"
      R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})",
      400, "tool_choice" },
    { R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)"
      R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":)"
      R"("g"}}]}})",
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
        { R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function",)"
          R"("function":{"name":"f","arguments":"{\"a\":1}"}}]}])",
          200, nullptr },
        { R"([{"role":"assistant","tool_calls":[{}]}])", 400, "messages" },
        { R"([{"role":"tool","content":"x"}])", 400, "messages" },
        { R"([{"role":"tool","tool_call_id":5,"content":"x"}])", 400, "messages" },
        { R"([{"role":"tool","tool_call_id":"c","content":"x"}])", 200, nullptr },
        { R"([{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text",)"
          R"("text":"b"}]}])",
          200, nullptr },
    };
    for (const Row &row : rows) check(true, R"({"messages":)", row);
}

TEST(Request, NoPartButTextAndNothingIsFetched)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    EXPECT_EQ(
        WEIR_EINVAL, read(
                         &request, true,
                         R"({"messages":[{"role":"user","content":[{"type":"image_url",)"
                         R"("image_url":{"url":"file:///etc/passwd"}}]}]})",
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
            R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},)"
            R"({"type":"text","text":"b"}]},
        {"role":"assistant","reasoning":"r","tool_calls":[{"id":"c","function":{"name":"f",)"
            R"("arguments":"{\"k\":[1]}"}},{"function":{"name":"g","arguments":"oops"}}]}]})",
            &error
        )
    ) << error.message;
    char *const text = json_dumps(request.messages, JSON_COMPACT | JSON_SORT_KEYS);
    EXPECT_STREQ(
        R"([{"content":"ab","role":"system"},{"content":"","reasoning_content":"r",)"
        R"("role":"assistant","tool_calls":[)"
        R"({"function":{"arguments":{"k":[1]},"name":"f"},"id":"c","type":"function"},)"
        R"({"function":{"arguments":"oops","name":"g"},"type":"function"}]}])",
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

} // namespace
} // namespace request
