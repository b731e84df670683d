// The whole server over the demo model: files that were computed with other numerics, as clients
// see them.
#include <unistd.h>

#include <filesystem>

#include "engine/session/session_store.h"
#include "offload/caps.h"
#include "tests/unit/serve/engine_fixture.h"

namespace {

const std::string first = "Instruction set levels differ in the last bits of what they compute. "
                          "A conversation goes on with the bits that it began with.";

class Numerics : public engine_fixture::EngineServer {
  protected:
    void SetUp() override
    {
        const weir_caps caps = weir_caps_detect();
        if (!caps.x86_v3) GTEST_SKIP() << "this machine has no other level than v2";
        here_ = caps.x86_v4 ? "kernels.isa=v4" : "kernels.isa=v2";
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/numerics";
        std::filesystem::remove_all(folder_);
        ASSERT_EQ(0, pipe(log_));
        log_fd_ = log_[1];
    }
    void TearDown() override
    {
        stop();
        for (const int fd : log_)
            if (fd >= 0) close(fd);
    }
    void start(const std::string &isa, const std::string &numerics = "same")
    {
        settings_ = { isa,
                      "sessions.numerics=" + numerics,
                      "sessions.dir=" + folder_,
                      "states.dir=" + folder_ + "-states",
                      "memory.host=80MiB",
                      "model.context=1280",
                      "batch.max_sequences=2",
                      "memory.snapshots=1500KiB",
                      "sessions.limit=64" };
        std::vector<const char *> list;
        for (const std::string &setting : settings_) list.push_back(setting.c_str());
        open(list);
    }
    static std::string chat(const std::string &content, const std::string &more = "")
    {
        return R"({"messages":[{"role":"user","content":")" + content +
               R"("}],"max_tokens":8,"temperature":0,"ignore_eos":true)" + more + "}";
    }
    /* A long question, of about ten tokens for each sentence. */
    static std::string topic(int number)
    {
        std::string content;
        for (int i = 0; i < 70; i++)
            content += "Item " + std::to_string(number) + " number " + std::to_string(i) + " is " +
                       std::to_string((number * 7919 + i * 104729) % 997) + ". ";
        return content;
    }
    struct Reply {
        int64_t n_prompt, n_cached;
        std::string numerics, reuse; /* of the usage; of the log */
    };
    Reply ask(const std::string &body)
    {
        json_t *const root = ask_json("POST", "/v1/chat/completions", body);
        json_t *const usage = json_object_get(root, "usage");
        const char *const numerics = json_string_value(json_object_get(usage, "numerics"));
        Reply reply = { json_integer_value(json_object_get(usage, "prompt_tokens")),
                        json_integer_value(json_object_get(
                            json_object_get(usage, "prompt_tokens_details"), "cached_tokens"
                        )),
                        numerics != nullptr ? numerics : "", "" };
        json_decref(root);
        json_t *const line = json_loads(http::read_pipe(log_[0]).c_str(), 0, nullptr);
        const char *const reuse = json_string_value(json_object_get(line, "reuse"));
        reply.reuse = reuse != nullptr ? reuse : "";
        json_decref(line);
        weir_sessions_settle(weir_engine_sessions(engine_));
        return reply;
    }
    std::string said(const std::string &method, const std::string &path, const std::string &body)
    {
        const std::string text = request(method, path, body);
        (void)http::read_pipe(log_[0]);
        return text;
    }
    void refused(const std::string &path, const std::string &body, const char *code)
    {
        const std::string text = said("POST", path, body);
        EXPECT_EQ(text.find("HTTP/1.1 409"), 0u) << text;
        EXPECT_NE(text.find(code), std::string::npos) << text;
        EXPECT_NE(text.find("computed with instruction set v3 (here v"), std::string::npos) << text;
        EXPECT_NE(text.find("set sessions.numerics=any"), std::string::npos) << text;
        EXPECT_EQ(text.find(folder_), std::string::npos) << "no paths for clients: " << text;
    }
    int64_t kept(const char *field)
    {
        const std::string text = said("GET", "/v1/memory", "");
        json_t *const root = json_loads(text.c_str() + text.find("\r\n\r\n"), 0, nullptr);
        const int64_t n = json_integer_value(json_object_get(json_object_get(root, "kept"), field));
        json_decref(root);
        return n;
    }
    std::string here_; /* another level than v3 */
    std::string folder_;
    std::vector<std::string> settings_;
    int log_[2] = { -1, -1 };
};

TEST_F(Numerics, ANamedSessionIs409OrSaid)
{
    const std::string named = R"({"name":"talk"})", session = R"(,"session":"talk")";
    start("kernels.isa=v3");
    const Reply cold = ask(chat(first, session));
    EXPECT_EQ(cold.numerics, "");
    EXPECT_EQ(said("POST", "/v1/sessions", named).find("HTTP/1.1 200"), 0u);
    stop();

    start(here_);
    refused("/v1/sessions/restore", named, "session_unusable");
    refused("/v1/chat/completions", chat(first, session), "session_unusable");
    refused("/v1/chat/completions", chat(first, session + ",\"stream\":true"), "session_unusable");
    EXPECT_EQ(said("GET", "/v1/sessions", "").find("\"problem\":null"), std::string::npos);
    const Reply unnamed = ask(chat(first));
    EXPECT_EQ(unnamed.n_cached, 0) << "the prompt alone is computed";
    EXPECT_EQ(unnamed.numerics, "");
    EXPECT_EQ(
        said("POST", "/v1/chat/completions", chat(first)).find("x-weir-numerics"), std::string::npos
    );
    EXPECT_EQ(said("DELETE", "/v1/sessions/talk", "").find("HTTP/1.1 200"), 0u);
    EXPECT_EQ(ask(chat(first, session)).numerics, "") << "without the file the name is free";
    stop();
}

TEST_F(Numerics, WithAnyANamedSessionIsContinuedAndSaid)
{
    const std::string named = R"({"name":"talk"})", session = R"(,"session":"talk")";
    start("kernels.isa=v3");
    const Reply cold = ask(chat(first, session));
    EXPECT_EQ(said("POST", "/v1/sessions", named).find("HTTP/1.1 200"), 0u);
    stop();
    for (const bool by_name : { false, true }) {
        start(here_, "any");
        if (!by_name) {
            const std::string restored = said("POST", "/v1/sessions/restore", named);
            EXPECT_EQ(restored.find("HTTP/1.1 200"), 0u) << restored;
            EXPECT_NE(restored.find("\"numerics\":\"instruction set v3"), std::string::npos)
                << restored;
        }
        const Reply warm = ask(chat(first, by_name ? session : ""));
        EXPECT_EQ(warm.n_cached, cold.n_prompt - 1) << warm.reuse;
        EXPECT_EQ(warm.numerics.find("instruction set v3, device cpu"), 0u) << warm.numerics;
        const std::string stream = said(
            "POST", "/v1/chat/completions",
            chat(first, R"(,"stream":true,"stream_options":{"include_usage":true})")
        );
        EXPECT_NE(stream.find("x-weir-numerics: instruction set v3, "), std::string::npos)
            << stream;
        EXPECT_NE(stream.find("\"numerics\":\"instruction set v3, "), std::string::npos) << stream;
        EXPECT_EQ(ask(chat("Something else.")).numerics, "");
        stop();
    }
}

/* An automatic file, which a prompt finds by its beginning: not used, and the log says why. */
TEST_F(Numerics, AnAutomaticFileIsLeftOrSaid)
{
    start("kernels.isa=v3");
    const Reply cold = ask(chat(topic(0)));
    ASSERT_GT(cold.n_prompt, 600);
    for (int i = 1; i < 16 && kept("saved_sequences") < 3; i++) (void)ask(chat(topic(i)));
    ASSERT_GT(kept("saved_sequences"), 0);
    stop();

    start(here_, "any");
    const Reply found = ask(chat(topic(0)));
    EXPECT_EQ(found.n_cached, cold.n_prompt - 1) << found.reuse;
    EXPECT_EQ(found.numerics.find("instruction set v3"), 0u) << found.numerics;
    EXPECT_EQ(kept("found_sequences"), 1);
    EXPECT_EQ(ask(chat(topic(0))).n_cached, cold.n_prompt - 1);
    EXPECT_EQ(kept("found_sequences"), 1) << "it is in memory now";
    stop();

    start(here_);
    const Reply left = ask(chat(topic(0)));
    EXPECT_LT(left.n_cached, 64);
    EXPECT_EQ(left.numerics, "");
    EXPECT_NE(left.reuse.find("other numerics, which sessions.numerics refuses"), std::string::npos)
        << left.reuse;
    EXPECT_EQ(kept("found_sequences"), 0);
    const Reply again = ask(chat(topic(0)));
    EXPECT_EQ(again.n_cached, cold.n_prompt - 1) << "what was computed here is used";
    EXPECT_EQ(again.reuse.find("numerics"), std::string::npos) << again.reuse;
    EXPECT_EQ(ask(chat(topic(77))).reuse.find("numerics"), std::string::npos);
    stop();
}

/* A state that equals its text is computed again; the same document gets a state of its own. */
TEST_F(Numerics, AStateIsComputedOrSaid)
{
    const std::string document = R"({"label":"Paper","prompt":")" + first + R"("})",
                      asked = R"({"prompt":" What follows?","state":"paper","max_tokens":4,)"
                              R"("temperature":0})";
    std::filesystem::remove_all(folder_ + "-states");
    start("kernels.isa=v3");
    EXPECT_NE(said("POST", "/v1/states", document).find("\"id\":\"paper\""), std::string::npos);
    stop();

    start(here_, "any");
    const std::string any = said("POST", "/v1/completions", asked);
    EXPECT_NE(any.find("\"numerics\":\"instruction set v3"), std::string::npos) << any;
    EXPECT_NE(said("POST", "/v1/states", document).find("\"id\":\"paper\""), std::string::npos);
    stop();

    start(here_);
    const std::string same = said("POST", "/v1/completions", asked);
    EXPECT_EQ(same.find("HTTP/1.1 200"), 0u) << same;
    EXPECT_NE(same.find("\"cached_tokens\":0"), std::string::npos) << same;
    EXPECT_EQ(same.find("numerics"), std::string::npos) << same;
    for (int i = 0; i < 2; i++)
        EXPECT_NE(
            said("POST", "/v1/states", document).find("\"id\":\"paper-2\""), std::string::npos
        ) << "its own, once";
    stop();
}

} // namespace
