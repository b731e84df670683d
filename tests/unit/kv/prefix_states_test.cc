// Which recurrent state goes when there is no memory for another, and states on disk.
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/kv/gated_io.h"
#include "tests/unit/kv/prefix_fixture.h"

extern "C" int ftruncate(int fd, off_t n)
{
    support::pass(support::shrink_gate);
    return (int)syscall(SYS_ftruncate, fd, n);
}

static std::atomic<bool> is_old_file_system{ false };

// Holes are tried when a tier is opened.
extern "C" int fallocate(int fd, int mode, off_t at, off_t n)
{
    if (!is_old_file_system) return (int)syscall(SYS_fallocate, fd, mode, at, n);
    errno = EOPNOTSUPP;
    return -1;
}

namespace {

using prefix::Kind;
using prefix::Prefix;
using prefix::Tokens;
using support::reads_fail;
using support::writes_fail;

class PrefixStates : public Prefix {
  protected:
    // A sequence whose states have this rank.
    void keep_as(
        weir_state_rank rank, const Tokens &tokens, std::vector<int32_t> marks = {},
        int64_t turn = 0
    )
    {
        rank_ = rank;
        turn_ = turn;
        keep(tokens, nullptr, std::move(marks));
    }
    int32_t rows(const Tokens &tokens)
    {
        return weir_prefix_match_length(prefix_, tokens.data(), (int32_t)tokens.size(), nullptr);
    }
    // Takes the memory of one state for one of this rank, which is not kept.
    void take_one(weir_state_rank rank)
    {
        float *const state = weir_prefix_acquire_snapshot(prefix_, rank, 0);
        ASSERT_NE(state, nullptr);
        lent_.push_back(state);
        sound();
    }
    void TearDown() override
    {
        for (float *const state : lent_) weir_prefix_release_snapshot(prefix_, state);
        Prefix::TearDown();
    }
    std::vector<float *> lent_;
};

TEST_P(PrefixStates, WhatCostsLeastToComputeGoesFirst)
{
    open(400, 100, 4);
    keep_as(WEIR_STATE_CHECKPOINT, tokens(256), { 64, 96, 250 }); // costs 64, 32, 154 and 6 tokens
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(256)), 250);
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(249)), 64) << "the one at 96";
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(249)), 0) << "the one at 64";
    EXPECT_EQ(rows(tokens(256)), 250);
}

// The one at 128 costs 64 tokens until that at 64 goes.
TEST_P(PrefixStates, AStateCostsMoreWithoutTheOneBefore)
{
    open(400, 100, 3);
    keep_as(WEIR_STATE_CHECKPOINT, tokens(128, 1), { 64 });
    keep_as(WEIR_STATE_CHECKPOINT, tokens(100, 2));
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(64, 1)), 0) << "of equal ones that at the lower entry";
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(100, 2)), 0) << "128 is more than 100";
    EXPECT_EQ(rows(tokens(128, 1)), 128);
}

TEST_P(PrefixStates, AnExpensiveOneGoesIfOthersAreUsed)
{
    open(400, 100, 2);
    keep_as(WEIR_STATE_CHECKPOINT, tokens(200, 1));
    int n = 0;
    for (int seed = 2; rows(tokens(200, 1)) > 0 && n < 20; seed++, n++)
        keep_as(WEIR_STATE_CHECKPOINT, tokens(64, seed));
    EXPECT_EQ(n, 5) << "after states of 192 tokens went";
}

TEST_P(PrefixStates, EndsOfTurnsStayAndPastOnesGoBeforeLastOnes)
{
    open(400, 100, 6); // one for checkpoints, one for past ends
    keep_as(WEIR_STATE_LAST, tokens(64, 1));
    keep_as(WEIR_STATE_LAST, tokens(300, 1)); // goes on: the first end is past
    for (const int seed : { 2, 3, 4 }) keep_as(WEIR_STATE_LAST, tokens(10, seed));
    keep_as(WEIR_STATE_CHECKPOINT, tokens(500, 5));
    take_one(WEIR_STATE_LAST);
    EXPECT_EQ(rows(tokens(300, 1)), 300);
    EXPECT_EQ(rows(tokens(299, 1)), 0) << "it was past";
    EXPECT_EQ(rows(tokens(500, 5)), 500) << "checkpoints have one";
    EXPECT_EQ(rows(tokens(10, 2)), 10);
    keep_as(WEIR_STATE_CHECKPOINT, tokens(400, 6));
    EXPECT_EQ(rows(tokens(500, 5)), 0) << "of checkpoints";
    for (const int seed : { 2, 3, 4 }) EXPECT_EQ(rows(tokens(10, seed)), 10);
}

// Two conversations whose prompts end with the same tokens, one of which drops its answer.
TEST_P(PrefixStates, AnAnswerThatIsNotContinuedGoesFirst)
{
    open(400, 100, 6);
    keep_as(WEIR_STATE_CHECKPOINT, tokens(100), {}, 7); // where the answer begins
    keep_as(WEIR_STATE_LAST, tokens(150), {}, 7);
    Tokens other = tokens(180);
    for (size_t i = 100; i < other.size(); i++) other[i] = -1;
    weir_kv_sequence s = sequence(other);
    EXPECT_TRUE(weir_prefix_match(prefix_, &s, nullptr, 180).is_rewritten);
    EXPECT_EQ(s.n_computed, 100);
    weir_kv_sequence_reset(&s);
    s.n_tokens = 100;
    EXPECT_FALSE(weir_prefix_match(prefix_, &s, nullptr, 99).is_rewritten);
    weir_kv_sequence_close(&s);
    for (int seed = 2; seed < 6; seed++) keep_as(WEIR_STATE_LAST, tokens(10, seed));
    take_one(WEIR_STATE_CHECKPOINT);
    EXPECT_EQ(rows(tokens(150)), 100) << "the answer's end went";
    s = sequence(tokens(180));
    EXPECT_FALSE(weir_prefix_match(prefix_, &s, nullptr, 180).is_rewritten) << "it goes on";
    weir_kv_sequence_close(&s);
}

// States on disk, whose file waits at gates or fails when a test wants.
class ColdStates : public PrefixStates {
  protected:
    void open_cold(int32_t n_snapshots)
    {
        n_cold_ = 8;
        writes_fail = reads_fail = false;
        open(4 * 40, 100, n_snapshots, 4 * 20);
        const weir_lower_tier_io io = support::gated_io();
        weir_lower_tier_set_io(weir_prefix_lower_tier(prefix_), &io);
    }
    void keep_last(int seed)
    {
        keep_as(WEIR_STATE_LAST, tokens(100, seed));
        if (support::write_gate == nullptr) end_moves();
    }
    // The move has begun, and hangs.
    void hang(std::atomic<support::Gate *> &gate) { gate = &slow_; }
    void go_on(std::atomic<support::Gate *> &gate)
    {
        gate = nullptr;
        slow_.open();
        EXPECT_FALSE(slow_.was_late) << "the engine's thread waited";
        end_moves();
    }
    // What a sequence gets now, without waiting.
    weir_prefix_hit look(int seed)
    {
        weir_kv_sequence s = sequence(tokens(100, seed));
        const weir_prefix_hit hit = weir_prefix_match(prefix_, &s, nullptr, 100);
        expect_right(s);
        weir_kv_sequence_close(&s);
        sound();
        return hit;
    }
    weir_prefix_stats stats() { return weir_prefix_stats_of(prefix_); }
    void TearDown() override
    {
        support::write_gate = support::all_reads_gate = support::shrink_gate = nullptr;
        slow_.open();
        PrefixStates::TearDown();
    }
    support::Gate slow_;
};

// What is read for the second time has memory again.
TEST_P(ColdStates, OnDiskAndBack)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3, 4, 5 }) keep_last(seed);
    EXPECT_EQ(stats().n_snapshots, 5);
    EXPECT_EQ(stats().n_cold_snapshots, 2);
    EXPECT_EQ(stats().snapshots_out, 2);
    for (const int n : { 1, 2, 2, 2 }) {
        EXPECT_EQ(take(tokens(100, 1), nullptr).n_rows, 100);
        EXPECT_EQ(stats().snapshots_back, n);
        end_moves();
    }
    for (const int seed : { 2, 3, 4, 5 }) {
        EXPECT_EQ(take(tokens(100, seed), nullptr).n_rows, 100);
        end_moves();
    }
    weir_kv_sequence s = sequence(tokens(100, 2));
    weir_prefix_snapshot mark;
    ASSERT_EQ(match(&s, nullptr, 100).n_rows, 100);
    end_moves();
    int32_t n = weir_prefix_pin(prefix_, &s, nullptr, &mark, 1);
    for (int i = 0; i < 3 && n == WEIR_PREFIX_WAITS; i++) {
        end_moves();
        n = weir_prefix_pin(prefix_, &s, nullptr, &mark, 1);
    }
    ASSERT_EQ(n, 1) << "a file gets it from memory";
    end_moves();
    end_moves();
    uint64_t value;
    memcpy(&value, mark.state, sizeof value);
    EXPECT_EQ(value, prefix::digest(s.tokens, 100));
    weir_prefix_unpin(prefix_, &mark, 1);
    weir_kv_sequence_close(&s);
    end_moves();
    end_moves();
    weir_prefix_leave_disk(prefix_, 20);
    EXPECT_EQ(stats().n_cold_snapshots, 0);
    sound();
}

// The disk takes its time: the state is matched in its memory, another one has memory already, and
// a third end of a turn loses what is worth least. A checkpoint waits for nothing and takes no end.
TEST_P(ColdStates, AWriteThatWaitsStopsNothing)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3 }) keep_last(seed);
    hang(support::write_gate);
    keep_last(4);
    keep_last(5);
    ASSERT_TRUE(slow_.wait_until_reached());
    EXPECT_FALSE(weir_prefix_end_moves(prefix_));
    EXPECT_EQ(weir_prefix_moves(prefix_), 2);
    EXPECT_EQ(stats().n_cold_snapshots, 2);
    for (const int seed : { 1, 2, 3, 4, 5 }) EXPECT_EQ(look(seed).n_rows, 100);
    weir_prefix_leave_disk(prefix_, 20);
    EXPECT_EQ(look(1).n_rows, 100) << "it cannot be dropped yet";
    EXPECT_EQ(weir_prefix_acquire_snapshot(prefix_, WEIR_STATE_CHECKPOINT, 0), nullptr);
    keep_last(6);
    EXPECT_EQ(stats().n_snapshots, 5);
    EXPECT_EQ(look(3).n_rows, 0) << "dropped";
    go_on(support::write_gate);
    EXPECT_EQ(stats().snapshots_out, 2);
    EXPECT_TRUE(look(1).waits);
    EXPECT_EQ(take(tokens(100, 1), nullptr).n_rows, 100);
}

// What becomes of a sequence while its state is written does not matter to the thread.
TEST_P(ColdStates, WhatIsWrittenMayBeDropped)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3 }) keep_last(seed);
    hang(support::write_gate);
    keep_last(4);
    ASSERT_TRUE(slow_.wait_until_reached());
    weir_kv_pages all = {};
    all.others[0] = n_pages_;
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, all));
    EXPECT_EQ(stats().n_snapshots, 0);
    sound();
    go_on(support::write_gate);
    EXPECT_EQ(weir_prefix_moves(prefix_), 0);
    EXPECT_EQ(stats().n_cold_snapshots, 0);
    EXPECT_EQ(weir_lower_tier_free_blocks(weir_prefix_lower_tier(prefix_)), n_cold_);
}

TEST_P(ColdStates, AWriteThatFailsDropsTheState)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3 }) keep_last(seed);
    writes_fail = true;
    keep_last(4);
    EXPECT_EQ(stats().snapshot_errors, 1);
    EXPECT_EQ(look(1).n_rows, 0);
    for (const int seed : { 2, 3, 4 }) EXPECT_EQ(look(seed).n_rows, 100);
    EXPECT_EQ(weir_lower_tier_free_blocks(weir_prefix_lower_tier(prefix_)), n_cold_);
}

// Sequences that continue there wait; others do not. What nothing takes leaves memory again.
TEST_P(ColdStates, AReadThatWaitsStopsNothing)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3, 4, 5 }) keep_last(seed);
    hang(support::all_reads_gate);
    EXPECT_TRUE(look(1).waits);
    EXPECT_TRUE(look(1).waits);
    EXPECT_EQ(weir_prefix_moves(prefix_), 1);
    ASSERT_TRUE(slow_.wait_until_reached());
    EXPECT_FALSE(weir_prefix_end_moves(prefix_));
    for (const int seed : { 3, 4, 5 }) EXPECT_EQ(look(seed).n_rows, 100);
    EXPECT_TRUE(look(2).waits);
    EXPECT_EQ(weir_prefix_moves(prefix_), 2);
    go_on(support::all_reads_gate);
    EXPECT_EQ(stats().snapshots_back, 2);
    EXPECT_EQ(look(1).n_rows, 100);
    EXPECT_EQ(look(1).n_rows, 100) << "for all that waited";
    EXPECT_TRUE(weir_prefix_end_moves(prefix_));
    sound();
    EXPECT_EQ(weir_prefix_moves(prefix_), 0);
    EXPECT_TRUE(look(2).waits) << "it was not taken";
    end_moves();
    EXPECT_EQ(look(2).n_rows, 100);
}

// A state for the same prompt again goes to disk, unless its turn was continued.
TEST_P(ColdStates, APromptComesAgainUntilItsTurnIsContinued)
{
    for (const bool is_continued : { false, true }) {
        open_cold(3);
        demotes_ = true;
        keep_as(WEIR_STATE_CHECKPOINT, tokens(60, 1), {}, 7);
        demotes_ = false;
        keep_as(WEIR_STATE_LAST, tokens(100, 1), {}, 7);
        if (is_continued) EXPECT_EQ(look(1).n_rows, 100);
        for (const int seed : { 2, 3, 4 }) keep_last(seed);
        keep_as(WEIR_STATE_CHECKPOINT, tokens(80, 9));
        end_moves();
        EXPECT_EQ(stats().snapshots_out, is_continued ? 2 : 3)
            << "sequences 1 and 2, and the prompt";
        EXPECT_EQ(rows(tokens(60, 1)), is_continued ? 0 : 60);
        EXPECT_EQ(take(tokens(60, 1), nullptr).n_rows, is_continued ? 0 : 60);
        end_moves();
        EXPECT_EQ(take(tokens(100, 1), nullptr).n_rows, 100);
        end_moves();
        TearDown();
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
    }
    open(4, 1, 1);
}

// The sequence is dropped while its state is read; or the state cannot be read.
TEST_P(ColdStates, WhatIsReadMayBeDropped)
{
    for (const bool fails : { false, true }) {
        open_cold(3);
        keep_as(WEIR_STATE_CHECKPOINT, tokens(40, 1));
        for (const int seed : { 1, 2, 3, 4 }) keep_last(seed);
        ASSERT_EQ(stats().n_cold_snapshots, 2);
        hang(support::all_reads_gate);
        EXPECT_TRUE(look(1).waits);
        ASSERT_TRUE(slow_.wait_until_reached());
        reads_fail = fails;
        weir_kv_pages all = {};
        all.others[0] = n_pages_;
        if (!fails) EXPECT_TRUE(weir_prefix_reclaim(prefix_, all));
        go_on(support::all_reads_gate);
        EXPECT_EQ(stats().snapshot_errors, fails);
        EXPECT_EQ(look(1).n_rows, fails ? 40 : 0) << "the state before it";
        EXPECT_FALSE(look(1).waits);
        EXPECT_EQ(weir_prefix_moves(prefix_), 0);
        EXPECT_EQ(stats().n_cold_snapshots, fails);
        TearDown();
        slow_.is_open = slow_.is_reached = false;
        prefix_ = nullptr, store_ = nullptr, ledger_ = nullptr;
    }
    open(4, 1, 1);
}

// The last state on disk is dropped: the thread truncates the file, which may take its time.
TEST_P(ColdStates, AnEmptyFileIsTruncatedMeanwhile)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3, 4 }) keep_last(seed);
    ASSERT_EQ(stats().n_cold_snapshots, 1);
    hang(support::shrink_gate);
    weir_kv_pages all = {};
    all.others[0] = n_pages_;
    EXPECT_TRUE(weir_prefix_reclaim(prefix_, all));
    EXPECT_EQ(stats().n_cold_snapshots, 0);
    ASSERT_TRUE(slow_.wait_until_reached());
    go_on(support::shrink_gate);
    for (const int seed : { 5, 6, 7, 8 }) keep_last(seed);
    EXPECT_EQ(stats().n_cold_snapshots, 1);
    EXPECT_TRUE(look(5).waits);
    end_moves();
    EXPECT_EQ(look(5).n_rows, 100);
}

// Where no part of a file can be given back, states would take what blocks have written to.
TEST_P(ColdStates, StayInMemoryOnAFileSystemWithoutHoles)
{
    is_old_file_system = true;
    open_cold(3);
    is_old_file_system = false;
    for (const int seed : { 1, 2, 3, 4, 5 }) keep_last(seed);
    EXPECT_EQ(stats().n_snapshots, 3);
    EXPECT_EQ(stats().n_cold_snapshots, 0);
    EXPECT_EQ(stats().snapshots_out, 0);
    for (const int seed : { 3, 4, 5 }) EXPECT_EQ(look(seed).n_rows, 100);
}

// The service is closed while the disk works.
TEST_P(ColdStates, ClosingWaitsForTheThread)
{
    open_cold(3);
    for (const int seed : { 1, 2, 3 }) keep_last(seed);
    hang(support::write_gate);
    keep_last(4);
    ASSERT_TRUE(slow_.wait_until_reached());
}

INSTANTIATE_TEST_SUITE_P(
    Models, ColdStates, ::testing::Values(Kind{ true, false }), prefix::kind_name
);
INSTANTIATE_TEST_SUITE_P(
    Models, PrefixStates, ::testing::Values(Kind{ true, false }), prefix::kind_name
);

} // namespace
