/* Whole models: logits, hidden states and decoded tokens of other programs, by the golden runner.
 */
#include <gtest/gtest.h>

#include "tests/golden/golden.h"

namespace {

TEST(Golden, WholeModels)
{
    golden::Counts counts;
    golden::run_models("tests/golden/models", &counts);
    EXPECT_EQ(counts.passed, 15);
    EXPECT_EQ(counts.failed, 0);
    /* Of architectures that the engine does not have; the others have tensors that it keeps to
     * itself. */
    std::set<std::string> absent;
    for (const std::string &name : counts.skips)
        if (name.find(":prompt.final_norm") == name.npos && name.find(":trace") == name.npos)
            absent.insert(name);
    EXPECT_EQ(
        absent, (std::set<std::string>{ "models/deepseek3/model.safetensors",
                                        "models/tq-moe/model.safetensors",
                                        "models/tq-moe/tq-moe-f16.gguf" })
    );
}

} // namespace
