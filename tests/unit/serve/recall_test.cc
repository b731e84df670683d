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

const char *const keys[] = { "sk-one", "sk-two" };

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
        server.keys = keys;
        server.n_keys = with_keys_ ? 2 : 0;
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
    json_t *ask_json(const std::string &method, const std::string &path, const std::string &body, int key = 0) const
    {
        std::string more = "Content-Length: " + std::to_string(body.size()) + "\r\n";
        if (with_keys_) more += "Authorization: Bearer " + std::string(keys[key]) + "\r\n";
        const std::string text = http::request(weir_server_port(server_), method, path, more, body);
        const size_t      begin = text.find("\r\n\r\n");
        EXPECT_EQ(0u, text.find("HTTP/1.1 200")) << text;
        json_t *const root = begin != std::string::npos ? json_loads(text.c_str() + begin, 0, nullptr) : nullptr;
        EXPECT_NE(root, nullptr) << text;
        return root;
    }
    /* About ten tokens for each of its sentences. */
    Reply ask(int topic, int key = 0, const std::string &salt = "") const
    {
        std::string content;
        for (int i = 0; i < 70; i++)
            content += "Item " + std::to_string(topic) + " number " + std::to_string(i) + " is " +
                       std::to_string((topic * 7919 + i * 104729) % 997) + ". ";
        json_t *const root =
            ask_json("POST", "/v1/chat/completions",
                     R"({"messages":[{"role":"user","content":")" + content + R"("}],"max_tokens":8,"temperature":0,"ignore_eos":true)" +
                         (salt.empty() ? "" : ",\"cache_salt\":\"" + salt + "\"") + "}",
                     key);
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
    bool         with_keys_ = false;
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

/* Equal prompts of two keys, and of one key under two salts: what one computed is never given to another, neither from memory nor from a file. */
TEST_F(Recall, KeysAndSaltsNeverShareTexts)
{
    with_keys_ = true;
    open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2" });
    const struct {
        int         key;
        const char *salt;
    } owners[] = { { 0, "" }, { 1, "" }, { 0, "a" }, { 1, "a" }, { 0, "b" }, { 1, ":a" } };
    const Reply first = ask(0);
    for (const auto &owner : owners) {
        const bool  is_first = owner.key == 0 && owner.salt[0] == '\0';
        const Reply cold = is_first ? first : ask(0, owner.key, owner.salt), warm = ask(0, owner.key, owner.salt);
        EXPECT_EQ(cold.n_cached, 0) << owner.key << owner.salt;
        EXPECT_EQ(warm.n_cached, first.n_prompt - 1) << owner.key << owner.salt;
        EXPECT_EQ(warm.content, first.content);
        for (int i = 0; i < 6; i++) (void)ask(1 + i, 0, "other"); /* these push them out to a file */
    }
    ASSERT_GT(kept("saved_texts"), 0);
    const int64_t found = kept("found_texts");
    EXPECT_EQ(ask(0, 1, "b").n_cached, 0) << "only the other key has this salt";
    EXPECT_EQ(kept("found_texts"), found);
    EXPECT_EQ(ask(0, 0, "").n_cached, first.n_prompt - 1) << "its own comes back";
    EXPECT_EQ(kept("found_texts"), found + 1);
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
