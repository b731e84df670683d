// The whole server over the demo model: a conversation that memory had no room for is found again by what its prompt begins with.
#include <jansson.h>

#include <filesystem>

#include "engine/schedule/session_store.h"
#include "engine/serve/server.h"
#include "engine/weir.h"
#include "tests/unit/serve/http.h"

namespace {

struct Reply {
    std::string content;
    int64_t     n_prompt, n_cached;
};

class Recall : public testing::Test {
  protected:
    void open(const std::vector<const char *> &settings)
    {
        static weir_config config;
        weir_error         error = {};
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/recall";
        std::filesystem::remove_all(folder_);
        weir_config_default(&config);
        snprintf(config.model.path, sizeof config.model.path, "models/weir-demo");
        snprintf(config.sessions.dir, sizeof config.sessions.dir, "%s", folder_.c_str());
        for (const char *const setting : settings) ASSERT_EQ(weir_config_set(&config, setting, &error), WEIR_OK) << error.text;
        const weir_engine_options options = { &config, true, true, nullptr, nullptr };
        ASSERT_EQ(weir_engine_open(&engine_, &options, &error), WEIR_OK) << error.text;
        weir_server_options server = {};
        server.log_fd = -1;
        server.sampling = weir_sampling_default();
        server.ledger = weir_engine_ledger(engine_);
        server.service = weir_engine_service(engine_);
        server.sessions = weir_engine_sessions(engine_);
        server.tokenizer = weir_engine_tokenizer(engine_);
        server.chat = weir_engine_chat(engine_);
        ASSERT_EQ(weir_server_open(&server_, &server, &error), WEIR_OK) << error.text;
        ASSERT_EQ(weir_server_start(server_, &error), WEIR_OK) << error.text;
    }
    void TearDown() override
    {
        weir_server_close(server_);
        weir_engine_close(engine_);
    }
    json_t *ask_json(const std::string &method, const std::string &path, const std::string &body) const
    {
        const int         port = weir_server_port(server_);
        const std::string text = method == "GET" ? http::request(port, method, path, "", "") : http::ask(port, path, body);
        const size_t      begin = text.find("\r\n\r\n");
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        json_t *const root = begin != std::string::npos ? json_loads(text.c_str() + begin, 0, nullptr) : nullptr;
        EXPECT_NE(root, nullptr) << text;
        return root;
    }
    /* About ten tokens for each of its sentences. */
    Reply ask(int topic) const
    {
        std::string content;
        for (int i = 0; i < 70; i++)
            content += "Item " + std::to_string(topic) + " number " + std::to_string(i) + " is " +
                       std::to_string((topic * 7919 + i * 104729) % 997) + ". ";
        json_t *const root =
            ask_json("POST", "/v1/chat/completions",
                     R"({"messages":[{"role":"user","content":")" + content + R"("}],"max_tokens":8,"temperature":0,"ignore_eos":true})");
        json_t *const usage = json_object_get(root, "usage");
        const char   *answer =
            json_string_value(json_object_get(json_object_get(json_array_get(json_object_get(root, "choices"), 0), "message"), "content"));
        const Reply reply = { answer != nullptr ? answer : "", json_integer_value(json_object_get(usage, "prompt_tokens")),
                              json_integer_value(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens")) };
        json_decref(root);
        weir_sessions_settle(weir_engine_sessions(engine_));
        return reply;
    }
    int64_t kept(const char *field) const
    {
        json_t *const root = ask_json("GET", "/v1/memory", "");
        const int64_t n = json_integer_value(json_object_get(json_object_get(root, "kept"), field));
        json_decref(root);
        return n;
    }
    std::string  folder_;
    weir_engine *engine_ = nullptr;
    weir_server *server_ = nullptr;
};

TEST_F(Recall, APromptThatWasPushedOutIsFound)
{
    for (const char *const disk : { "memory.disk=0B", "memory.disk=40MiB" }) {
        open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2", "memory.snapshots=1500KiB", disk });
        const Reply first = ask(0);
        ASSERT_GT(first.n_prompt, 600);
        ASSERT_FALSE(first.content.empty());
        EXPECT_LT(first.n_cached, 64);
        int n_others = 0;
        while (n_others < 12) (void)ask(++n_others);
        ASSERT_GT(kept("saved_texts"), 0);
        EXPECT_EQ(kept("found_texts"), 0);
        const Reply again = ask(0);
        EXPECT_EQ(again.n_prompt, first.n_prompt);
        EXPECT_EQ(again.n_cached, first.n_prompt - 1) << disk;
        EXPECT_EQ(again.content, first.content) << disk;
        EXPECT_EQ(kept("found_texts"), 1) << disk;
        EXPECT_EQ(kept("replaced_texts"), 0);
        TearDown();
        server_ = nullptr;
        engine_ = nullptr;
    }
}

/* More conversations in turn than there may be files: each is computed again, and the count says why. */
TEST_F(Recall, MoreThanThereMayBeFilesAreNotFound)
{
    open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2", "memory.snapshots=1500KiB", "sessions.limit=2" });
    const Reply first = ask(0);
    for (int i = 1; i < 12; i++) (void)ask(i);
    const Reply again = ask(0);
    EXPECT_LT(again.n_cached, 64);
    EXPECT_EQ(again.content, first.content);
    EXPECT_GT(kept("replaced_texts"), 0);
    EXPECT_EQ(kept("replaced_texts"), kept("saved_texts") - 2);
}

} // namespace
