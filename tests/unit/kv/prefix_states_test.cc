// Which recurrent state goes when there is no memory for another, and states on disk.
#include "tests/unit/kv/prefix_fixture.h"

namespace {

using prefix::Kind;
using prefix::Prefix;
using prefix::Text;

class PrefixStates : public Prefix {
  protected:
    // A text whose states have this rank.
    void keep_as(
        weir_state_rank rank, const Text &text, std::vector<int32_t> marks = {}, int64_t turn = 0
    )
    {
        rank_ = rank;
        turn_ = turn;
        keep(text, nullptr, std::move(marks));
    }
    int32_t rows(const Text &text)
    {
        return weir_prefix_match_length(prefix_, text.data(), (int32_t)text.size(), nullptr);
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
    keep_as(WEIR_STATE_POINT, text(256), { 64, 96, 250 }); // costs 64, 32, 154 and 6 tokens
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(256)), 250);
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(249)), 64) << "the one at 96";
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(249)), 0) << "the one at 64";
    EXPECT_EQ(rows(text(256)), 250);
}

// The one at 128 costs 64 tokens until that at 64 goes.
TEST_P(PrefixStates, AStateCostsMoreWithoutTheOneBefore)
{
    open(400, 100, 3);
    keep_as(WEIR_STATE_POINT, text(128, 1), { 64 });
    keep_as(WEIR_STATE_POINT, text(100, 2));
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(64, 1)), 0) << "of equal ones that at the lower slot";
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(100, 2)), 0) << "128 is more than 100";
    EXPECT_EQ(rows(text(128, 1)), 128);
}

TEST_P(PrefixStates, AnExpensiveOneGoesIfOthersAreUsed)
{
    open(400, 100, 2);
    keep_as(WEIR_STATE_POINT, text(200, 1));
    int n = 0;
    for (int seed = 2; rows(text(200, 1)) > 0 && n < 20; seed++, n++)
        keep_as(WEIR_STATE_POINT, text(64, seed));
    EXPECT_EQ(n, 5) << "after states of 192 tokens went";
}

TEST_P(PrefixStates, EndsOfTurnsStayAndPastOnesGoBeforeLastOnes)
{
    open(400, 100, 6); // one for points, one for past ends
    keep_as(WEIR_STATE_LAST, text(64, 1));
    keep_as(WEIR_STATE_LAST, text(300, 1)); // goes on: the first end is past
    for (const int seed : { 2, 3, 4 }) keep_as(WEIR_STATE_LAST, text(10, seed));
    keep_as(WEIR_STATE_POINT, text(500, 5));
    take_one(WEIR_STATE_LAST);
    EXPECT_EQ(rows(text(300, 1)), 300);
    EXPECT_EQ(rows(text(299, 1)), 0) << "it was past";
    EXPECT_EQ(rows(text(500, 5)), 500) << "points have one";
    EXPECT_EQ(rows(text(10, 2)), 10);
    keep_as(WEIR_STATE_POINT, text(400, 6));
    EXPECT_EQ(rows(text(500, 5)), 0) << "of points";
    for (const int seed : { 2, 3, 4 }) EXPECT_EQ(rows(text(10, seed)), 10);
}

// Two conversations whose prompts end with the same tokens, one of which drops its answer.
TEST_P(PrefixStates, AnAnswerThatIsNotContinuedGoesFirst)
{
    open(400, 100, 6);
    keep_as(WEIR_STATE_POINT, text(100), {}, 7); // where the answer begins
    keep_as(WEIR_STATE_LAST, text(150), {}, 7);
    Text other = text(180);
    for (size_t i = 100; i < other.size(); i++) other[i] = -1;
    weir_kv_sequence s = sequence(other);
    EXPECT_TRUE(weir_prefix_match(prefix_, &s, nullptr, 180).is_rewritten);
    EXPECT_EQ(s.n_computed, 100);
    weir_kv_sequence_reset(&s);
    s.n_tokens = 100;
    EXPECT_FALSE(weir_prefix_match(prefix_, &s, nullptr, 99).is_rewritten);
    weir_kv_sequence_close(&s);
    for (int seed = 2; seed < 6; seed++) keep_as(WEIR_STATE_LAST, text(10, seed));
    take_one(WEIR_STATE_POINT);
    EXPECT_EQ(rows(text(150)), 100) << "the answer's end went";
    s = sequence(text(180));
    EXPECT_FALSE(weir_prefix_match(prefix_, &s, nullptr, 180).is_rewritten) << "it goes on";
    weir_kv_sequence_close(&s);
}

// What is read for the second time has memory again.
TEST_P(PrefixStates, OnDiskAndBack)
{
    n_cold_ = 8;
    open(4 * 40, 100, 3, 4 * 20);
    const auto back = [&] { return weir_prefix_stats_of(prefix_).snapshots_back; };
    for (const int seed : { 1, 2, 3, 4, 5 }) keep_as(WEIR_STATE_LAST, text(100, seed));
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_snapshots, 5);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_cold_snapshots, 2);
    for (const int n : { 1, 2, 2, 2 }) {
        EXPECT_EQ(take(text(100, 1), nullptr).n_rows, 100);
        EXPECT_EQ(back(), n);
    }
    for (const int seed : { 2, 3, 4, 5 }) EXPECT_EQ(take(text(100, seed), nullptr).n_rows, 100);
    weir_kv_sequence s = sequence(text(100, 2));
    weir_prefix_snapshot mark;
    ASSERT_EQ(weir_prefix_match(prefix_, &s, nullptr, 100).n_rows, 100);
    ASSERT_EQ(weir_prefix_pin(prefix_, &s, nullptr, &mark, 1), 1) << "a file gets it from memory";
    uint64_t value;
    memcpy(&value, mark.state, sizeof value);
    EXPECT_EQ(value, prefix::digest(s.tokens, 100));
    weir_prefix_unpin(prefix_, &mark, 1);
    weir_kv_sequence_close(&s);
    weir_prefix_leave_disk(prefix_, 20);
    EXPECT_EQ(weir_prefix_stats_of(prefix_).n_cold_snapshots, 0);
    sound();
}

// A step may write so much and no more.
TEST_P(PrefixStates, AStepWritesABoundedNumberOfBytes)
{
    n_cold_ = 8;
    open(4 * 40, 100, 1, 4 * 20);
    keep_as(WEIR_STATE_LAST, text(100, 1));
    keep_as(WEIR_STATE_LAST, text(100, 2));
    EXPECT_TRUE(weir_prefix_may_read(prefix_));
    EXPECT_EQ(weir_prefix_stats_of(prefix_).snapshots_out, 1);
    for (int i = 0; i < WEIR_PREFIX_STEP_BYTES / WEIR_LOWER_TIER_ALIGNMENT; i++)
        (void)take(text(100, 1 + i % 2), nullptr);
    EXPECT_FALSE(weir_prefix_may_read(prefix_));
    const int64_t out = weir_prefix_stats_of(prefix_).snapshots_out;
    keep_as(WEIR_STATE_LAST, text(100, 3));
    EXPECT_EQ(weir_prefix_stats_of(prefix_).snapshots_out, out) << "the one in memory is dropped";
    weir_prefix_begin_step(prefix_);
    keep_as(WEIR_STATE_LAST, text(100, 4));
    EXPECT_EQ(weir_prefix_stats_of(prefix_).snapshots_out, out + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Models, PrefixStates, ::testing::Values(Kind{ true, false }), prefix::kind_name
);

} // namespace
