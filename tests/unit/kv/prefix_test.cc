// The tree of cached sequences: what is found, shared, given up and counted.
#include "tests/unit/kv/prefix_fixture.h"
#include "tests/unit/kv/prefix_reference.h"

namespace {

using prefix::Prefix;
using prefix::Tokens;

/* Without memory for its table a sequence gets nothing. */
TEST_P(Prefix, AMatchNeedsMemoryForItsTable)
{
    open(64, 12, 12, 0, 0, WEIR_KV_TABLE_UNIT);
    keep(tokens(128, 1), nullptr);
    weir_kv_sequence other = sequence(tokens(64, 2)), s = sequence(tokens(128, 1));
    ASSERT_TRUE(compute(&other, 64));
    EXPECT_EQ(weir_kv_store_free(store_).tables, 0);
    const weir_prefix_hit hit = weir_prefix_match(prefix_, &s, nullptr, 128);
    EXPECT_EQ(hit.n_rows, 0);
    EXPECT_EQ(hit.n_matched, 128);
    EXPECT_STREQ(hit.reason, "there is no memory for its page table");
    EXPECT_EQ(s.n_computed, 0);
    EXPECT_EQ(weir_prefix_share(prefix_, &s, nullptr), 0);
    weir_kv_sequence_close(&other);
    EXPECT_EQ(weir_prefix_match(prefix_, &s, nullptr, 128).n_rows, 128);
    weir_kv_sequence_close(&s);
    sound();
}

TEST_P(Prefix, FindsASequenceAgainAndWhatContinuesIt)
{
    open(400, 100, 8);
    keep(tokens(150), nullptr);
    EXPECT_EQ(take(tokens(150), nullptr).n_rows, at_end(150));
    EXPECT_EQ(take(tokens(300), nullptr).n_rows, at_end(150));
    EXPECT_EQ(take(tokens(150), nullptr, 149).n_rows, has_states() ? 0 : cut(149))
        << "one token must stay to compute";
    EXPECT_EQ(take(tokens(150, 2), nullptr).n_rows, 0);
    Tokens other = tokens(150);
    other[100] = -5;
    const weir_prefix_hit hit = take(other, nullptr);
    EXPECT_EQ(hit.n_matched, 100);
    EXPECT_EQ(hit.n_rows, has_states() ? 0 : cut(100));
    EXPECT_STRNE(hit.reason, "");
}

TEST_P(Prefix, ContinuesAtTheDeepestState)
{
    open(400, 100, 8);
    keep(tokens(200), nullptr, { 10, 63, 64, 65, 199 });
    for (const int32_t end : { 9, 10, 62, 63, 64, 65, 66, 198, 199 }) {
        const int32_t paged = end >= 64 ? 64 : 0;
        const int32_t hybrid = is_paged()   ? paged
                               : end >= 199 ? 199
                               : end >= 65  ? 65
                               : end >= 64  ? 64
                               : end >= 63  ? 63
                               : end >= 10  ? 10
                                            : 0;
        EXPECT_EQ(take(tokens(300), nullptr, end).n_rows, has_states() ? hybrid : cut(end)) << end;
    }
}

TEST_P(Prefix, SaysThatPagesAreContinuedWhole)
{
    open(400, 100, 8);
    if (!is_paged() || has_states()) GTEST_SKIP() << "of paged sequences without states";
    keep(tokens(150), nullptr);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_tokens, 128);
    EXPECT_STREQ(
        take(tokens(300), nullptr, 100).reason,
        "this KV format continues sequences at multiples of 64 tokens"
    );
    EXPECT_STREQ(
        take(tokens(60), nullptr).reason,
        "this KV format continues sequences at multiples of 64 tokens"
    );
    EXPECT_STREQ(
        take(tokens(300), nullptr).reason, "the nearest cached sequence ends or differs here"
    );
}

TEST_P(Prefix, SaltsSeparate)
{
    open(400, 100, 8);
    keep(tokens(100), "one");
    EXPECT_EQ(take(tokens(100), "two").n_rows, 0);
    EXPECT_EQ(take(tokens(100), nullptr).n_rows, 0);
    EXPECT_EQ(take(tokens(100), "").n_rows, 0);
    EXPECT_EQ(take(tokens(100), "one").n_rows, at_end(100));
    keep(tokens(100), std::string(WEIR_PREFIX_SALT + 1, 'x').c_str());
    EXPECT_EQ(take(tokens(100), std::string(WEIR_PREFIX_SALT + 1, 'x').c_str()).n_rows, 0)
        << "too long: not kept";
}

// A sequence that continues a cached sequence writes into its own copy of the last page.
TEST_P(Prefix, WritersGetTheirOwnPage)
{
    open(400, 100, 8);
    keep(tokens(100), nullptr);
    weir_kv_sequence a = sequence(tokens(130)), b = sequence(tokens(130));
    for (int32_t i = 100; i < 130; i++) b.tokens[i] = -i;
    EXPECT_EQ(weir_prefix_match(prefix_, &a, nullptr, 130).n_rows, at_end(100));
    EXPECT_EQ(weir_prefix_match(prefix_, &b, nullptr, 130).n_rows, at_end(100));
    ASSERT_TRUE(compute(&a, 130));
    ASSERT_TRUE(compute(&b, 130));
    expect_right(a);
    expect_right(b);
    EXPECT_EQ(take(tokens(100), nullptr).n_rows, at_end(100));
    weir_kv_sequence_close(&a);
    weir_kv_sequence_close(&b);
}

TEST_P(Prefix, RunningSequencesShareWholePagesOnly)
{
    open(400, 100, 8);
    weir_kv_sequence s = sequence(tokens(200));
    ASSERT_TRUE(compute(&s, 100));
    std::vector<weir_prefix_snapshot> marks;
    for (const int32_t at : { 30, 64, 90 }) {
        if (!has_states()) continue;
        float *const state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
        put_state(state, s, at);
        marks.push_back({ at, state });
    }
    const int32_t left =
        weir_prefix_insert(prefix_, &s, nullptr, marks.data(), (int32_t)marks.size(), true);
    EXPECT_EQ(left, has_states() ? 1 : 0) << "the state at 90 stays with the caller";
    EXPECT_EQ(take(tokens(200), nullptr).n_rows, 64);
    ASSERT_TRUE(compute(&s, 200));
    EXPECT_EQ(
        weir_prefix_insert(
            prefix_, &s, nullptr, marks.data() + marks.size() - (size_t)left, left, false
        ),
        0
    );
    weir_kv_sequence_close(&s);
    EXPECT_EQ(take(tokens(200), nullptr).n_rows, !has_states() ? cut(200) : is_paged() ? 64 : 90);
}

TEST_P(Prefix, ReclaimsTheLeastRecentlyUsed)
{
    open(4 * 10, 100, 8);
    keep(tokens(320, 1), nullptr); // 5 blocks of 4 pages each
    keep(tokens(320, 2), nullptr);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 0);
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 40);
    EXPECT_EQ(take(tokens(320, 1), nullptr).n_rows, 320);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(20)));
    sound();
    EXPECT_EQ(take(tokens(320, 1), nullptr).n_rows, 320) << "used last";
    EXPECT_EQ(take(tokens(320, 2), nullptr).n_rows, 0);
    weir_kv_sequence user = sequence(tokens(320, 1));
    EXPECT_EQ(weir_prefix_match(prefix_, &user, nullptr, 320).n_rows, 320);
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 0);
    EXPECT_FALSE(weir_prefix_reclaim(prefix_, others(21))) << "a sequence uses the rest";
    weir_kv_sequence_close(&user);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).dropped_tokens, 320);
}

// A sequence that takes the beginning of a page needs one more page to write to; so it gets that of
// the sequence it took the page from, with what extends it.
TEST_P(Prefix, WhatExtendsTheLastPageIsReleased)
{
    open(40, 16, 8);
    keep(tokens(200), nullptr, { 64, 100 });
    Tokens other = tokens(120);
    other[100] = 5;
    weir_kv_sequence s = sequence(other);
    const int32_t n = weir_prefix_match(prefix_, &s, nullptr, 119).n_rows;
    EXPECT_EQ(n, cut(100));
    EXPECT_FALSE(weir_prefix_release_tail(prefix_, &s)) << "others extend it";
    EXPECT_EQ(weir_prefix_release_extensions(prefix_, &s), !is_paged()) << "pages are whole";
    EXPECT_FALSE(weir_prefix_release_extensions(prefix_, &s));
    sound();
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, is_paged() ? 3 : 2);
    EXPECT_EQ(weir_prefix_release_tail(prefix_, &s), !is_paged());
    expect_right(s);
    keep(tokens(200), nullptr, { 64, 100 });
    weir_kv_sequence second = sequence(tokens(180));
    (void)weir_prefix_match(prefix_, &second, nullptr, 179);
    weir_kv_sequence third = sequence(other);
    (void)weir_prefix_match(prefix_, &third, nullptr, 119);
    EXPECT_FALSE(weir_prefix_release_extensions(prefix_, &third)) << "a sequence uses them";
    for (weir_kv_sequence *const one : { &s, &second, &third }) weir_kv_sequence_close(one);
}

TEST_P(Prefix, RandomSchedules)
{
    for (int seed = 1; seed <= 20; seed++) {
        std::mt19937 random((unsigned)seed);
        const auto pick = [&](int n) { return (int32_t)(random() % (unsigned)n); };
        open(4 * 24, 14, 5, 0, seed % 2 == 0 ? 4 * 9 : 0);
        if (HasFatalFailure()) return;
        for (int step = 0; step < 300; step++) {
            Tokens t = tokens(1 + pick(300), pick(3));
            if (pick(2)) t[(size_t)pick((int)t.size())] = -1 - pick(3);
            const std::string salt = std::string("s") + (char)('0' + pick(3));
            weir_kv_sequence s = sequence(t);
            const auto hit = weir_prefix_match(prefix_, &s, salt.c_str(), s.n_tokens - pick(2));
            expect_right(s);
            std::vector<weir_prefix_snapshot> marks;
            bool room = true;
            while (room && s.n_computed < s.n_tokens) {
                const int32_t end = std::min(s.n_tokens, s.n_computed + 1 + pick(150));
                room = compute(&s, end) ||
                       (weir_prefix_reclaim(prefix_, others(4 * 6)) && compute(&s, end));
                float *const state =
                    room && has_states() && pick(2)
                        ? weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0)
                        : nullptr;
                if (state != nullptr) put_state(state, s, end);
                if (state != nullptr) marks.push_back({ end, state });
                if (room && pick(3) == 0)
                    marks.erase(
                        marks.begin(), marks.end() - weir_prefix_insert(
                                                         prefix_, &s, salt.c_str(), marks.data(),
                                                         (int32_t)marks.size(), true
                                                     )
                    );
            }
            expect_right(s);
            if (room && pick(4) > 0) {
                weir_prefix_insert(
                    prefix_, &s, salt.c_str(), marks.data(), (int32_t)marks.size(), false
                );
            } else {
                for (const weir_prefix_snapshot &mark : marks)
                    weir_prefix_release_snapshot(prefix_, mark.state);
            }
            weir_kv_sequence_close(&s);
            ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_))
                << error_.text << " seed " << seed << " step " << step << " hit " << hit.n_rows;
        }
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
        if (HasFatalFailure()) return;
    }
    open(4, 1, 1);
}

// Two sequences computed the same tokens; one is cached and gone, the other goes on below what the
// first one left.
TEST_P(Prefix, ASequenceGivesItsPagesUpForEqualOnes)
{
    open(40, 100, 8);
    weir_kv_sequence a = sequence(tokens(150)), b = sequence(tokens(200));
    ASSERT_TRUE(compute(&a, 150));
    ASSERT_TRUE(compute(&b, 150));
    EXPECT_EQ(weir_kv_store_free_pages(store_), 40 - 4 * 6);
    weir_prefix_insert(prefix_, &a, nullptr, nullptr, 0, true);
    weir_kv_sequence_close(&a);
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 4 * 2);
    weir_prefix_insert(prefix_, &b, nullptr, nullptr, 0, true);
    expect_right(b);
    EXPECT_EQ(weir_kv_store_free_pages(store_), 40 - 4 * 3)
        << "two pages' worth of tokens are shared now";
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 0);
    ASSERT_TRUE(compute(&b, 200));
    expect_right(b);
    weir_prefix_insert(prefix_, &b, nullptr, nullptr, 0, true);
    sound();
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 0);
    EXPECT_FALSE(weir_prefix_reclaim(prefix_, others(40 - 4 * 4 + 1)))
        << "a sequence uses all that is kept";
    weir_kv_sequence_close(&b);
    EXPECT_EQ(weir_kv_pages_others(weir_prefix_reclaimable(prefix_)), 4 * 3);
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(40)));
    sound();
}

// Sequences come, go on, fork, are preempted and end in any order.
class IdlePages : public Prefix {
  protected:
    struct Live {
        weir_kv_sequence sequence;
        std::string salt;
    };

    void start(unsigned seed)
    {
        random_.seed(seed);
        live_.clear();
        open(4 * 30, 20, 6, 0, seed % 2 == 0 ? 4 * 12 : 0);
    }
    void end()
    {
        for (Live &l : live_) weir_kv_sequence_close(&l.sequence);
        EXPECT_TRUE(same(weir_prefix_reclaimable(prefix_), prefix_reference::reclaimable(prefix_)));
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
    }
    int32_t pick(int64_t n) { return (int32_t)(random_() % (uint64_t)n); }
    void cache(Live &l, bool whole)
    {
        weir_prefix_snapshot mark = { l.sequence.n_computed / 64 * 64, nullptr };
        if (!whole && !is_paged()) mark.at = l.sequence.n_computed;
        if (has_states() && mark.at > 0)
            mark.state = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
        if (mark.state != nullptr) put_state(mark.state, l.sequence, mark.at);
        const int32_t left = weir_prefix_insert(
            prefix_, &l.sequence, l.salt.c_str(), &mark, mark.state != nullptr, whole
        );
        if (left > 0) weir_prefix_release_snapshot(prefix_, mark.state);
    }
    void match(Live &l)
    {
        weir_prefix_match(prefix_, &l.sequence, l.salt.c_str(), l.sequence.n_tokens);
    }
    void come()
    {
        Tokens t = tokens(1 + pick(400), pick(2));
        if (pick(2)) t[(size_t)pick((int64_t)t.size())] = -1 - pick(2);
        live_.push_back({ sequence(t), std::string("s") + (char)('0' + pick(2)) });
        if (pick(3) > 0) match(live_.back());
    }
    void go_on(weir_kv_sequence &s)
    {
        const int32_t end = std::min(s.n_tokens, s.n_computed + 1 + pick(130));
        if (end > s.n_computed && !compute(&s, end) && weir_prefix_reclaim(prefix_, others(4 * 4)))
            (void)compute(&s, end);
    }
    void finish(size_t at)
    {
        if (pick(3) > 0) cache(live_[at], false);
        weir_kv_sequence_close(&live_[at].sequence);
        live_.erase(live_.begin() + (std::ptrdiff_t)at);
    }
    void fork(size_t at)
    {
        Live copy = { sequence({}), live_[at].salt };
        EXPECT_EQ(weir_kv_sequence_fork(&copy.sequence, &live_[at].sequence), WEIR_OK);
        live_.push_back(copy);
    }
    void preempt(Live &l)
    {
        weir_kv_sequence_reset(&l.sequence);
        if (pick(2)) match(l);
    }
    void act()
    {
        const size_t at = live_.empty() ? 0 : (size_t)pick((int64_t)live_.size());
        const int action = live_.empty() ? 0 : pick(8);
        if (action == 0 && live_.size() < 5)
            come();
        else if (action <= 3)
            go_on(live_[at].sequence);
        else if (action == 4)
            cache(live_[at], true);
        else if (action == 5)
            finish(at);
        else if (action == 6 && live_.size() < 5)
            fork(at);
        else
            preempt(live_[at]);
        for (const Live &l : live_)
            if (pick(8) == 0) expect_right(l.sequence);
    }
    // Now and then, as marks may stay for some steps.
    void check_count()
    {
        const weir_kv_pages idle = prefix_reference::reclaimable(prefix_),
                            free = weir_kv_store_free(store_);
        ASSERT_TRUE(same(weir_prefix_reclaimable(prefix_), idle));
        ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text;
        if (pick(20) == 0)
            ASSERT_TRUE(weir_prefix_reclaim(
                prefix_, { free.sinks + pick(idle.sinks + 1),
                           { free.others[0] + pick(idle.others[0] + 1) },
                           0 }
            ));
    }
    void expect_no_more()
    {
        const weir_kv_pages free = weir_kv_store_free(store_),
                            idle = weir_prefix_reclaimable(prefix_);
        ASSERT_FALSE(weir_prefix_reclaim(prefix_, { free.sinks + idle.sinks + 1, {}, 0 }));
        ASSERT_TRUE(same(weir_prefix_reclaimable(prefix_), others(0)))
            << "all that comes after sinks was in the way of them";
    }

  private:
    std::mt19937 random_;
    std::vector<Live> live_;
};
INSTANTIATE_TEST_SUITE_P(Models, IdlePages, PREFIX_KINDS, prefix::kind_name);

// The count equals the walk after every step, and all that is counted can be had.
TEST_P(IdlePages, TheirCountEqualsTheWalk)
{
    for (unsigned seed = 1; seed <= 8; seed++) {
        start(seed);
        for (int step = 0; step < 600 && !HasFatalFailure(); step++) {
            SCOPED_TRACE("seed " + std::to_string(seed) + " step " + std::to_string(step));
            act();
            ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text;
            if (pick(3) > 0) check_count();
        }
        if (HasFatalFailure()) return;
        expect_no_more();
        end();
        if (HasFatalFailure()) return;
    }
    open(4, 1, 1);
}

// An entry is taken from the state that was used longest ago.
TEST_P(Prefix, AUsedStateStays)
{
    open(400, 100, 3);
    if (!has_states()) return;
    for (const int seed : { 1, 2, 3 }) keep(tokens(64, seed), nullptr);
    EXPECT_EQ(take(tokens(64, 1), nullptr).n_rows, 64);
    float *const taken = weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0);
    ASSERT_NE(taken, nullptr);
    EXPECT_EQ(take(tokens(64, 1), nullptr).n_rows, 64);
    EXPECT_EQ(take(tokens(64, 2), nullptr).n_rows, 0);
    EXPECT_EQ(take(tokens(64, 3), nullptr).n_rows, 64);
    EXPECT_EQ(weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_SPARE, 0), nullptr)
        << "there is no spare one";
    weir_prefix_release_snapshot(prefix_, taken);
}

// Rows that a sequence took under a salt stay there: a page belongs to one run.
TEST_P(Prefix, APageIsCachedUnderOneSalt)
{
    open(40, 100, 8);
    weir_kv_sequence s = sequence(tokens(128));
    ASSERT_TRUE(compute(&s, 128));
    for (const char *salt : { "one", "two" })
        EXPECT_EQ(weir_prefix_insert(prefix_, &s, salt, nullptr, 0, true), 0);
    sound();
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_tokens, 128);
    EXPECT_EQ(take(tokens(128), "two").n_matched, 0);
    EXPECT_EQ(take(tokens(128), "one").n_matched, 128);
    weir_kv_sequence_close(&s);
    EXPECT_TRUE(same(weir_prefix_reclaimable(prefix_), others(4 * 2)));
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, others(40)));
}

// With a disk: who leaves memory first, what was lost is not continued but kept anew, and who is
// dropped when nothing can leave.
TEST_P(Prefix, BlocksOnDisk)
{
    open(40 * 4, 40, 16, 30 * 4); /* memory for ten blocks */
    const Tokens a = tokens(128, 1), b = tokens(128, 2), c = tokens(128, 3);
    for (const Tokens &each : { a, b, c }) keep(each, nullptr);
    (void)take(a, nullptr);
    void *const *blocks[8];
    weir_kv_sequence user = sequence(c);
    ASSERT_EQ(weir_prefix_match(prefix_, &user, nullptr, INT32_MAX).n_rows, 128);
    ASSERT_EQ(weir_prefix_lru_blocks(prefix_, blocks, 8), 4) << "what is used stays";
    weir_kv_sequence_close(&user);
    (void)take(a, nullptr);
    ASSERT_EQ(weir_prefix_lru_blocks(prefix_, blocks, 8), 6);
    for (int i = 0; i < 2; i++) ASSERT_EQ(demote(blocks[i]), WEIR_OK) << error_.text;
    ASSERT_EQ(weir_prefix_lru_blocks(prefix_, blocks, 3), 3);
    EXPECT_EQ(on_disk(b, false), (std::vector<bool>{ true, true })) << "the least recently used";
    EXPECT_EQ(on_disk(a, false), (std::vector<bool>{ false, false }));
    EXPECT_EQ(on_disk(b, true), (std::vector<bool>{ true, true }));
    EXPECT_EQ(on_disk(b, false), (std::vector<bool>{ false, false }));

    ASSERT_EQ(weir_prefix_lru_blocks(prefix_, blocks, 2), 2);
    for (int i = 0; i < 2; i++) ASSERT_EQ(demote(blocks[i]), WEIR_OK) << error_.text;
    ASSERT_EQ(on_disk(c, false), (std::vector<bool>{ true, true }));
    weir_kv_mark_unreadable(store_, blocks[0][0]);
    weir_kv_mark_unreadable(store_, blocks[1][0]);
    EXPECT_EQ(take(c, nullptr).n_rows, 0);
    keep(c, nullptr);
    EXPECT_EQ(take(c, nullptr).n_rows, 128) << "what was computed again is kept again";
    EXPECT_EQ(on_disk(c, true), (std::vector<bool>{ false, false }));

    EXPECT_EQ(weir_kv_free_blocks(store_), 4);
    weir_prefix_reclaim_memory(prefix_, 6);
    sound();
    EXPECT_EQ(weir_kv_free_blocks(store_), 6);
    EXPECT_EQ(take(a, nullptr).n_rows, 0) << "it was used longest ago";
    EXPECT_EQ(take(b, nullptr).n_rows, 128);
    weir_prefix_reclaim_memory(prefix_, 20);
    EXPECT_EQ(weir_kv_free_blocks(store_), 10) << "no more than there is";
}

INSTANTIATE_TEST_SUITE_P(Models, Prefix, PREFIX_KINDS, prefix::kind_name);

} // namespace
