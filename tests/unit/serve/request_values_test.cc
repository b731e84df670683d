// Requests as they are read: values, defaults, messages and warnings.
#include <fstream>
#include <iterator>

#include "tests/unit/serve/request.h"

namespace request {
namespace {

TEST(Request, Values)
{
    weir_openai_request request = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK, read(
                     &request, true,
                     R"({"messages":[{"role":"user","content":"a"}],"max_tokens":9,)"
                     R"("max_completion_tokens":3,"seed":-1,"top_k":7,
        "temperature":0.5,"stop":["x","yz"],"logit_bias":{"3":-100},"stream":true,)"
                     R"("stream_options":{"include_usage":true},"n":2})",
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

TEST(Request, KeysBoundThePriority)
{
    weir_request_limits l = request::limits();
    l.has_keys = true;
    const std::string bodies[] = { R"({"prompt":"a","priority":-1})",
                                   R"({"prompt":"a","priority":7,"timeout":2.5})" };
    weir_openai_request request = {};
    weir_api_error error = {};
    EXPECT_NE(
        WEIR_OK,
        weir_openai_request_read(&request, false, bodies[0].c_str(), bodies[0].size(), &l, &error)
    );
    EXPECT_STREQ("priority", error.param);
    ASSERT_EQ(
        WEIR_OK,
        weir_openai_request_read(&request, false, bodies[1].c_str(), bodies[1].size(), &l, &error)
    );
    EXPECT_EQ(7, request.priority);
    EXPECT_EQ(2'500'000'000, request.timeout_ns);
    weir_openai_request_free(&request);
}

/* 400, and a code that says it is no matter of the value: clients send a 501 again. */
TEST(Request, WhatIsNotSupportedIsNamed)
{
    const char *const bodies[] = { R"({"prompt":"a","suffix":"b"})",
                                   R"({"prompt":"a","best_of":2})",
                                   R"({"prompt":"a","functions":[]})" };
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

/* A new field is told to users. */
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

TEST(Request, TheModelHasTheNamesOfTheList)
{
    weir_request_limits l = limits();
    const auto is_served = [&](const std::string &name) {
        return weir_model_is_served(&l, name.c_str(), name.size());
    };
    EXPECT_TRUE(is_served("m"));
    EXPECT_FALSE(is_served(""));
    l.aliases = " gpt-4o ,claude, ,x y";
    for (const char *const name : { "m", "gpt-4o", "claude", "x y" }) EXPECT_TRUE(is_served(name));
    for (const char *const name : { "", " gpt-4o", "gpt-4", "gpt-4o ,claude", "*", "y" })
        EXPECT_FALSE(is_served(name)) << name;
    EXPECT_FALSE(is_served(std::string("m\0", 2)));
    l.aliases = "a,*";
    EXPECT_TRUE(is_served("anything"));
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
} // namespace request
