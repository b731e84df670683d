/* Golden G31: the sampling chain of Hugging Face's generate() on fixed logits, step by step, by the
 * golden runner. */
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

TEST(Golden, EveryStepOfEveryCase)
{
    golden::Counts counts;
    golden::run_samplers("tests/golden/models", &counts);
    EXPECT_EQ(counts.passed, 31);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(counts.skipped, 0);
}
