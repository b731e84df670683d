// Sequences that the tree keeps, as wholes: which will be dropped and are in no file, their names,
// their order, and states that are held.
#include "tests/unit/kv/prefix_fixture.h"

namespace {

using prefix::digest;
using prefix::Prefix;
using prefix::Tokens;

TEST_P(Prefix, TellsWhatWillBeDroppedAndIsInNoFile)
{
    open(4 * 20, 100, 8); // a block is 4 pages: 64 tokens in all layers and heads
    keep(tokens(320, 1), nullptr);
    keep(tokens(320, 2), "mine");
    keep(tokens(128, 3), nullptr);
    weir_kv_sequence s = sequence({});
    char salt[WEIR_PREFIX_SALT + 1];
    const auto finds = [&](int64_t n_pages, int32_t least) {
        const weir_prefix_wanted wanted = { others(n_pages), 0, 0 };
        return weir_prefix_next_victim(prefix_, &wanted, least, &s, salt) == WEIR_VICTIM_FOUND;
    };
    ASSERT_EQ(weir_kv_store_free_pages(store_), 4 * 8);
    EXPECT_FALSE(finds(4 * 8, 192)) << "these are free";
    EXPECT_FALSE(finds(4 * 20, 321)) << "no sequence is that long";
    ASSERT_TRUE(finds(4 * 9, 192));
    EXPECT_EQ(Tokens(s.tokens, s.tokens + s.n_tokens), tokens(320, 1));
    EXPECT_STREQ(salt, WEIR_PREFIX_NO_SALT);
    EXPECT_EQ(weir_prefix_match_length(prefix_, s.tokens, s.n_tokens, salt), 320);
    EXPECT_EQ(weir_prefix_match_length(prefix_, s.tokens, s.n_tokens, "mine"), 0);
    ASSERT_EQ(weir_prefix_share(prefix_, &s, salt), 320);
    sound();
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 4 * 7) << "it is held";
    weir_prefix_mark_saved(prefix_, s.tokens, 320, 320, salt);
    weir_kv_sequence_clear(&s);
    sound();
    EXPECT_FALSE(finds(4 * 13, 192)) << "five blocks go before the next sequence";
    ASSERT_TRUE(finds(4 * 14, 192));
    EXPECT_EQ(Tokens(s.tokens, s.tokens + s.n_tokens), tokens(320, 2));
    EXPECT_STREQ(salt, "mine");
    weir_kv_sequence_clear(&s);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(4 * 13)))
        << "holding was no use of it: it goes first";
    EXPECT_EQ(take(tokens(320, 1), nullptr).n_rows, 0);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).dropped_tokens, 320);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).unsaved_tokens, 0);

    // What was saved and goes on: the new tokens alone count. What another sequence shares is not
    // lost with this one.
    keep(tokens(320, 2), "mine");
    weir_prefix_mark_saved(prefix_, tokens(320, 2).data(), 320, 320, "mine");
    keep(tokens(448, 2), "mine");
    EXPECT_FALSE(finds(4 * 20, 129));
    EXPECT_TRUE(finds(4 * 20, 128));
    EXPECT_EQ(s.n_tokens, 128) << "the oldest first";
    weir_kv_sequence_clear(&s);
    weir_prefix_mark_saved(prefix_, tokens(128, 3).data(), 128, 0, nullptr);
    ASSERT_TRUE(finds(4 * 20, 128));
    EXPECT_EQ(s.n_tokens, 448);
    weir_kv_sequence_clear(&s);
    Tokens other = tokens(448, 2);
    for (size_t i = 384; i < other.size(); i++) other[i] = -1;
    keep(other, "mine");
    EXPECT_FALSE(finds(4 * 20, 128));
    weir_kv_sequence_close(&s);
}

TEST_P(Prefix, NamesStandForSequencesAndGoWithThem)
{
    open(64, 12, 12);
    if (GetParam().is_paged) GTEST_SKIP() << "its sequences end within pages";
    const Tokens a = tokens(100, 1), b = tokens(200, 2);
    const auto name = [&](const Tokens &of, const char *what) {
        weir_kv_sequence s = sequence(of);
        (void)weir_prefix_match(prefix_, &s, nullptr, s.n_tokens);
        weir_prefix_name(prefix_, &s, nullptr, what);
        weir_kv_sequence_close(&s);
        sound();
    };
    const auto named = [&](const char *what) {
        weir_kv_sequence s = sequence({});
        char salt[WEIR_PREFIX_SALT + 1] = "";
        const bool is = weir_prefix_named(prefix_, what, &s, salt);
        EXPECT_EQ(is, weir_prefix_has_name(prefix_, what));
        const Tokens found(s.tokens, s.tokens + (is ? s.n_tokens : 0));
        if (is) EXPECT_STREQ(salt, WEIR_PREFIX_NO_SALT);
        s.n_tokens = 0;
        weir_kv_sequence_close(&s);
        return found;
    };
    keep(a, nullptr);
    keep(b, nullptr);
    EXPECT_EQ(named("x"), Tokens());
    name(a, "x");
    EXPECT_EQ(named("x"), a);
    name(b, "y");
    name(b, "x");
    EXPECT_EQ(named("x"), b);
    EXPECT_EQ(named("y"), b) << "a sequence may have two names";
    Tokens longer = a;
    name(a, "x");
    for (int i = 0; i < 20; i++) longer.push_back(7);
    keep(longer, nullptr);
    EXPECT_EQ(named("x"), a) << "the run that held its end became longer";
    for (int i = 0; i < WEIR_PREFIX_NAMES; i++) name(b, ("n" + std::to_string(i)).c_str());
    EXPECT_EQ(named("x"), Tokens()) << "too many names";
    EXPECT_EQ(named("n63"), b);
    name(b, "");
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(n_pages_)));
    EXPECT_EQ(named("n63"), Tokens());
    sound();
}

TEST_P(Prefix, SequencesComeOutMostRecentFirst)
{
    open(64, 12, 12);
    if (GetParam().is_paged) GTEST_SKIP() << "its sequences end within pages";
    const Tokens a = tokens(100, 1), b = tokens(130, 2), c = tokens(64, 3);
    keep(a, "s");
    keep(b, nullptr);
    keep(c, "t");
    (void)take(a, "s");
    const std::vector<std::pair<Tokens, std::string>> expected = { { a, "s" },
                                                                   { c, "t" },
                                                                   { b, WEIR_PREFIX_NO_SALT } };
    weir_prefix_cursor cursor = {};
    weir_kv_sequence s = sequence({});
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    for (const auto &one : expected) {
        ASSERT_TRUE(weir_prefix_next(prefix_, &cursor, &s, salt, name));
        EXPECT_EQ(Tokens(s.tokens, s.tokens + s.n_tokens), one.first);
        EXPECT_EQ(salt, one.second);
        EXPECT_STREQ(name, "");
        EXPECT_EQ(
            weir_prefix_match(prefix_, &s, salt, s.n_tokens).n_rows, (int32_t)one.first.size()
        ) << "a salt that came out goes in";
        weir_kv_sequence_clear(&s);
    }
    EXPECT_FALSE(weir_prefix_next(prefix_, &cursor, &s, salt, name));
    weir_kv_sequence_close(&s);
}

TEST_P(Prefix, PinnedStatesAreNotTaken)
{
    open(64, 12, 4);
    if (GetParam().is_paged) GTEST_SKIP() << "its sequences end within pages";
    if (!GetParam().has_states) return;
    const Tokens a = tokens(200, 1);
    keep(a, nullptr, { 50, 120 });
    weir_kv_sequence s = sequence(a);
    ASSERT_EQ(weir_prefix_match(prefix_, &s, nullptr, 200).n_rows, 200);
    weir_prefix_snapshot marks[4];
    ASSERT_EQ(weir_prefix_pin(prefix_, &s, nullptr, marks, 2), 2) << "the last two";
    EXPECT_EQ(marks[0].at, 120);
    EXPECT_EQ(marks[1].at, 200);
    for (const weir_prefix_snapshot &mark : { marks[0], marks[1] }) {
        uint64_t value;
        memcpy(&value, mark.state, sizeof value);
        EXPECT_EQ(value, digest(a.data(), mark.at));
    }
    float *lent[2];
    for (float *&state : lent)
        ASSERT_NE(state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0), nullptr);
    EXPECT_EQ(weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0), nullptr)
        << "the other two are pinned";
    for (float *const state : lent) weir_prefix_release_snapshot(prefix_, state);
    weir_prefix_unpin(prefix_, marks, 2);
    for (float *&state : lent)
        ASSERT_NE(state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0), nullptr);
    float *const third = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
    EXPECT_NE(third, nullptr);
    weir_prefix_release_snapshot(prefix_, third);
    for (float *const state : lent) weir_prefix_release_snapshot(prefix_, state);
    weir_kv_sequence_close(&s);
    sound();
}

// A pinned state may be on a run of another sequence, whose pages have no holder: it goes, the
// state stays as long as it is pinned.
TEST_P(Prefix, PinnedStatesOutliveTheirSequence)
{
    open(4 * 8, 20, 4);
    if (GetParam().is_paged) GTEST_SKIP() << "its sequences end within pages";
    if (!GetParam().has_states) return;
    const Tokens a = tokens(200, 1);
    Tokens other = tokens(128, 2);
    std::copy(a.begin(), a.begin() + 30, other.begin());
    keep(other, nullptr, { 30 });
    keep(a, nullptr, {});
    weir_kv_sequence s = sequence(a);
    ASSERT_EQ(weir_prefix_match(prefix_, &s, nullptr, 200).n_rows, 200);
    weir_prefix_snapshot marks[4];
    ASSERT_EQ(weir_prefix_pin(prefix_, &s, nullptr, marks, 4), 2);
    ASSERT_EQ(marks[0].at, 30);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(4 * 4)));
    sound();
    std::vector<float *> lent;
    for (float *state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
         state != nullptr; state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0))
        lent.push_back(state);
    EXPECT_EQ(lent.size(), 2u) << "two are pinned";
    for (float *const state : lent) memset(state, 0, state_bytes);
    uint64_t value;
    memcpy(&value, marks[0].state, sizeof value);
    EXPECT_EQ(value, digest(a.data(), 30));
    weir_prefix_unpin(prefix_, marks, 2);
    float *const freed = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
    EXPECT_EQ(freed, marks[0].state);
    lent.push_back(freed);
    for (float *const state : lent) weir_prefix_release_snapshot(prefix_, state);
    weir_kv_sequence_close(&s);
    sound();
}

// A sequence whose file is gone is saved again, but only after it was used again.
TEST_P(Prefix, ASequenceWithoutItsFileIsEndangeredOnceItIsUsed)
{
    open(4 * 20, 100, 8);
    const Tokens own = tokens(320, 1);
    weir_kv_sequence s = sequence({});
    char salt[WEIR_PREFIX_SALT + 1];
    const auto is_endangered = [&] {
        const weir_prefix_wanted wanted = { others(4 * 20), 1, 0 };
        const auto victim = weir_prefix_next_victim(prefix_, &wanted, 64, &s, salt);
        weir_kv_sequence_clear(&s);
        return victim == WEIR_VICTIM_FOUND;
    };
    keep(own, nullptr);
    ASSERT_TRUE(is_endangered());
    weir_prefix_mark_saved(prefix_, own.data(), 320, 320, nullptr);
    EXPECT_FALSE(is_endangered());
    weir_prefix_mark_unsaved(prefix_, own.data(), 320, "another salt");
    weir_prefix_mark_unsaved(prefix_, own.data(), 320, nullptr);
    sound();
    EXPECT_FALSE(is_endangered()) << "it was not used since";
    keep(own, nullptr);
    EXPECT_TRUE(is_endangered());
    weir_prefix_mark_saved(prefix_, own.data(), 320, 320, nullptr);
    EXPECT_FALSE(is_endangered());
    keep(own, nullptr);
    EXPECT_FALSE(is_endangered()) << "its file is there";
    weir_prefix_mark_unsaved(prefix_, own.data(), 320, nullptr);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(n_pages_)));
    EXPECT_EQ(weir_prefix_stats_of(prefix_).unsaved_tokens, 320) << "dropped, and in no file";
    weir_kv_sequence_close(&s);
}

INSTANTIATE_TEST_SUITE_P(Models, Prefix, PREFIX_KINDS, prefix::kind_name);

} // namespace
