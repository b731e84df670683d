// What operations on the index cost, in nodes and states looked at: it depends on the sequence and
// on what changed, not on how much is cached.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

namespace {

constexpr int64_t window = 64 * 12;
constexpr int few = 10'000, many = 100'000;

// A store of one head, whose rows nothing writes, and an index over it.
class PrefixCost : public ::testing::Test {
  protected:
    void open(int64_t n_nodes, int32_t n_states = 0, bool has_disk = false, int64_t n_rows = window)
    {
        const std::string folder = ::testing::TempDir();
        const size_t caps[WEIR_TIER_COUNT] = {};
        static const weir_kv_pair f16 = { WEIR_KV_F16, WEIR_KV_F16 };
        static const weir_kv_geometry geometry = { 1, 8, 8, 0, 0, false };
        const int64_t n_pages = n_nodes + 128;
        const weir_kv_spec spec = { 1,      &geometry,
                                    &f16,   { n_pages, has_disk ? 64 : 0, 0, 0 },
                                    n_rows, folder.c_str(),
                                    {},     !has_disk,
                                    false,  0,
                                    {} };
        const weir_prefix_limits limits = { n_nodes, n_states, n_states > 0 ? 64u : 0u,
                                            0,       0,        0,
                                            nullptr, 0,        0 };
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        ASSERT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK)
            << error_.text;
        ASSERT_EQ(
            weir_kv_sequence_open(&s_, store_, ledger_, n_states > 0 ? 64 : 0, &error_), WEIR_OK
        ) << error_.text;
    }
    void close()
    {
        weir_kv_sequence_close(&s_);
        weir_prefix_close(prefix_);
        weir_kv_store_close(store_);
        weir_ledger_close(ledger_);
        prefix_ = nullptr;
    }
    // A sequence of its own.
    void set_tokens(int32_t number, int32_t n)
    {
        weir_kv_sequence_clear(&s_);
        s_.n_tokens = n;
        for (int32_t i = 0; i < n; i++) s_.tokens[i] = number * 7919 + i;
    }
    void keep(const char *salt = nullptr, float *state = nullptr)
    {
        const int32_t left = s_.n_tokens - s_.n_computed;
        const weir_prefix_snapshot mark = { s_.n_tokens, state };
        ASSERT_EQ(weir_kv_reserve(&s_.table, store_, left), WEIR_OK);
        weir_kv_commit(&s_.table, left);
        s_.n_computed = s_.n_tokens;
        (void)weir_prefix_insert(prefix_, &s_, salt, &mark, state != nullptr, false);
        weir_kv_sequence_reset(&s_);
    }
    // n runs, in sequences of ten.
    void fill(int n)
    {
        for (int i = 0; i < n / 10; i++) {
            set_tokens(i, 640);
            keep();
        }
        ASSERT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n);
        (void)weir_prefix_reclaimable(prefix_);
    }
    template <typename Function> int64_t visits(const Function &function)
    {
        const int64_t before = weir_prefix_stats_of(prefix_).visits;
        function();
        return weir_prefix_stats_of(prefix_).visits - before;
    }
    static weir_state_rank rank_of(int i) { return (weir_state_rank)(i % WEIR_STATE_RANKS); }
    bool drop(int64_t n_pages)
    {
        weir_kv_pages wanted = weir_kv_store_free(store_);
        wanted.others[0] += n_pages;
        return weir_prefix_reclaim(prefix_, wanted);
    }
    // Calls until the search ends. Each takes a bounded number of visits, and all of them together
    // two for each of n runs.
    weir_prefix_victim search(bool all_pages, int n)
    {
        char salt[WEIR_PREFIX_SALT + 1];
        weir_prefix_wanted wanted = { {}, 1, 0 };
        wanted.pages.others[0] = all_pages ? weir_kv_pages_others(weir_kv_store_all(store_)) : 0;
        weir_prefix_victim result = WEIR_VICTIM_LATER;
        int64_t all = 0;
        weir_kv_sequence_clear(&s_);
        while (result == WEIR_VICTIM_LATER && all < 10 * n) {
            const int64_t one =
                visits([&] { result = weir_prefix_next_victim(prefix_, &wanted, 256, &s_, salt); });
            EXPECT_LE(one, VISITS + 40);
            all += one;
        }
        EXPECT_LE(all, 2 * n + VISITS);
        return result;
    }
    int64_t count() { return weir_kv_pages_others(weir_prefix_reclaimable(prefix_)); }

    enum { VISITS = 256 }; // of a search, per call

    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix *prefix_ = nullptr;
    weir_kv_sequence s_ = {};
    weir_error error_ = {};
};

// A prompt that is inserted as it is computed: each piece goes below the last one, and a look for
// what others have computed begins there, too, however long the prompt is.
TEST_F(PrefixCost, APieceOfALongPrompt)
{
    constexpr int32_t n_runs = 2000, piece = 128, n = 64 * n_runs;
    open(n_runs + 64, 0, false, n);
    set_tokens(1, n);
    for (int32_t end = piece; end <= n; end += piece) {
        ASSERT_EQ(weir_kv_reserve(&s_.table, store_, piece), WEIR_OK);
        weir_kv_commit(&s_.table, piece);
        s_.n_computed = end;
        const auto insert = [&] { weir_prefix_insert(prefix_, &s_, nullptr, nullptr, 0, true); };
        const auto look = [&] {
            EXPECT_EQ(weir_prefix_extend(prefix_, &s_, nullptr, n - 1, 64).n_rows, end);
        };
        ASSERT_LE(visits(insert), 40) << end;
        ASSERT_LE(visits(look), 20) << end;
    }
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n_runs);
    weir_kv_sequence_reset(&s_);
    close();
}

// One that began before another and ends after it was used after it, also its first blocks.
TEST_F(PrefixCost, WhatEndsWasUsed)
{
    enum { BLOCKS = 4, N = 64 * BLOCKS };
    /* A sequence with a policy is not inserted when it ends: its pieces are uses. */
    for (const bool has_policy : { false, true }) {
        open(64, 0, true);
        weir_kv_sequence other = {};
        weir_policy_sequence *const policy =
            has_policy ? reinterpret_cast<weir_policy_sequence *>(&other) : nullptr;
        ASSERT_EQ(weir_kv_sequence_open(&other, store_, ledger_, 0, &error_), WEIR_OK);
        set_tokens(1, N);
        std::vector<const void *> first;
        for (const bool ends : { false, true }) {
            const int32_t n = ends ? 64 : N - 64;
            ASSERT_EQ(weir_kv_reserve(&s_.table, store_, n), WEIR_OK);
            weir_kv_commit(&s_.table, n);
            s_.n_computed += n;
            s_.policy_run = policy;
            (void)weir_prefix_insert(prefix_, &s_, nullptr, nullptr, 0, has_policy || !ends);
            s_.policy_run = nullptr;
            if (ends) break;
            other.n_tokens = other.n_computed = N;
            for (int32_t i = 0; i < N; i++) other.tokens[i] = 1000 + i;
            ASSERT_EQ(weir_kv_reserve(&other.table, store_, N), WEIR_OK);
            weir_kv_commit(&other.table, N);
            (void)weir_prefix_insert(prefix_, &other, nullptr, nullptr, 0, false);
            first.assign(other.table.pages, other.table.pages + BLOCKS);
            weir_kv_sequence_reset(&other);
        }
        weir_kv_sequence_reset(&s_);
        void *const *blocks[BLOCKS];
        ASSERT_EQ(weir_prefix_lru_blocks(prefix_, blocks, BLOCKS), BLOCKS);
        for (void *const *const block : blocks)
            EXPECT_EQ(std::count(first.begin(), first.end(), block[0]), 1) << has_policy;
        weir_kv_sequence_close(&other);
        close();
    }
}

TEST_F(PrefixCost, DroppingABlock)
{
    for (const int n : { few, many }) {
        open(n);
        fill(n);
        EXPECT_LE(visits([&] { EXPECT_TRUE(drop(1000)); }), 1000 * 60) << n;
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n - 1000);
        close();
    }
}

TEST_F(PrefixCost, ANodeForANewRun)
{
    for (const int n : { few, many }) {
        open(n);
        fill(n + 60); // all but two nodes
        set_tokens(1 << 17, 640);
        EXPECT_LE(visits([&] { keep(); }), 10 * 120) << "eight leaves are dropped";
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n + 62);
        close();
    }
}

TEST_F(PrefixCost, CountingPages)
{
    for (const int n : { few, many })
        for (const bool has_pruned : { false, true }) {
            open(n);
            fill(n);
            weir_kv_table pruned = {};
            const int32_t rows = 100;
            ASSERT_EQ(weir_kv_table_open(&pruned, store_, &error_), WEIR_OK);
            if (has_pruned) ASSERT_EQ(weir_kv_reserve_pruned(&pruned, store_, &rows), WEIR_OK);
            EXPECT_EQ(weir_kv_store_has_pruned(store_), has_pruned);
            EXPECT_LE(visits([&] { EXPECT_EQ(count(), n); }), 4) << "nothing changed";
            set_tokens(n / 20, 640);
            EXPECT_EQ(weir_prefix_match(prefix_, &s_, nullptr, 640).n_rows, 640);
            EXPECT_LE(visits([&] { EXPECT_EQ(count(), n - 10); }), 10 * 60);
            weir_kv_sequence_reset(&s_);
            EXPECT_LE(visits([&] { EXPECT_EQ(count(), n); }), 10 * 60);
            EXPECT_LE(visits([&] { EXPECT_EQ(weir_prefix_idle_cold(prefix_), 0); }), 4);
            weir_kv_table_close(&pruned, store_);
            close();
        }
}

// A system prompt that ends within a page, with many continuations.
TEST_F(PrefixCost, FindingOneOfManyContinuations)
{
    for (const int n : { few, many }) {
        open(n + 10);
        std::mt19937 random(1);
        std::vector<int32_t> last;
        for (int i = 0; i < n; i++) {
            set_tokens(0, 128);
            for (int32_t at = 100; at < 128; at++) s_.tokens[at] = (int32_t)(random() % 50'000);
            if (i == n / 2) last.assign(s_.tokens, s_.tokens + 128);
            keep();
        }
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n + 1);
        const auto length = [&] {
            return weir_prefix_match_length(prefix_, last.data(), 128, nullptr);
        };
        EXPECT_LE(visits([&] { EXPECT_EQ(length(), 128); }), 80) << n;
        last[110] = -1;
        EXPECT_LE(visits([&] { EXPECT_EQ(length(), 110); }), 80) << n;
        last[100] = -1;
        EXPECT_LE(visits([&] { EXPECT_EQ(length(), 100); }), 80) << n;
        close();
    }
}

// Sequences made so that telling them apart takes as many steps as it can.
TEST_F(PrefixCost, ContinuationsThatDifferInOneBit)
{
    constexpr int n_bits = 31, n = 64 * n_bits;
    open(n + 10);
    for (int i = 0; i <= n; i++) {
        set_tokens(0, 64);
        for (int32_t at = 0; at < 64; at++) s_.tokens[at] = 0;
        if (i < n) s_.tokens[i / n_bits] = 1 << (n_bits - 1 - i % n_bits);
        keep();
    }
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n + 1);
    const std::vector<int32_t> all_zero(64);
    EXPECT_LE(
        visits([&] {
            EXPECT_EQ(weir_prefix_match_length(prefix_, all_zero.data(), 64, nullptr), 64);
        }),
        n + 10
    );
    EXPECT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text;
    close();
}

TEST_F(PrefixCost, ManySalts)
{
    open(4 * few);
    for (int i = 0; i < few; i++) {
        set_tokens(1, 64);
        keep(("client " + std::to_string(i)).c_str());
    }
    (void)count();
    set_tokens(1, 64);
    const auto hit = [&] { return weir_prefix_match(prefix_, &s_, "client 5000", 64).n_rows; };
    EXPECT_LE(visits([&] { EXPECT_EQ(hit(), 64); }), 150);
    close();
}

// Matching looks at the deepest states first.
TEST_F(PrefixCost, States)
{
    for (const int32_t n : { 1000, few }) {
        open(2 * n, n);
        for (int32_t i = 0; i < n; i++) {
            set_tokens(i, 128);
            keep(nullptr, weir_prefix_acquire_snapshot(prefix_, rank_of(i), 0));
        }
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_snapshots, n);
        (void)count();
        const auto acquire = [&] {
            for (int i = 0; i < 8; i++)
                EXPECT_NE(weir_prefix_acquire_snapshot(prefix_, rank_of(i), 0), nullptr);
            EXPECT_TRUE(weir_prefix_has_free_states(prefix_, 8));
        };
        EXPECT_LE(visits(acquire), 8 * 40) << n;
        set_tokens(n - 1, 128);
        const auto rows = [&] { return weir_prefix_match(prefix_, &s_, nullptr, 128).n_rows; };
        EXPECT_LE(visits([&] { EXPECT_EQ(rows(), 128); }), 150) << n;
        close();
    }
}

TEST_F(PrefixCost, BlocksToDemote)
{
    for (const int n : { 1000, few }) {
        void *const *blocks[64];
        open(n, 0, true);
        fill(n);
        EXPECT_LE(
            visits([&] { EXPECT_EQ(weir_prefix_lru_blocks(prefix_, blocks, 64), 64); }), 64 * 60
        ) << n;
        close();
    }
}

// Going through all sequences looks at each run once, also while they are used again.
TEST_F(PrefixCost, OneSequenceAfterTheOther)
{
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
    for (const int n : { 1000, few }) {
        open(n);
        fill(n);
        weir_prefix_cursor cursor = {};
        const auto all = [&] {
            int number = n / 10;
            weir_kv_sequence_clear(&s_);
            for (; weir_prefix_next(prefix_, &cursor, &s_, salt, name); number--) {
                ASSERT_EQ(s_.tokens[0], (number - 1) * 7919);
                EXPECT_EQ(weir_prefix_match(prefix_, &s_, salt, 640).n_rows, 640);
                weir_kv_sequence_clear(&s_);
            }
            EXPECT_EQ(number, 0);
        };
        EXPECT_LE(visits(all), n * 60) << n;
        cursor = {};
        ASSERT_TRUE(weir_prefix_next(prefix_, &cursor, &s_, salt, name));
        weir_kv_sequence_clear(&s_);
        weir_prefix_cursor other = {};
        for (int i = 0; i < 3; i++) {
            ASSERT_TRUE(weir_prefix_next(prefix_, &other, &s_, salt, name)) << "in between";
            weir_kv_sequence_clear(&s_);
        }
        const int32_t third = s_.tokens[0];
        for (int i = 0; i < 2; i++) {
            ASSERT_TRUE(weir_prefix_next(prefix_, &cursor, &s_, salt, name));
            weir_kv_sequence_clear(&s_);
        }
        EXPECT_EQ(s_.tokens[0], third) << "cursors are independent";
        close();
    }
}

// Many sequences are in files, all but the most recent one, which is dropped before the pool is
// free, or loses its state before there is another one.
TEST_F(PrefixCost, SearchingWhatWillBeDropped)
{
    for (const int n : { few, many })
        for (const bool states_are_short : { false, true }) {
            SCOPED_TRACE(std::to_string(n) + (states_are_short ? " states" : " pages"));
            open(n, states_are_short ? 2 : 0);
            fill(n);
            for (int i = 0; i < n / 10 - 1; i++) {
                set_tokens(i, 640);
                weir_prefix_mark_saved(prefix_, s_.tokens, 640, 640, nullptr);
            }
            set_tokens(n / 10 - 1, 640);
            if (states_are_short)
                keep(nullptr, weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_LAST, 1));
            EXPECT_EQ(search(!states_are_short, n), WEIR_VICTIM_FOUND);
            EXPECT_EQ(s_.tokens[0], (n / 10 - 1) * 7919);
            weir_prefix_mark_saved(prefix_, s_.tokens, 640, 640, nullptr);
            EXPECT_EQ(search(!states_are_short, n), WEIR_VICTIM_NONE);
            close();
        }
}

// A long sequence that would not be dropped soon: looking at all of it is paid for by the next
// calls.
TEST_F(PrefixCost, SearchingALongSequence)
{
    enum { RUNS = 2000, CALLS = 1000 };
    char salt[WEIR_PREFIX_SALT + 1];
    open(RUNS + 10, 2, false, 64 * RUNS);
    set_tokens(1, 64);
    keep(nullptr, weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_LAST, 1));
    set_tokens(2, 64 * RUNS);
    keep();
    weir_kv_sequence_clear(&s_);
    EXPECT_FALSE(weir_prefix_has_free_states(prefix_, 1));
    int n_searches = 0;
    const auto many_calls = [&] {
        for (int i = 0; i < CALLS; i++) {
            const weir_prefix_wanted wanted = { {}, 1, 0 };
            const auto result = weir_prefix_next_victim(prefix_, &wanted, 256, &s_, salt);
            ASSERT_NE(result, WEIR_VICTIM_FOUND);
            n_searches += result == WEIR_VICTIM_NONE;
        }
    };
    EXPECT_LE(visits(many_calls), (CALLS + 1) * VISITS + 2 * RUNS);
    EXPECT_GT(n_searches, CALLS * VISITS / (3 * RUNS));
    close();
}

TEST_F(PrefixCost, ReleasingWhatASequenceShares)
{
    for (const int n : { few, many }) {
        open(n);
        fill(n);
        set_tokens(7, 640);
        EXPECT_EQ(weir_prefix_match(prefix_, &s_, nullptr, 639).n_rows, 639);
        EXPECT_LE(visits([&] { EXPECT_TRUE(weir_prefix_release_tail(prefix_, &s_)); }), 60);
        EXPECT_LE(visits([&] { EXPECT_TRUE(weir_prefix_release_shared(prefix_, &s_)); }), 9 * 60);
        EXPECT_EQ(weir_prefix_stats_of(prefix_).n_nodes, n - 10);
        close();
    }
}

} // namespace
