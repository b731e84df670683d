// Errors name fields of the API that was asked, not those of the chat that a request becomes.
#include <regex>
#include <set>

#include "engine/serve/anthropic_request.h"
#include "engine/serve/llama_request.h"
#include "engine/serve/ollama_request.h"
#include "engine/serve/responses_request.h"
#include "tests/unit/serve/request.h"

namespace request {
namespace {

using Read = weir_status (*)(weir_openai_request *, const std::string &, weir_api_error *);

weir_status responses(weir_openai_request *out, const std::string &body, weir_api_error *error)
{
    const weir_request_limits l = limits();
    weir_responses more = {};
    const weir_status status =
        weir_responses_read(out, &more, body.c_str(), body.size(), &l, error);
    weir_buffer_free(&more.echo);
    return status;
}

weir_status messages(weir_openai_request *out, const std::string &body, weir_api_error *error)
{
    const weir_request_limits l = limits();
    bool omits = false;
    char warning[WEIR_WARNING_BYTES] = "";
    return weir_anthropic_request_read(
        out, WEIR_ANTHROPIC_MESSAGE, body.c_str(), body.size(), &l, &omits, warning, error
    );
}

weir_status llama(weir_openai_request *out, const std::string &body, weir_api_error *error)
{
    const weir_request_limits l = limits();
    weir_llama_request read = {};
    json_t *const root = parse(body);
    const weir_status status = weir_llama_request_read(
        &read, root, json_object_get(root, "prompt"), WEIR_BODY_LLAMA, &l, error
    );
    json_decref(root);
    *out = read.request;
    return status;
}

template <weir_body body>
weir_status ollama(weir_openai_request *out, const std::string &text, weir_api_error *error)
{
    const weir_request_limits l = limits();
    weir_ollama_request read = {};
    json_t *const root = parse(text);
    const weir_status status = weir_ollama_request_read(&read, root, body, true, &l, error);
    json_decref(root);
    *out = read.request;
    return status;
}

const struct Api {
    weir_body body;
    Read read;
    std::string begin; /* of a good body */
} apis[] = {
    { WEIR_BODY_RESPONSES, responses, R"({"input":"a")" },
    { WEIR_BODY_MESSAGES, messages,
      R"({"max_tokens":5,"messages":[{"role":"user","content":"a"}])" },
    { WEIR_BODY_LLAMA, llama, R"({"prompt":"a")" },
    { WEIR_BODY_OLLAMA_CHAT, ollama<WEIR_BODY_OLLAMA_CHAT>,
      R"({"model":"m","messages":[{"role":"user","content":"a"}])" },
    { WEIR_BODY_OLLAMA_GENERATE, ollama<WEIR_BODY_OLLAMA_GENERATE>,
      R"({"model":"m","prompt":"a")" },
};

/* The good body with this field, which replaces its own. */
std::string with(const Api &api, const std::string &field, const std::string &value)
{
    json_t *const body = parse(api.begin + "}"), *const more = parse("{\"v\":" + value + "}");
    json_object_set(body, field.c_str(), json_object_get(more, "v"));
    char *const text = json_dumps(body, JSON_COMPACT);
    const std::string copy = text;
    free(text);
    json_decref(body);
    json_decref(more);
    return copy;
}

std::set<std::string> fields_of(unsigned bodies)
{
    size_t count = 0;
    const weir_field_row *const rows = weir_field_rows(&count);
    std::set<std::string> fields;
    for (size_t i = 0; i < count; i++)
        if (rows[i].bodies & bodies) fields.insert(rows[i].key);
    return fields;
}

/* Options of Ollama are named alone, as its clients know them. */
bool is_option(const std::string &word)
{
    static const std::set<std::string> options = {
        "num_predict",      "temperature",       "top_k",          "top_p",        "min_p", "stop",
        "presence_penalty", "frequency_penalty", "repeat_penalty", "repeat_last_n"
    };
    return options.count(word) > 0;
}

/* A value, not a name: in quotes, or the client's own. */
bool is_value(const std::string &text, size_t at, const std::string &word, const std::string &body)
{
    return (at > 0 && text[at - 1] == '"') || body.find('"' + word + '"') != std::string::npos;
}

void check_names(const Api &api, const std::string &body)
{
    /* function_call is an item of /v1/responses, too. */
    static const std::set<std::string> chat = [] {
        std::set<std::string> fields = fields_of(WEIR_BODY_CHAT | WEIR_BODY_COMPLETION);
        fields.erase("function_call");
        return fields;
    }();
    const std::set<std::string> own = fields_of(api.body);
    weir_openai_request request = {};
    weir_api_error error = {};
    const weir_status status = api.read(&request, body, &error);
    weir_openai_request_free(&request);
    if (status == WEIR_OK) return;
    const std::string param = std::string(error.param).substr(0, strcspn(error.param, ".["));
    const bool is_ollama =
        api.body == WEIR_BODY_OLLAMA_CHAT || api.body == WEIR_BODY_OLLAMA_GENERATE;
    EXPECT_TRUE(param.empty() || own.count(param) > 0 || (is_ollama && is_option(param)))
        << body << ": " << error.param << ": " << error.message;
    const std::string message = error.message;
    static const std::regex word("[a-z_]*_[a-z_]*|messages(?=\\[)");
    for (auto at = std::sregex_iterator(message.begin(), message.end(), word);
         at != std::sregex_iterator(); ++at)
        EXPECT_TRUE(
            is_value(message, (size_t)at->position(), at->str(), body) ||
            chat.count(at->str()) == 0 || own.count(at->str()) > 0 ||
            (is_ollama && is_option(at->str()))
        ) << body
          << ": " << message;
}

TEST(ErrorNames, AreOfTheApi)
{
    const char *const values[] = { "-7",
                                   "1e30",
                                   "0.5",
                                   "\"nonsense\"",
                                   "[]",
                                   "[5]",
                                   "[{}]",
                                   "[{\"type\":\"nonsense\"}]",
                                   "{}",
                                   "{\"nonsense\":5}",
                                   "{\"type\":\"nonsense\"}",
                                   "{\"type\":\"function\"}",
                                   "{\"type\":\"json_schema\"}",
                                   "true" };
    for (const Api &api : apis)
        for (const std::string &field : fields_of(api.body))
            for (const std::string value : values) check_names(api, with(api, field, value));
}

TEST(ErrorNames, OfWhatOnlyTheChatFindsWrong)
{
    const struct {
        const Api &api;
        const char *fields, *said;
    } rows[] = {
        { apis[0], R"(,"min_tokens":5,"max_output_tokens":3)", "above max_output_tokens" },
        { apis[0], R"(,"reasoning":{"effort":"very"})", "reasoning" },
        { apis[0], R"(,"text":{"format":{"type":"json_object"}},"guided_regex":"a")", "text" },
        { apis[1], R"(,"tools":[{"name":"a b","input_schema":{}}])", "tools[0]" },
        { apis[1], R"(,"min_tokens":9)", "max_tokens" },
        { apis[2], R"(,"repeat_penalty":99)", "repeat_penalty" },
        { apis[2], R"(,"n_cmpl":99)", "n_cmpl" },
        { apis[3], R"(,"options":{"repeat_penalty":99})", "repeat_penalty" },
        { apis[3], R"(,"tools":[{"type":"function"}])", "tools[0]" },
    };
    for (const auto &row : rows) {
        const std::string body = row.api.begin + row.fields + "}";
        weir_openai_request request = {};
        weir_api_error error = {};
        check_names(row.api, body);
        EXPECT_NE(WEIR_OK, row.api.read(&request, body, &error)) << body;
        EXPECT_NE(std::string::npos, std::string(error.message).find(row.said))
            << body << ": " << error.message;
    }
}

TEST(ErrorNames, PathsAndWordsWithAnUnderscore)
{
    const weir_api_name names[] = { { "messages", "input" },
                                    { "max_tokens", "num_predict" },
                                    { "n", "n_cmpl" } };
    const struct {
        const char *before, *after;
    } rows[] = {
        { "messages[12].content is empty", "input.content is empty" },
        { "n is 5", "n_cmpl is 5" },
        { "it has n messages, max_tokens", "it has n messages, num_predict" },
        { "xmax_tokens, max_tokensx", "xmax_tokens, max_tokensx" },
        { "", "" },
    };
    for (const auto &row : rows) {
        weir_api_error error = {};
        (void)!weir_api_bad(&error, "messages[12].content", "%s", row.before);
        weir_api_rename(&error, names, 3);
        EXPECT_STREQ(row.after, error.message);
        EXPECT_STREQ("input", error.param);
    }
    weir_api_error error = {};
    (void
    )!weir_api_bad(&error, nullptr, "%s", std::string(990, 'x').append(" n.n.n n.n.n").c_str());
    weir_api_rename(&error, names, 3);
    EXPECT_LT(strlen(error.message), sizeof error.message);
}

} // namespace
} // namespace request
