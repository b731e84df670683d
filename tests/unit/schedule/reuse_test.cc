/* Warm answers are cold answers: whatever was kept, dropped, preempted or cancelled before. */
#include <cstring>

#include "tests/every_nth.h"
#include "tests/unit/schedule/reuse.h"

namespace {

using support::Call;
using support::Reuse;
using weir_test::every_nth;

TEST_F(Reuse, APromptAndWhatContinuesItAreFoundAgain)
{
    for (const char *const model : { "tq", "qwen3", "mistral", "deepseek3" }) {
        open(model, 2);
        const auto tokens = prompt(1, 200);
        const auto cold = run(tokens, nullptr, false);
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_EQ(run(tokens), cold);
        EXPECT_EQ(usage_.n_cached, 0) << "what did not ask for it was not kept";
        EXPECT_EQ(run(tokens), cold);
        EXPECT_EQ(usage_.n_cached, 199) << model << ": " << usage_.reuse;
        EXPECT_EQ(run(tokens, nullptr, false), cold);
        EXPECT_EQ(usage_.n_cached, 0);
        auto turn = tokens;
        turn.insert(turn.end(), cold.begin(), cold.end());
        const auto more = prompt(2, 30);
        turn.insert(turn.end(), more.begin(), more.end());
        const auto warm = run(turn);
        EXPECT_EQ(usage_.n_cached, 200 + 11)
            << model << ": the last token of an answer is not computed";
        EXPECT_EQ(run(turn, nullptr, false), warm);
        EXPECT_EQ(run(tokens, "salt"), cold);
        EXPECT_EQ(usage_.n_cached, 0);
        EXPECT_STREQ(usage_.reuse, "nothing is cached under this salt");
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

// A client that writes the answer anew: the state before the answer's first token serves.
TEST_F(Reuse, StatesAreKeptWhereTurnsBegin)
{
    open("tq", 2);
    auto tokens = prompt(1, 200);
    Call first(tokens, 12);
    first.request.cache_prompt = true;
    first.request.turn_starts[0] = 190;
    first.request.turn_starts[1] = 150;
    ASSERT_EQ(first.submit(service_, &error_), WEIR_OK);
    first.wait();
    for (const int differs : { 195, 190, 160 }) {
        auto other = tokens;
        other[(size_t)differs] += 1;
        other.resize(220, 5);
        const auto warm = run(other);
        EXPECT_EQ(usage_.n_cached, differs >= 190 ? 190 : 150);
        EXPECT_EQ(usage_.n_matched, differs);
        EXPECT_EQ(run(other, nullptr, false), warm);
    }
}

TEST_F(Reuse, OffIsOff)
{
    open("tq", 2, nullptr, 512, 0, { "kv.reuse=off" });
    const auto tokens = prompt(1, 200);
    const auto cold = run(tokens);
    EXPECT_EQ(run(tokens), cold);
    EXPECT_EQ(usage_.n_cached, 0);
}

TEST_F(Reuse, RandomSchedulesGiveColdAnswers)
{
    for (const char *const model : { "tq", "qwen3" })
        for (unsigned seed = 1; seed <= 3 && !HasFailure(); seed += (unsigned)every_nth(3))
            random_schedule(model, seed, "kv.format=f16");
}

TEST_F(Reuse, RandomSchedulesWithADiskGiveColdAnswers)
{
    unsigned seed = 1;
    for (const char *const format : { "f16", "kivi4/turbo3" })
        for (const char *const model : { "tq", "qwen3" })
            if (!HasFailure())
                random_schedule(model, seed++, std::string("kv.format=") + format, true);
    EXPECT_GT(blocks_out_, 100);
    EXPECT_GT(blocks_read_, 250);
}

// Few sequences find room for their sinks, so kept ones are dropped for them while there is room
// for all else.
TEST_F(Reuse, RandomSchedulesWithSinksGiveColdAnswers)
{
    unsigned seed = 1;
    for (const char *const format : every_nth({ "turbo4", "q8_0", "kivi4" }, 3)) {
        const std::string setting = std::string("kv.format=") + format;
        random_schedule(seed % 2 ? "tq" : "qwen3", seed, setting, false, seed % 2 ? 64 : 130);
        if (!HasFailure())
            random_schedule(seed % 2 ? "qwen3" : "tq", seed, setting, true, seed % 2 ? 130 : 64);
        if (HasFailure()) return;
        seed++;
    }
    EXPECT_GT(blocks_out_, 50 / every_nth(3));
}

// The state at the last page's end before the end of the turn is kept, and the one before it is
// not.
TEST_F(Reuse, PagedSequencesContinueAtWholePages)
{
    for (const char *const model : { "tq", "qwen3" }) {
        open(model, 2, nullptr, 1024, 0, { "kv.format=int8/kivi4" });
        auto tokens = prompt(1, 200);
        const auto cold = run(tokens, nullptr, true, 300);
        EXPECT_EQ(run(tokens, nullptr, true, 300), cold);
        EXPECT_EQ(usage_.n_cached, 192) << model << ": " << usage_.reuse;
        tokens.insert(tokens.end(), cold.begin(), cold.end());
        tokens.resize(tokens.size() + 20, 5);
        const auto warm = run(tokens);
        EXPECT_EQ(usage_.n_cached, 448) << model << ": 499 rows were computed";
        EXPECT_EQ(run(tokens, nullptr, false), warm);
        tokens.resize(400);
        (void)run(tokens, nullptr, true, 1);
        EXPECT_EQ(usage_.n_cached, strcmp(model, "tq") == 0 ? 192 : 384) << model;
        weir_engine_close(engine_);
        engine_ = nullptr;
    }
}

} // namespace
