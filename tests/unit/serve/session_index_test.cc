// The whole server over the demo model: a conversation that memory had no room for is found again
// by what its prompt begins with.
#include "engine/engine_parts.h"
#include "engine/kv/prefix/prefix.h"
#include "engine/session/session_store.h"
#include "tests/unit/serve/talk_fixture.h"

namespace {

using talk_fixture::Reply;

class Recall : public talk_fixture::Talks {
  protected:
    void open(std::vector<const char *> settings)
    {
        settings.push_back(empty_folder("sessions.dir"));
        Talks::open(settings);
    }
    Reply ask(int topic, int key = 0, const std::string &salt = "") const
    {
        const std::string more = salt.empty() ? "" : ",\"cache_salt\":\"" + salt + "\"";
        const Reply reply = talk_fixture::reply_of(
            request("POST", "/v1/chat/completions", talk_fixture::body_of(topic, 70, 8, more), key)
        );
        weir_sessions_settle(weir_engine_sessions(engine_));
        weir_prefix_wait_for_moves(weir_engine_prefix(engine_));
        return reply;
    }
    int64_t kept(const char *field) const
    {
        json_t *const root = ask_json("GET", "/v1/memory", "");
        const int64_t n = json_integer_value(json_object_get(json_object_get(root, "kept"), field));
        json_decref(root);
        return n;
    }
};

TEST_F(Recall, APromptThatWasPushedOutIsFound)
{
    for (const char *const disk : { "memory.disk=0B", "memory.disk=40MiB" }) {
        open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2",
               "memory.snapshots=1500KiB", disk });
        const Reply first = ask(0);
        ASSERT_GT(first.n_prompt, 600);
        ASSERT_FALSE(first.content.empty());
        EXPECT_LT(first.n_cached, 64);
        int n_others = 0;
        while (n_others < 12) (void)ask(++n_others);
        /* On disk there is room for the ends of all sequences, so none is about to go. */
        const bool is_saved = std::string(disk) == "memory.disk=0B";
        ASSERT_EQ(kept("saved_sequences") > 0, is_saved) << disk;
        EXPECT_EQ(kept("found_sequences"), 0);
        const Reply again = ask(0);
        EXPECT_EQ(again.n_prompt, first.n_prompt);
        EXPECT_EQ(again.n_cached, first.n_prompt - 1) << disk;
        EXPECT_EQ(again.content, first.content) << disk;
        EXPECT_EQ(kept("found_sequences"), is_saved) << disk;
        EXPECT_EQ(kept("replaced_sequences"), 0);
        TearDown();
        server_ = nullptr;
        engine_ = nullptr;
    }
}

/* Equal prompts of two keys, and of one key under two salts: what one computed is never given to
 * another, neither from memory nor from a file. */
TEST_F(Recall, KeysAndSaltsNeverShareTexts)
{
    with_keys_ = true;
    open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2" });
    const struct {
        int key;
        const char *salt;
    } owners[] = { { 0, "" }, { 1, "" }, { 0, "a" }, { 1, "a" }, { 0, "b" }, { 1, ":a" } };
    const Reply first = ask(0);
    for (const auto &owner : owners) {
        const bool is_first = owner.key == 0 && owner.salt[0] == '\0';
        const Reply cold = is_first ? first : ask(0, owner.key, owner.salt),
                    warm = ask(0, owner.key, owner.salt);
        EXPECT_EQ(cold.n_cached, 0) << owner.key << owner.salt;
        EXPECT_EQ(warm.n_cached, first.n_prompt - 1) << owner.key << owner.salt;
        EXPECT_EQ(warm.content, first.content);
        for (int i = 0; i < 6; i++)
            (void)ask(1 + i, 0, "other"); /* these push them out to a file */
    }
    ASSERT_GT(kept("saved_sequences"), 0);
    const int64_t found = kept("found_sequences");
    EXPECT_EQ(ask(0, 1, "b").n_cached, 0) << "only the other key has this salt";
    EXPECT_EQ(kept("found_sequences"), found);
    EXPECT_EQ(ask(0, 0, "").n_cached, first.n_prompt - 1) << "its own comes back";
    EXPECT_EQ(kept("found_sequences"), found + 1);
}

/* More conversations in turn than there may be files: each is computed again, and the count says
 * why. */
TEST_F(Recall, MoreThanThereMayBeFilesAreNotFound)
{
    open({ "memory.host=64MiB", "model.context=1280", "batch.max_sequences=2",
           "memory.snapshots=1500KiB", "sessions.limit=2" });
    const Reply first = ask(0);
    for (int i = 1; i < 12; i++) (void)ask(i);
    const Reply again = ask(0);
    EXPECT_LT(again.n_cached, 64);
    EXPECT_EQ(again.content, first.content);
    EXPECT_GT(kept("replaced_sequences"), 0);
    EXPECT_EQ(kept("replaced_sequences"), kept("saved_sequences") - 2);
}

} // namespace
