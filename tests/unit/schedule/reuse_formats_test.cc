/* Warm answers are cold answers in every format of KV. A file of its own: the race check, which has
 * seen the same threads in reuse_test, leaves it out. */
#include "tests/unit/schedule/reuse.h"

namespace {

using support::Reuse;

TEST_F(Reuse, RandomSchedulesGiveColdAnswersInEveryFormat)
{
    const char *const formats[] = { "f32",          "bf16",       "q8_0",     "q4_0",
                                    "int8",         "fp8_e4m3",   "fp8_e5m2", "kivi2",
                                    "kivi4/turbo3", "q8_0/kivi8", "turbo2",   "turbo4" };
    unsigned seed = 1;
    for (const char *const format : formats)
        for (const char *const model : { "tq", "qwen3" })
            if (!HasFailure()) random_schedule(model, seed++, std::string("kv.format=") + format);
}

TEST_F(Reuse, RandomSchedulesWithADiskGiveColdAnswersInCodedFormats)
{
    unsigned seed = 5;
    for (const char *const format : { "q8_0", "int8" })
        for (const char *const model : { "tq", "qwen3" })
            if (!HasFailure())
                random_schedule(model, seed++, std::string("kv.format=") + format, true);
    EXPECT_GT(blocks_out_, 100);
    EXPECT_GT(blocks_read_, 250);
}

TEST_F(Reuse, RandomSchedulesOfOtherStatesGiveColdAnswers)
{
    unsigned seed = 3;
    for (const char *const model : { "../families/nemotron-h", "../families/granite-hybrid",
                                     "../families/kimi-linear", "../families/falcon-h1" })
        for (const bool tiered : { false, true, false })
            if (!HasFailure()) random_schedule(model, seed++, "kv.format=f16", tiered);
}

} // namespace
