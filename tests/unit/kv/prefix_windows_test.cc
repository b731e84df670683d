/* Window blocks in the prefix cache, in memory and on disk: every row is a digest of the tokens
 * before it, so what a sequence is given can be checked. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"
#include "tests/unit/kv/gated_io.h"

namespace {

using Tokens = std::vector<int32_t>;
using support::reads_fail;
using support::writes_fail;

/* Without and with a layer that sees the whole sequence. */
class PrefixWindows : public ::testing::TestWithParam<bool> {
  protected:
    enum { WINDOW = 100, STEP = 64, ROWS = 1024, NODES = 400 };

    /* The pool has what two sequences need, and `more`. */
    void open(int64_t more, int64_t n_on_disk)
    {
        static const std::string folder = ::testing::TempDir();
        static const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                                { WEIR_KV_F16, WEIR_KV_F16 } };
        static const weir_kv_geometry geometry[] = { { 1, 8, 8, 0, 0, false },
                                                     { 2, 8, 8, WINDOW, 0, false } };
        const size_t caps[WEIR_TIER_COUNT] = {};
        writes_fail = reads_fail = false;
        ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
        weir_kv_windows_spec windows = { 1, geometry + 1, formats + 1, 0, STEP, ROWS };
        extra_ = n_on_disk > 0 ? weir_prefix_extra_windows(&windows) : 0;
        windows.n_blocks = weir_kv_windows_needed(&windows, 2, 0, 1) + extra_ + more;
        const int64_t n_pages = GetParam() ? 2 * NODES + n_on_disk : 0;
        const weir_kv_spec spec = { GetParam() ? 1 : 0,
                                    geometry,
                                    formats,
                                    { n_pages, GetParam() ? n_on_disk : 0, 0, 0 },
                                    ROWS,
                                    folder.c_str(),
                                    {},
                                    false,
                                    false,
                                    0,
                                    windows };
        ASSERT_EQ(weir_kv_store_open(&store_, &spec, ledger_, &error_), WEIR_OK) << error_.text;
        const weir_prefix_limits limits = { NODES,
                                            0,
                                            0,
                                            0,
                                            0,
                                            0,
                                            folder.c_str(),
                                            (int32_t)n_on_disk,
                                            weir_kv_windows_block_bytes(&windows) };
        const size_t before = weir_ledger_total(ledger_, WEIR_TIER_HOST);
        ASSERT_EQ(weir_prefix_open(&prefix_, store_, ledger_, &limits, &error_), WEIR_OK)
            << error_.text;
        EXPECT_EQ(
            weir_ledger_total(ledger_, WEIR_TIER_HOST) - before,
            weir_prefix_tree_bytes(&limits, &spec) + weir_prefix_state_bytes(&limits)
        );
        pool_ = weir_kv_store_windows(store_);
        const weir_lower_tier_io io = support::gated_io();
        if (n_on_disk > 0) weir_lower_tier_set_io(weir_prefix_window_tier(prefix_), &io);
    }
    void TearDown() override
    {
        support::write_gate = support::all_reads_gate = nullptr;
        slow_.open();
        weir_prefix_close(prefix_);
        if (pool_ != nullptr)
            EXPECT_EQ(weir_kv_windows_free_blocks(pool_), weir_kv_windows_spec_of(pool_)->n_blocks);
        weir_kv_store_close(store_);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
        EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_DISK), 0u);
        weir_ledger_close(ledger_);
    }
    static uint64_t digest(const int32_t *tokens, int64_t n)
    {
        uint64_t h = 1469598103934665603u;
        for (int64_t i = 0; i < n; i++) h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 1099511628211u;
        return h;
    }
    static Tokens tokens(int n, int seed)
    {
        Tokens out;
        for (int i = 0; i < n; i++) out.push_back(seed * 7919 + i);
        return out;
    }
    char *row(const weir_kv_sequence &s, int64_t h, int64_t r) const
    {
        void *const *const pages = weir_kv_window_pages(&s.table.windows);
        return static_cast<char *>(pages[h * weir_kv_window_stride(pool_) + r / 64]) + r % 64 * 32;
    }
    weir_kv_sequence sequence(const Tokens &ids)
    {
        weir_kv_sequence s = {};
        EXPECT_EQ(weir_kv_sequence_open(&s, store_, ledger_, 0, &error_), WEIR_OK) << error_.text;
        std::copy(ids.begin(), ids.end(), s.tokens);
        s.n_tokens = (int32_t)ids.size();
        return s;
    }
    /* Steps up to `end`; what is whole goes to the cache meanwhile. */
    void compute(weir_kv_sequence *s, int32_t end)
    {
        while (s->n_computed < end) {
            const int32_t n = std::min<int32_t>(STEP, end - s->n_computed);
            ASSERT_EQ(weir_kv_reserve(&s->table, store_, n), WEIR_OK);
            for (int64_t r = s->n_computed; r < s->n_computed + n; r++)
                for (int64_t h = 0; h < 2; h++) {
                    const uint64_t value = digest(s->tokens, r + 1) + (uint64_t)h;
                    memcpy(row(*s, h, r), &value, sizeof value);
                }
            weir_kv_commit(&s->table, n);
            s->n_computed += n;
            (void)weir_prefix_insert(prefix_, s, nullptr, nullptr, 0, true);
            weir_kv_trim_windows(&s->table, store_);
            weir_prefix_demote_windows(prefix_);
        }
    }
    void expect_right(const weir_kv_sequence &s)
    {
        for (int64_t r = std::max(0, s.n_computed - WINDOW + 1); r < s.n_computed; r++)
            for (int64_t h = 0; h < 2; h++) {
                const uint64_t want = digest(s.tokens, r + 1) + (uint64_t)h;
                ASSERT_EQ(memcmp(row(s, h, r), &want, sizeof want), 0) << "row " << r;
            }
    }
    void sound() { ASSERT_TRUE(weir_prefix_is_sound(prefix_, &error_)) << error_.text; }
    void end_moves()
    {
        weir_prefix_wait_for_moves(prefix_);
        (void)weir_prefix_end_moves(prefix_);
        sound();
    }
    weir_prefix_hit match(weir_kv_sequence *s, int32_t most)
    {
        weir_prefix_hit hit = weir_prefix_match(prefix_, s, nullptr, most);
        for (int i = 0; i < 100 && hit.waits; i++) {
            EXPECT_EQ(s->n_computed, 0);
            end_moves();
            hit = weir_prefix_match(prefix_, s, nullptr, most);
        }
        EXPECT_FALSE(hit.waits) << hit.reason;
        expect_right(*s);
        return hit;
    }
    /* A turn; returns the rows that it was given. */
    int32_t turn(const Tokens &ids, bool reuses = true)
    {
        weir_kv_sequence s = sequence(ids);
        weir_prefix_hit hit = {};
        if (reuses) hit = match(&s, s.n_tokens - 1);
        compute(&s, s.n_tokens);
        (void)weir_prefix_insert(prefix_, &s, nullptr, nullptr, 0, false);
        weir_kv_sequence_close(&s);
        sound();
        return hit.n_rows;
    }
    /* All ends that can be are on disk, and no other blocks are in memory. */
    void go_cold()
    {
        while (weir_prefix_moves(prefix_) > 0) end_moves();
        const int64_t all = weir_kv_windows_spec_of(pool_)->n_blocks;
        EXPECT_TRUE(weir_kv_windows_find_free(pool_, all));
        sound();
    }
    weir_prefix_stats stats() const { return weir_prefix_stats_of(prefix_); }

    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix *prefix_ = nullptr;
    weir_kv_windows *pool_ = nullptr;
    int64_t extra_ = 0;
    weir_error error_ = {};
    support::Gate slow_;
};

/* Of a sequence the blocks that the row after its end reads, and those of a place that is marked.
 */
TEST_P(PrefixWindows, EndsGoToDisk)
{
    open(0, 60);
    Tokens ids = tokens(500, 1);
    EXPECT_EQ(turn(ids), 0);
    for (int i = 0; i < 4; i++) {
        weir_prefix_demote_windows(prefix_);
        end_moves();
    }
    EXPECT_EQ(stats().windows_out, 2) << "row 500 reads rows 401 and later, of blocks 6 and 7";
    go_cold();
    EXPECT_EQ(stats().n_windows, 0);
    EXPECT_EQ(stats().n_cold_windows, 2);
    const Tokens more = tokens(300, 2);
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(turn(ids), 500);
    EXPECT_EQ(stats().windows_back, 2);
    for (int i = 0; i < 4; i++) {
        weir_prefix_demote_windows(prefix_);
        end_moves();
    }
    go_cold();
    EXPECT_EQ(stats().n_cold_windows, 3) << "blocks 10 to 12; those of the turn before are left";
    EXPECT_EQ(turn(ids), 799);
}

/* Where sequences branch off stays an end. */
TEST_P(PrefixWindows, BranchesAreEnds)
{
    open(0, 60);
    const Tokens common = tokens(320, 1);
    (void)turn(common);
    for (int i = 0; i < 3; i++) {
        Tokens ids = common;
        const Tokens own = tokens(300, 10 + i);
        ids.insert(ids.end(), own.begin(), own.end());
        for (int k = 0; k < 4; k++) {
            weir_prefix_demote_windows(prefix_);
            end_moves();
        }
        if (i != 1) go_cold(); /* after the first branch there is one only */
        EXPECT_EQ(turn(ids), 320) << i;
    }
}

TEST_P(PrefixWindows, WhatMovesMayBeDropped)
{
    for (const bool reads : { false, true }) {
        open(0, 60);
        (void)turn(tokens(300, 1));
        if (reads) {
            for (int i = 0; i < 4; i++) {
                weir_prefix_demote_windows(prefix_);
                end_moves();
            }
            go_cold();
        } else {
            end_moves();
        }
        (reads ? support::all_reads_gate : support::write_gate) = &slow_;
        weir_kv_sequence s = sequence(tokens(310, 1));
        if (reads) EXPECT_TRUE(weir_prefix_match(prefix_, &s, nullptr, 300).waits);
        if (!reads) weir_prefix_demote_windows(prefix_);
        weir_kv_sequence_close(&s);
        const int32_t n_moves = weir_prefix_moves(prefix_);
        /* All runs give way to others. */
        for (int i = 0; i < NODES / 8; i++) (void)turn(tokens(640, 100 + i), false);
        EXPECT_GT(n_moves, 0);
        EXPECT_GE(weir_prefix_moves(prefix_), n_moves);
        EXPECT_FALSE(slow_.was_late) << "the engine's thread waited";
        support::all_reads_gate = support::write_gate = nullptr;
        slow_.open();
        while (weir_prefix_moves(prefix_) > 0) end_moves();
        EXPECT_EQ(turn(tokens(310, 1)), 0);
        TearDown();
        prefix_ = nullptr;
        pool_ = nullptr;
        store_ = nullptr;
        ledger_ = nullptr;
        slow_.is_open = slow_.is_reached = false;
    }
    open(0, 0);
}

/* The oldest end leaves a full disk for a newer one, and all of them for blocks of the store. */
TEST_P(PrefixWindows, AFullDisk)
{
    open(0, 6);
    for (int i = 0; i < 8; i++) {
        (void)turn(tokens(300, i));
        for (int k = 0; k < 4; k++) {
            weir_prefix_demote_windows(prefix_);
            end_moves();
        }
        go_cold();
    }
    EXPECT_LE(stats().n_cold_windows, 6);
    EXPECT_EQ(turn(tokens(310, 7)), 300);
    EXPECT_EQ(turn(tokens(310, 0)), 0);
    if (!GetParam()) return;
    weir_prefix_leave_disk(prefix_, 6);
    sound();
    EXPECT_EQ(stats().n_cold_windows, weir_prefix_moves(prefix_));
}

/* Turns of conversations that go on, branch and begin anew, on a disk that fails at times. */
TEST_P(PrefixWindows, RandomTurns)
{
    for (const int n_on_disk : { 0, 10, 80 }) {
        open(6, n_on_disk);
        std::mt19937 random(5);
        const auto pick = [&](int n) { return (int)(random() % (unsigned)n); };
        std::vector<Tokens> all(1, tokens(200, 1));
        int64_t n_rows = 0, n_all = 0;
        for (int i = 0; i < 600; i++) {
            Tokens ids = all[(size_t)pick((int)all.size())];
            if (pick(4) == 0) ids.resize((size_t)(1 + pick((int)ids.size())));
            const Tokens more = tokens(1 + pick(200), 100 + i);
            ids.insert(ids.end(), more.begin(), more.end());
            if (ids.size() >= ROWS) ids = tokens(1 + pick(300), 5000 + i);
            writes_fail = n_on_disk == 10 && pick(3) == 0;
            reads_fail = n_on_disk == 10 && pick(8) == 0;
            n_rows += turn(ids);
            n_all += (int64_t)ids.size() - (int64_t)more.size();
            if (all.size() > 12) all.erase(all.begin() + pick((int)all.size()));
            all.push_back(ids);
            if (pick(2) == 0) end_moves();
            if (pick(30) == 0) weir_prefix_leave_disk(prefix_, 1 + pick(10));
            if (pick(20) == 0) go_cold();
        }
        EXPECT_GT(n_rows, 0);
        if (n_on_disk == 80) EXPECT_GT(n_rows, n_all / 2);
        if (n_on_disk > 0) EXPECT_GT(stats().windows_back, 0);
        EXPECT_EQ(stats().window_errors > 0, n_on_disk == 10);
        TearDown();
        prefix_ = nullptr;
        pool_ = nullptr;
        store_ = nullptr;
        ledger_ = nullptr;
    }
    open(0, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PrefixWindows, ::testing::Bool(), [](const auto &info) {
    return info.param ? "WithOthers" : "Alone";
});

} // namespace
