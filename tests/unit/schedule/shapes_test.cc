/* However a conversation goes on, at most the turn that changed is computed; and 64 states hold 60
 * turns. */
#include "tests/bench/shapes.h"

#include <gtest/gtest.h>

#include "tests/every_nth.h"

namespace {

shapes::Options small(const char *model)
{
    shapes::Options options;
    options.model = std::string("tests/golden/models/") + model;
    options.settings = { "kernels.activations=f32", "kernels.threads=1", "batch.chunk=64",
                         "batch.max_sequences=4",   "batch.queue=4",     "model.context=2048" };
    options.system = 70;
    options.question = 14;
    options.thoughts = 6;
    options.answer = 3;
    return options;
}

class Shapes : public ::testing::TestWithParam<const char *> {
  protected:
    bool is_dense() const { return std::string(GetParam()) == "qwen3"; }
    shapes::Options options_ = small(GetParam());
    shapes::Row row_;
};

TEST_P(Shapes, ComputeAtMostTheTurnThatChanged)
{
    for (const std::string &name : shapes::names()) {
        ASSERT_EQ(shapes::run(options_, name, &row_), "");
        EXPECT_GE(row_.requests, options_.turns - 1) << name;
        EXPECT_EQ(row_.beyond, 0) << name << ": " << row_.computed << " of " << row_.changed;
        EXPECT_EQ(row_.n_states, is_dense() ? 0 : 64);
    }
}

/* The next turn, and one that goes back to any of them. */
TEST_P(Shapes, OneConversationOfSixtyTurns)
{
    options_.turns = 60;
    for (const char *const name : { "append", "strip-thoughts" }) {
        ASSERT_EQ(shapes::run(options_, name, &row_), "");
        EXPECT_EQ(row_.requests, 59);
        EXPECT_EQ(row_.beyond, 0) << name << ": " << row_.computed << " of " << row_.changed;
    }
    for (const int k : { 1, 2, 20, 45, 59 }) {
        options_.branch_at = k;
        ASSERT_EQ(shapes::run(options_, "branch", &row_), "");
        EXPECT_EQ(row_.requests, 1);
        EXPECT_EQ(row_.beyond, 0) << k << ": " << row_.computed << " of " << row_.changed;
    }
}

/* Thirty turns, and twenty-nine that go back to one of them. */
TEST_P(Shapes, ThirtyTurnsWithABranchAtEach)
{
    options_.turns = 30;
    ASSERT_EQ(shapes::run(options_, "branch", &row_), "");
    EXPECT_EQ(row_.requests, 29);
    EXPECT_EQ(row_.beyond, 0) << row_.computed << " of " << row_.changed;
}

TEST_P(Shapes, SixtyConversationsOfOneTurn)
{
    ASSERT_EQ(shapes::run_idle(options_, 60, &row_), "");
    EXPECT_EQ(row_.requests, 60);
    EXPECT_EQ(row_.beyond, 0) << row_.computed << " of " << row_.changed;
}

/* More than fit: what all of them begin with stays. */
TEST_P(Shapes, ManyConversationsKeepTheirSystemPrompt)
{
    ASSERT_EQ(shapes::run_idle(options_, 200, &row_), "");
    EXPECT_GE(row_.prompt - row_.computed, row_.requests * 3 / 4 * options_.system);
}

TEST_P(Shapes, TwentyConversationsOfThreeTurnsWithoutTheirThoughts)
{
    ASSERT_EQ(shapes::run_idle(options_, 20, &row_, true), "");
    EXPECT_EQ(row_.requests, 40);
    EXPECT_EQ(row_.beyond, 0) << row_.computed << " of " << row_.changed;
}

/* Policies that observe all of a prompt, or evict within it, and others: at most a chunk more. A
 * prompt that goes back to an earlier turn than the last is computed from the first checkpoint
 * on. */
TEST_P(Shapes, WithAPolicyAtMostAChunkMore)
{
    const std::vector<std::vector<std::string>> policies = {
        { "kv.policy.name=h2o", "kv.policy.options=sinks=2,recent=16" },
        { "kv.policy.name=scissorhands", "kv.policy.options=recent=16,every=8,history=64" },
        { "kv.policy.name=h2o", "kv.policy.options=sinks=2,recent=16,in_prompt=true" },
        { "kv.policy.name=keydiff", "kv.policy.options=every=8,in_prompt=true" },
        { "kv.policy.name=snapkv", "kv.policy.options=window=8,every=16" },
        { "kv.policy.name=rkv", "kv.policy.options=window=8,every=16,recent=8" },
        { "kv.policy.name=tova", "kv.policy.options=every=1" },
        { "kv.policy.name=sinks", "kv.policy.options=sinks=4,every=1" },
    };
    for (const auto &policy : weir_test::every_nth(policies, 4)) {
        options_ = small(GetParam());
        options_.settings.insert(options_.settings.end(), policy.begin(), policy.end());
        options_.settings.emplace_back("kv.policy.budget=48");
        options_.chunk = 64;
        for (const std::string &name : shapes::names()) {
            if (name == "branch") continue;
            ASSERT_EQ(shapes::run(options_, name, &row_), "");
            EXPECT_EQ(row_.beyond, 0) << policy[0] << " " << policy[1] << ", " << name << ": "
                                      << row_.computed << " of " << row_.changed;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Shapes, ::testing::Values("tq", "qwen3"));

} // namespace
