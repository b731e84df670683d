// /openapi.json against the tables that it is made of, and against what the code reads.
#include <jansson.h>

#include <cmath>
#include <map>
#include <memory>
#include <regex>
#include <set>

#include "engine/serve/openai_request.h"
#include "engine/serve/openapi.h"
#include "tests/unit/serve/server_fixture.h"

namespace {

struct Freed {
    void operator()(json_t *value) const { json_decref(value); }
};
using Json = std::unique_ptr<json_t, Freed>;

/* Bodies as the document names them. */
const std::map<std::string, unsigned> bodies = {
    { "ChatRequest", WEIR_BODY_CHAT },
    { "CompletionRequest", WEIR_BODY_COMPLETION },
    { "ResponsesRequest", WEIR_BODY_RESPONSES },
    { "MessagesRequest", WEIR_BODY_MESSAGES },
    { "CountRequest", WEIR_BODY_MESSAGES },
    { "EmbeddingsRequest", WEIR_BODY_EMBEDDINGS },
    { "RerankRequest", WEIR_BODY_RERANK },
    { "TokenizeRequest", WEIR_BODY_TOKENIZE },
    { "DetokenizeRequest", WEIR_BODY_DETOKENIZE },
    { "SaveRequest", WEIR_BODY_SESSION_SAVE },
    { "RestoreRequest", WEIR_BODY_SESSION_RESTORE },
    { "StateRequest", WEIR_BODY_STATE },
    { "QueryRequest", WEIR_BODY_STATE_QUERY },
    { "MergeRequest", WEIR_BODY_STATE_MERGE },
    { "LlamaRequest", WEIR_BODY_LLAMA },
    { "InfillRequest", WEIR_BODY_INFILL },
    { "SlotRequest", WEIR_BODY_SLOT },
    { "OllamaChatRequest", WEIR_BODY_OLLAMA_CHAT },
    { "OllamaGenerateRequest", WEIR_BODY_OLLAMA_GENERATE },
    { "OllamaShowRequest", WEIR_BODY_OLLAMA_SHOW },
    { "OllamaEmbedRequest", WEIR_BODY_OLLAMA_EMBED },
    { "OllamaEmbeddingsRequest", WEIR_BODY_OLLAMA_EMBEDDINGS },
};

Json document(bool has_keys = false)
{
    weir_buffer text = {};
    EXPECT_EQ(WEIR_OK, weir_openapi_write(&text, "1.2", has_keys));
    json_error_t error;
    Json root(json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &error));
    EXPECT_NE(nullptr, root) << error.text << " at " << error.position;
    weir_buffer_free(&text);
    return root;
}

const json_t *at(const json_t *value, std::initializer_list<const char *> path)
{
    for (const char *const key : path) value = json_object_get(value, key);
    return value;
}

const json_t *schemas(const Json &root) { return at(root.get(), { "components", "schemas" }); }

std::set<std::string> keys_of(const json_t *object)
{
    std::set<std::string> keys;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) keys.insert(key);
    return keys;
}

/* Every name that something refers to. */
void find_references(const json_t *value, std::set<std::string> *names)
{
    const char *key;
    json_t *member;
    const std::string begin = "#/components/schemas/";
    json_object_foreach((json_t *)value, key, member)
    {
        if (strcmp(key, "$ref") == 0) {
            const std::string path = json_string_value(member);
            ASSERT_EQ(0u, path.find(begin));
            names->insert(path.substr(begin.size()));
        }
        find_references(member, names);
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        find_references(json_array_get(value, i), names);
}

TEST(OpenApi, FieldsAreThoseOfTheTableAndNoOthers)
{
    const Json root = document();
    size_t n_rows = 0;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    unsigned described = 0;
    for (const auto &[name, body] : bodies) {
        const json_t *const properties = at(schemas(root), { name.c_str(), "properties" });
        std::set<std::string> fields;
        for (size_t i = 0; i < n_rows; i++)
            if (rows[i].bodies & body)
                EXPECT_TRUE(fields.insert(rows[i].key).second) << name << ": " << rows[i].key;
        EXPECT_EQ(fields, keys_of(properties)) << name;
        described |= body;
    }
    for (size_t i = 0; i < n_rows; i++)
        EXPECT_EQ(0u, rows[i].bodies & ~described) << "a body without a schema: " << rows[i].key;
}

TEST(OpenApi, EverySchemaIsThereAndUsed)
{
    const Json root = document();
    std::set<std::string> used;
    find_references(root.get(), &used);
    EXPECT_EQ(keys_of(schemas(root)), used);
}

/* A value of the field, by itself, is read or refused as its schema says. */
void try_value(const char *key, unsigned body, const json_t *value, bool is_good)
{
    Json root(json_object());
    weir_unknown_fields unknown = {};
    weir_api_error error = {};
    json_object_set(root.get(), key, (json_t *)value);
    const weir_status status = weir_fields_check(root.get(), (weir_body)body, &unknown, &error);
    EXPECT_EQ(is_good, status == WEIR_OK) << key << ": " << error.message;
    EXPECT_EQ(0u, unknown.count) << key;
    if (!is_good) EXPECT_STREQ(key, error.param);
}

void try_limit(const char *key, unsigned body, const json_t *schema, const char *limit, int beyond)
{
    const json_t *const value = json_object_get(schema, limit);
    if (value == nullptr) return;
    const double number = json_number_value(value);
    const json_t *const type = json_object_get(schema, "type");
    const char *const word =
        json_string_value(json_is_array(type) ? json_array_get(type, 0) : type);
    const bool is_integer = strcmp(word, "integer") == 0;
    const bool is_open = strncmp(limit, "exclusive", 9) == 0;
    const Json on(is_integer ? json_integer((json_int_t)number) : json_real(number));
    const Json outside(
        is_integer ? json_integer((json_int_t)number + beyond) : json_real(number + 1e-6 * beyond)
    );
    try_value(key, body, on.get(), !is_open);
    try_value(key, body, outside.get(), false);
}

TEST(OpenApi, RangesAndTypesAreThoseThatAreChecked)
{
    const Json root = document();
    int n_ranges = 0;
    for (const auto &[name, body] : bodies) {
        const char *key;
        json_t *schema;
        json_object_foreach(
            (json_t *)at(schemas(root), { name.c_str(), "properties" }), key, schema
        )
        {
            for (const char *const least : { "minimum", "exclusiveMinimum" })
                try_limit(key, body, schema, least, -1);
            try_limit(key, body, schema, "maximum", 1);
            n_ranges += json_object_get(schema, "maximum") != nullptr;
            if (json_object_get(schema, "type") == nullptr) continue;
            const Json list(json_array());
            try_value(key, body, list.get(), false); /* of no field with a `type` */
        }
    }
    EXPECT_GT(n_ranges, 50);
}

TEST(OpenApi, DefaultsAreOfTheirTypes)
{
    const Json root = document();
    for (const auto &[name, body] : bodies) {
        const char *key;
        json_t *schema;
        json_object_foreach(
            (json_t *)at(schemas(root), { name.c_str(), "properties" }), key, schema
        )
        {
            const json_t *const value = json_object_get(schema, "default");
            if (value == nullptr) continue;
            Json good(json_object());
            weir_unknown_fields unknown = {};
            weir_api_error error = {};
            json_object_set(good.get(), key, (json_t *)value);
            EXPECT_EQ(WEIR_OK, weir_fields_check(good.get(), (weir_body)body, &unknown, &error))
                << name << ": " << error.message;
        }
    }
}

TEST(OpenApi, EveryFieldSaysWhatItMeansInOneLine)
{
    const Json root = document();
    size_t n_rows = 0;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    for (const auto &[name, body] : bodies) {
        const char *key;
        json_t *schema;
        json_object_foreach(
            (json_t *)at(schemas(root), { name.c_str(), "properties" }), key, schema
        )
        {
            const char *const text = json_string_value(json_object_get(schema, "description"));
            ASSERT_NE(nullptr, text) << name << ": " << key;
            const std::string words = text;
            EXPECT_TRUE(std::regex_match(words, std::regex("[ -{}~]{4,100}"))) << key;
            EXPECT_NE(' ', words.back()) << key;
            EXPECT_TRUE(words.back() != '.' || words.find("...") != std::string::npos) << key;
        }
    }
    EXPECT_EQ(nullptr, weir_field_meaning("nonsense", ~0u));
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].use == WEIR_FIELD_READ) continue;
        bool is_read = false;
        for (size_t j = 0; j < n_rows; j++)
            is_read |= rows[j].use == WEIR_FIELD_READ && strcmp(rows[i].key, rows[j].key) == 0;
        if (!is_read) EXPECT_EQ(nullptr, weir_field_meaning(rows[i].key, ~0u)) << rows[i].key;
    }
}

/* Whether the code reads a completion with these members. */
bool is_completion(const std::string &members, bool has_keys)
{
    const std::string body = R"({"prompt":"a",)" + members + "}";
    weir_request_limits limits = {};
    weir_openai_request request = {};
    weir_api_error error = {};
    limits.model_name = "m";
    limits.n_slots = 4;
    limits.sampling.top_p = 1;
    limits.has_keys = has_keys;
    const weir_status status =
        weir_openai_request_read(&request, false, body.c_str(), body.size(), &limits, &error);
    weir_openai_request_free(&request);
    return status == WEIR_OK;
}

TEST(OpenApi, KeysRaiseTheLeastPriority)
{
    for (const bool has_keys : { false, true }) {
        const Json root = document(has_keys);
        const json_t *const minimum =
            at(schemas(root), { "CompletionRequest", "properties", "priority", "minimum" });
        const json_int_t least = json_integer_value(minimum);
        EXPECT_EQ(has_keys ? 0 : -1000, least);
        for (const json_int_t i : { least, least - 1 })
            EXPECT_EQ(i >= least, is_completion("\"priority\":" + std::to_string(i), has_keys))
                << i;
    }
}

TEST(OpenApi, ACompletionHasNoTokensOnlyWithEcho)
{
    const Json root = document();
    const json_t *const body = json_object_get(schemas(root), "CompletionRequest");
    const json_t *const rule = json_array_get(json_object_get(body, "allOf"), 0);
    EXPECT_STREQ(
        "#/components/schemas/CompletionLength", json_string_value(json_object_get(rule, "$ref"))
    );
    const json_t *const length = json_object_get(schemas(root), "CompletionLength");
    EXPECT_TRUE(json_is_true(at(length, { "if", "properties", "echo", "const" })));
    const json_t *const least =
        at(length, { "else", "properties", "max_tokens", "exclusiveMinimum" });
    ASSERT_TRUE(json_is_integer(least));
    const std::string none = "\"max_tokens\":" + std::to_string(json_integer_value(least));
    EXPECT_TRUE(is_completion(none + ",\"echo\":true", false));
    EXPECT_TRUE(is_completion("\"max_tokens\":1", false));
    for (const char *const more : { "", ",\"echo\":false", ",\"echo\":null" })
        EXPECT_FALSE(is_completion(none + more, false)) << more;
}

/* Strings of characters of two bytes: half as many as the document's maxLength. */
TEST(OpenApi, LengthsAreInBytes)
{
    const Json root = document();
    int n_limits = 0;
    for (const auto &[name, body] : bodies) {
        const char *key;
        json_t *schema;
        json_object_foreach(
            (json_t *)at(schemas(root), { name.c_str(), "properties" }), key, schema
        )
        {
            const json_t *const most = json_object_get(schema, "x-weir-max-bytes");
            const json_t *const length = json_object_get(schema, "maxLength");
            EXPECT_EQ(json_integer_value(length), json_integer_value(most)) << key;
            std::string text;
            for (json_int_t i = 0; i < json_integer_value(most); i += 2) text += "\u00e9";
            if (text.empty()) continue;
            const Json fits(json_string(text.c_str())), longer(json_string((text + "a").c_str()));
            try_value(key, body, fits.get(), true);
            try_value(key, body, longer.get(), false);
            n_limits++;
        }
    }
    EXPECT_GT(n_limits, 5);
}

/* Where the document allows no other members, the code takes none. */
TEST(OpenApi, OtherMembersAreRefusedWhereItSaysSo)
{
    const Json root = document();
    size_t n_rows = 0;
    const weir_field_row *const rows = weir_field_rows(&n_rows);
    int n_closed = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].type != WEIR_FIELD_FORM || !(rows[i].bodies & WEIR_BODY_CHAT)) continue;
        const json_t *const form = json_object_get(schemas(root), rows[i].form);
        if (!json_is_false(json_object_get(form, "additionalProperties"))) continue;
        const std::string body = std::string(R"({"messages":[{"role":"user","content":"a"}],")") +
                                 rows[i].key + R"(":{"nonsense":1}})";
        weir_request_limits limits = {};
        weir_openai_request request = {};
        weir_api_error error = {};
        limits.model_name = "m";
        limits.n_slots = 4;
        limits.sampling.top_p = 1;
        EXPECT_NE(
            WEIR_OK,
            weir_openai_request_read(&request, true, body.c_str(), body.size(), &limits, &error)
        ) << body;
        EXPECT_STREQ(rows[i].key, error.param);
        n_closed++;
    }
    EXPECT_EQ(2, n_closed);
    for (const auto &[name, body] : bodies) {
        const json_t *const patterns = at(schemas(root), { name.c_str(), "patternProperties" });
        ASSERT_EQ(1u, json_object_size(patterns)) << name;
        const std::regex closed(*keys_of(patterns).begin());
        EXPECT_TRUE(std::regex_search("kv_nonsense", closed));
        const Json one(json_integer(1));
        try_value("kv_nonsense", body, one.get(), false);
        for (const std::string &field : keys_of(at(schemas(root), { name.c_str(), "properties" })))
            EXPECT_FALSE(std::regex_search(field, closed)) << field;
    }
}

TEST_F(Server, TheDescriptionIsServedWithoutAKeyAndNamesEveryRoute)
{
    weir_server_options options = default_options();
    const char *const key = "one";
    options.keys = &key;
    options.n_keys = 1;
    options.sessions = sessions_ = weir_fake_sessions_open();
    open({ 2, 4096, 100, 0 }, options);
    const std::string reply = request("GET", "/openapi.json", "", "");
    ASSERT_EQ(0u, reply.find("HTTP/1.1 200")) << reply.substr(0, 200);
    const size_t begin = reply.find("\r\n\r\n") + 4;
    json_error_t why;
    const Json root(json_loadb(reply.data() + begin, reply.size() - begin, 0, &why));
    ASSERT_NE(nullptr, root) << why.text;
    const char *path, *method;
    json_t *methods, *operation;
    int n = 0;
    json_object_foreach((json_t *)at(root.get(), { "paths" }), path, methods)
    {
        const std::string real = std::regex_replace(std::string(path), std::regex("\\{id\\}"), "7");
        json_object_foreach(methods, method, operation)
        {
            std::string upper;
            for (const char *c = method; *c != '\0'; c++) upper += (char)toupper(*c);
            const std::string body = upper == "POST" ? "{}" : "";
            const std::string found = request(
                upper, real,
                "Content-Length: " + std::to_string(body.size()) +
                    "\r\nAuthorization: Bearer one\r\n",
                body
            );
            EXPECT_EQ(std::string::npos, found.substr(0, 200).find("no such path")) << path;
            EXPECT_NE(0u, found.find("HTTP/1.1 405")) << method << " " << path;
            EXPECT_NE(nullptr, json_object_get(operation, "summary")) << path;
            const json_t *const reference =
                at(operation, { "requestBody", "content", "application/json", "schema", "$ref" });
            if (reference != nullptr)
                EXPECT_EQ(1u, bodies.count(std::string(json_string_value(reference)).substr(21)))
                    << path;
            n++;
        }
    }
    EXPECT_GT(n, 45);
}

} // namespace
