// Ollama's endpoints over the fake service: lines, names, loading, errors.
#include <jansson.h>

#include "tests/unit/serve/server_fixture.h"

namespace {

class Ollama : public Server {
  protected:
    /* The lines of a body, each parsed. The caller frees them. */
    std::vector<json_t *> lines_of(const std::string &reply)
    {
        std::vector<json_t *> lines;
        std::string body = reply.substr(reply.find("\r\n\r\n") + 4);
        size_t at = 0;
        for (size_t end = body.find('\n'); end != std::string::npos; end = body.find('\n', at)) {
            const std::string line = body.substr(at, end - at);
            at = end + 1;
            if (line.find('{') != 0) continue; /* sizes of chunks */
            json_t *const root = json_loads(line.c_str(), JSON_ALLOW_NUL, nullptr);
            EXPECT_NE(root, nullptr) << line;
            if (root != nullptr) lines.push_back(root);
        }
        return lines;
    }
    static std::string text(const json_t *object, const char *key)
    {
        const char *const value = json_string_value(json_object_get(object, key));
        return value != nullptr ? value : "";
    }
};

const char *const chat =
    R"({"model":"fake","messages":[{"role":"user","content":"a"}],"think":false,)"
    R"("options":{"num_predict":6,"seed":5})";

TEST_F(Ollama, LinesAreTheDefaultAndHoldTheSameText)
{
    open({ 2, 4096, 0, 0 });
    const std::string reply = ask("/api/chat", std::string(chat) + "}"),
                      plain = ask("/api/chat", std::string(chat) + R"(,"stream":false})");
    EXPECT_NE(reply.find("Content-Type: application/x-ndjson"), std::string::npos);
    EXPECT_NE(plain.find("Content-Type: application/json"), std::string::npos);
    const auto lines = lines_of(reply);
    ASSERT_GE(lines.size(), 2u);
    std::string joined;
    for (size_t i = 0; i < lines.size(); i++) {
        EXPECT_EQ(json_is_true(json_object_get(lines[i], "done")), i + 1 == lines.size());
        EXPECT_EQ(text(lines[i], "model"), "fake");
        joined += text(json_object_get(lines[i], "message"), "content");
    }
    const json_t *const last = lines.back();
    EXPECT_EQ(text(last, "done_reason"), "length");
    EXPECT_EQ(json_integer_value(json_object_get(last, "eval_count")), 6);
    EXPECT_GT(json_integer_value(json_object_get(last, "prompt_eval_count")), 0);
    json_t *const whole = json_loads(plain.c_str() + plain.find("\r\n\r\n") + 4, 0, nullptr);
    ASSERT_NE(whole, nullptr) << plain;
    EXPECT_EQ(text(json_object_get(whole, "message"), "content"), joined);
    EXPECT_TRUE(json_is_true(json_object_get(whole, "done")));
    json_decref(whole);
    for (json_t *const line : lines) json_decref(line);
}

TEST_F(Ollama, GenerateIsAChatOfOneMessageUnlessRaw)
{
    open({ 2, 4096, 0, 0 });
    const std::string begin =
        R"({"model":"fake:latest","stream":false,"options":{"num_predict":2},"prompt":"a b")";
    const auto prompt_tokens = [&](const std::string &more) {
        const std::string reply = ask("/api/generate", begin + more + "}");
        json_t *const root = json_loads(reply.c_str() + reply.find("\r\n\r\n") + 4, 0, nullptr);
        EXPECT_TRUE(json_is_string(json_object_get(root, "response"))) << reply;
        EXPECT_EQ(text(root, "model"), "fake:latest");
        const long long n = json_integer_value(json_object_get(root, "prompt_eval_count"));
        json_decref(root);
        return n;
    };
    const long long raw = prompt_tokens(R"(,"raw":true)"), one = prompt_tokens("");
    EXPECT_EQ(raw, 2);
    EXPECT_GT(one, raw);
    EXPECT_GT(prompt_tokens(R"(,"system":"You mill.")"), one);
    const std::string refused =
        ask("/api/generate", begin + R"(,"raw":true,"system":"You mill."})");
    EXPECT_EQ(refused.find("HTTP/1.1 400"), 0u) << refused;
}

TEST_F(Ollama, AnEmptyRequestLoads)
{
    open({ 2, 4096, 0, 0 });
    const std::string loaded = ask("/api/generate", R"({"model":"fake","stream":false})"),
                      lines = ask("/api/chat", R"({"model":"fake","messages":[]})"),
                      unloaded =
                          ask("/api/generate", R"({"model":"fake","keep_alive":0,"prompt":""})");
    EXPECT_NE(loaded.find("\"done_reason\":\"load\""), std::string::npos) << loaded;
    EXPECT_NE(loaded.find("Content-Type: application/json"), std::string::npos);
    EXPECT_NE(lines.find("\"done_reason\":\"load\""), std::string::npos) << lines;
    EXPECT_NE(lines.find("Content-Type: application/x-ndjson"), std::string::npos);
    EXPECT_NE(unloaded.find("\"done_reason\":\"unload\""), std::string::npos) << unloaded;
}

TEST_F(Ollama, ErrorsAreTexts)
{
    weir_server_options options = default_options();
    const char *const key = "one";
    options.keys = &key;
    options.n_keys = 1;
    open({ 2, 64, 0, 0 }, options);
    const auto post_as = [&](const char *name, const std::string &path, const std::string &body) {
        return request(
            "POST", path,
            "Content-Length: " + std::to_string(body.size()) + "\r\nAuthorization: Bearer " + name +
                "\r\n",
            body
        );
    };
    std::string words;
    for (int i = 0; i < 100; i++) words += "river ";
    const struct {
        const char *path;
        std::string body, status;
    } rows[] = {
        { "/api/chat", R"({"model":"other","messages":[]})", "404" },
        { "/api/show", R"({"model":"fake2"})", "404" },
        { "/api/chat", R"({"messages":[{"role":"user","content":"a"}]})", "400" },
        { "/api/chat", R"({"model":"fake","messages":5})", "400" },
        { "/api/chat",
          R"({"model":"fake","messages":[{"role":"user","content":")" + words + "\"}]}", "400" },
        { "/api/chat",
          R"({"model":"fake","messages":[{"role":"user","content":"a","images":["x"]}]})", "400" },
        { "/api/generate", R"({"model":"fake","prompt":"a","template":"x"})", "400" },
        { "/api/generate", R"({"model":"fake","prompt":"a","context":[1]})", "400" },
        { "/api/generate", R"({"model":"fake","prompt":"a","options":{"mirostat":2}})", "400" },
        { "/api/pull", R"({"model":"x"})", "403" },
        { "/api/nothing", "{}", "404" },
        { "/api/chat", "{", "400" },
    };
    for (const auto &row : rows) {
        const std::string reply = post_as("one", row.path, row.body);
        EXPECT_EQ(reply.find("HTTP/1.1 " + row.status), 0u) << row.body << reply;
        EXPECT_NE(reply.find("{\"error\":\""), std::string::npos) << reply;
    }
    const std::string reply = post_as("two", "/api/chat", "{}");
    EXPECT_EQ(reply.find("HTTP/1.1 401"), 0u) << reply;
    EXPECT_NE(reply.find("{\"error\":\""), std::string::npos) << reply;
}

TEST_F(Ollama, AStreamThatFailsSaysSo)
{
    open({ 2, 4096, 0, 3 });
    const std::string reply = ask("/api/chat", std::string(chat) + "}");
    EXPECT_EQ(reply.find("HTTP/1.1 200"), 0u) << reply;
    EXPECT_NE(reply.find("{\"error\":\""), std::string::npos) << reply;
    EXPECT_EQ(reply.find("\"done\":true"), std::string::npos);
}

TEST_F(Ollama, TheModelIsListed)
{
    open({ 2, 4096, 0, 0 });
    for (const char *const path : { "/api/tags", "/api/ps" }) {
        const std::string reply = get(path);
        EXPECT_NE(reply.find("\"name\":\"fake\""), std::string::npos) << reply;
        EXPECT_NE(reply.find("\"digest\":\""), std::string::npos);
    }
    EXPECT_NE(get("/api/version").find("\"version\":\""), std::string::npos);
    const std::string shown = ask("/api/show", R"({"model":"fake"})");
    EXPECT_NE(shown.find("\"capabilities\":[\"completion\""), std::string::npos) << shown;
    EXPECT_NE(shown.find("\"general.architecture\""), std::string::npos);
    EXPECT_NE(ask("/api/show", R"({"name":"fake"})").find("HTTP/1.1 200"), std::string::npos);
}

} // namespace
