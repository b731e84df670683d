/* Whole models: logits, hidden states and decoded tokens of other programs, by the golden runner.
 */
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace {

/* What was skipped, but for tensors that the engine keeps to itself or never computes. */
std::set<std::string> absent_of(const golden::Counts &counts)
{
    std::set<std::string> absent;
    for (const std::string &name : counts.skips)
        if (name.find(":prompt.final_norm") == name.npos && name.find(":trace") == name.npos &&
            name.find(":prompt.k") == name.npos && name.find(":prompt.v") == name.npos)
            absent.insert(name);
    return absent;
}

TEST(Golden, WholeModels)
{
    golden::Counts counts;
    golden::run_models("tests/golden/models", &counts);
    EXPECT_EQ(counts.passed, 18);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(absent_of(counts), std::set<std::string>());
}

TEST(Golden, FurtherFamilies)
{
    golden::Counts counts;
    golden::run_models("tests/golden/families", &counts);
    EXPECT_EQ(counts.passed, 54);
    EXPECT_EQ(counts.failed, 0);
    EXPECT_EQ(absent_of(counts), std::set<std::string>());
}

} // namespace
