/* The benchmark of steps works: in a small form, whose times decide nothing. */
#include "tests/bench/steps.h"

#include <gtest/gtest.h>

namespace {

steps::Figures measured(
    bool prefill, int queued, const char *disk, steps::Options options = steps::Options()
)
{
    steps::Figures figures;
    options.sequences = 4;
    options.layers = 3;
    options.kv_heads = 2;
    options.pool_tokens = 16384;
    options.context = 200;
    options.steps = 16;
    options.prefill = prefill;
    options.queued = queued;
    options.disk = disk;
    options.folder = ::testing::TempDir();
    EXPECT_EQ(steps::run(options, &figures), "");
    EXPECT_EQ(figures.kv_heads, 6);
    EXPECT_GE(figures.pool_tokens, 16384);
    return figures;
}

TEST(Steps, PartsAddUpToTheSteps)
{
    const steps::Figures f = measured(false, 0, "");
    double sum = 0.0;
    EXPECT_EQ(f.steps, 16);
    EXPECT_GT(f.median_us, 0.0);
    EXPECT_LE(f.median_us, f.p99_us);
    EXPECT_LE(f.p99_us, f.most_us);
    for (size_t i = 0; i < f.part_us.size(); i++) {
        const bool has_norms = i == WEIR_STEP_FORWARD;
        EXPECT_GT(f.part_us[i] + (has_norms ? f.norms_us : 0.0), 0.0)
            << steps::part_name(static_cast<weir_step_part>(i));
        sum += f.part_us[i];
    }
    /* Both sides have seen the same 16 steps, give or take the ends of two. */
    EXPECT_GT(sum + f.norms_us, 0.0);
    EXPECT_LT(sum, 18.0 * f.most_us);
}

TEST(Steps, APromptIsComputedNextToThem)
{
    const steps::Figures alone = measured(false, 0, ""), mixed = measured(true, 0, "");
    EXPECT_EQ(mixed.steps, 16);
    EXPECT_EQ(mixed.batch_rows, 16 * (3 + 128));
    EXPECT_EQ(alone.batch_rows, 16 * 4);
}

TEST(Steps, JobsWaitAndPagesMayLeave)
{
    EXPECT_EQ(measured(false, 3, "").batch_rows, 16 * 4);
    EXPECT_EQ(measured(false, 0, "64MiB").batch_rows, 16 * 4);
}

TEST(Steps, AnswersAreSampledFromALargeVocabulary)
{
    steps::Options options;
    options.vocabulary = 4096;
    options.sampled = true;
    const steps::Figures f = measured(false, 0, "", options);
    EXPECT_EQ(f.batch_rows, 16 * 4);
    EXPECT_GT(f.part_us[WEIR_STEP_SAMPLE], 0.0);
}

/* Others end after three tokens; each time their prompt is found again. */
TEST(Steps, AnswersEndAndPromptsAreShared)
{
    steps::Options options;
    options.answer = 3;
    options.shared = true;
    const steps::Figures f = measured(false, 0, "", options);
    EXPECT_EQ(f.steps, 16);
    EXPECT_GE(f.answers, 3 * (16 / 3 - 1));
    EXPECT_GE(f.cached_tokens, f.answers * 192) << "all but what is left of its last page";
    EXPECT_EQ(measured(false, 0, "").answers, 0);
}

} // namespace
