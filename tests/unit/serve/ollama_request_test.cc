// Bodies of Ollama's API, one row each: what becomes of them, what is refused.
#include "engine/serve/ollama_request.h"
#include "tests/unit/serve/request.h"

namespace request {
namespace {

weir_status read_ollama(
    weir_ollama_request *out, weir_body body, const std::string &fields, weir_api_error *error
)
{
    const weir_request_limits l = limits();
    const char *const begin = body == WEIR_BODY_OLLAMA_CHAT
                                  ? R"({"model":"m","messages":[{"role":"user","content":"a"}])"
                                  : R"({"model":"m","prompt":"a")";
    json_t *const root = parse(begin + fields + "}");
    const weir_status status = weir_ollama_request_read(out, root, body, true, &l, error);
    json_decref(root);
    return status;
}

const Row ollama_rows[] = {
    { R"(,"stream":false)", 200, nullptr },
    { R"(,"stream":"no")", 400, "stream" },
    { R"(,"format":"json")", 200, nullptr },
    { R"(,"format":"")", 200, nullptr },
    { R"(,"format":{"type":"object"})", 200, nullptr },
    { R"(,"format":5)", 400, "format" },
    { R"(,"format":"xml")", 400, "format" },
    { R"(,"think":true)", 200, nullptr },
    { R"(,"think":"high")", 200, nullptr },
    { R"(,"think":"very")", 400, "think" },
    { R"(,"keep_alive":"5m")", 200, nullptr },
    { R"(,"keep_alive":[])", 400, "keep_alive" },
    { R"(,"options":{"temperature":"hot"})", 400, "temperature" },
    { R"(,"options":[])", 400, "options" },
    { R"(,"options":{"num_ctx":5,"num_gpu":0,"mirostat":0})", 200, nullptr },
    { R"(,"options":{"mirostat":1})", 400, "mirostat" },
    { R"(,"options":{"repeat_penalty":1.1,"repeat_last_n":64})", 400, "repeat_last_n" },
    { R"(,"options":{"num_predict":"a"})", 400, "num_predict" },
    { R"(,"truncate":true,"shift":false)", 200, nullptr },
    { R"(,"truncate":5)", 400, "truncate" },
    { R"(,"top_logprobs":3)", 400, "top_logprobs" },
    { R"(,"logprobs":true,"top_logprobs":3)", 200, nullptr },
};

TEST(Ollama, FieldsOfBoth)
{
    for (const weir_body body : { WEIR_BODY_OLLAMA_CHAT, WEIR_BODY_OLLAMA_GENERATE })
        for (const Row &row : ollama_rows) {
            weir_ollama_request ollama = {};
            weir_api_error error = {};
            expect(row, read_ollama(&ollama, body, row.fields, &error), error);
            weir_openai_request_free(&ollama.request);
        }
}

TEST(Ollama, BecomesAChat)
{
    weir_ollama_request ollama = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK, read_ollama(
                     &ollama, WEIR_BODY_OLLAMA_GENERATE,
                     R"(,"system":"s","think":false,"format":{"type":"object"},)"
                     R"("options":{"num_predict":9,"repeat_penalty":1.5,"seed":3,"what":1})",
                     &error
                 )
    ) << error.message;
    const weir_openai_request *const r = &ollama.request;
    EXPECT_TRUE(r->chat);
    EXPECT_TRUE(r->stream);
    EXPECT_EQ(9, r->max_tokens);
    EXPECT_EQ(2u, json_array_size(r->messages));
    EXPECT_TRUE(json_is_false(json_object_get(r->variables, "enable_thinking")));
    EXPECT_STREQ("format", r->structured.field);
    EXPECT_EQ(1.5f, r->sampling.repetition_penalty);
    EXPECT_EQ(3u, r->sampling.seed);
    EXPECT_EQ(1u, r->unknown.count) << "options.what";
    weir_openai_request_free(&ollama.request);
    ASSERT_EQ(
        WEIR_OK, read_ollama(
                     &ollama, WEIR_BODY_OLLAMA_GENERATE,
                     R"(,"raw":true,"logprobs":true,"top_logprobs":9)", &error
                 )
    ) << error.message;
    EXPECT_FALSE(ollama.request.chat);
    EXPECT_EQ(-1, ollama.request.max_tokens) << "not the 16 of completions";
    EXPECT_EQ(9, ollama.request.n_top_logprobs);
    weir_openai_request_free(&ollama.request);
}

/* One text; without a template nothing reasons. */
TEST(Ollama, RawPrompts)
{
    weir_ollama_request ollama = {};
    weir_api_error error = {};
    const weir_request_limits l = limits();
    for (const char *const rest : { R"(["a","b"])", "[1,2]", R"("a","think":true)" }) {
        const std::string begin = R"({"model":"m","raw":true,"prompt":)";
        json_t *const root = parse(begin + rest + "}");
        const weir_body body = WEIR_BODY_OLLAMA_GENERATE;
        EXPECT_EQ(WEIR_EINVAL, weir_ollama_request_read(&ollama, root, body, true, &l, &error))
            << rest;
        json_decref(root);
    }
}

/* Calls and their answers, as its client sends them back. */
TEST(Ollama, ToolsInMessages)
{
    const weir_request_limits l = limits();
    json_t *const root = parse(
        R"({"model":"m:latest","messages":[{"role":"user","content":"a"},)"
        R"({"role":"assistant","content":"","thinking":"t","tool_calls":[{"function":)"
        R"({"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"x","tool_name":"f"}]})"
    );
    weir_ollama_request ollama = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK, weir_ollama_request_read(&ollama, root, WEIR_BODY_OLLAMA_CHAT, true, &l, &error)
    ) << error.message;
    const json_t *const call = json_array_get(ollama.request.messages, 1),
                        *const answer = json_array_get(ollama.request.messages, 2);
    EXPECT_STREQ("t", json_string_value(json_object_get(call, "reasoning_content")));
    EXPECT_TRUE(json_is_object(json_object_get(
        json_object_get(json_array_get(json_object_get(call, "tool_calls"), 0), "function"),
        "arguments"
    )));
    EXPECT_STREQ("f", json_string_value(json_object_get(answer, "tool_call_id")));
    EXPECT_STREQ("m:latest", ollama.model);
    weir_openai_request_free(&ollama.request);
    json_decref(root);
}

TEST(Ollama, ATagMayFollowTheName)
{
    weir_request_limits l = limits();
    l.aliases = "gpt-4o";
    char model[WEIR_OLLAMA_MODEL];
    weir_api_error error = {};
    for (const char *const name :
         { "gpt-4o", "gpt-4o:latest", "m:latest", "gpt-4o:7b", ":latest" }) {
        json_t *const root = json_pack("{s:s}", "model", name);
        const bool is_good = strstr(name, "7b") == nullptr && name[0] != ':';
        EXPECT_EQ(is_good, weir_ollama_model_read(model, root, "model", &l, &error) == WEIR_OK)
            << name;
        json_decref(root);
    }
}

} // namespace
} // namespace request
