#include "tools/eval/measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

TEST(Divergence, OfKnownDistributions)
{
    const float full[] = { std::log(0.5f), std::log(0.25f), std::log(0.25f) },
                other[] = { 7, 7, 7 };
    const weir_divergence d = weir_divergence_of(full, other, 3, 1);
    EXPECT_NEAR(d.kl, 0.5 * std::log(1.5) + 0.5 * std::log(0.75), 1e-7);
    EXPECT_NEAR(d.log_probability, std::log(1.0 / 3), 1e-7);
    EXPECT_TRUE(d.same_best); /* of equals the first */
    const float shifted[] = { full[0] + 90, full[1] + 90, full[2] + 90 }, turned[] = { 0, 2, 1 };
    EXPECT_NEAR(weir_divergence_of(full, shifted, 3, 0).kl, 0.0, 1e-5);
    EXPECT_FALSE(weir_divergence_of(full, turned, 3, 0).same_best);
    const float far[] = { 0, 1000, -1000 }; /* nothing overflows */
    EXPECT_NEAR(weir_divergence_of(far, full, 3, 0).kl, -std::log(0.25), 1e-6);
    EXPECT_NEAR(weir_log_probability(full, 3, 2), std::log(0.25), 1e-7);
}

/* Brown, Cai and DasGupta (2001): 95 % intervals of Wilson. */
TEST(Interval, WilsonOfKnownShares)
{
    const weir_interval half = weir_wilson(5, 10, 1.96), none = weir_wilson(0, 10, 1.96),
                        all = weir_wilson(10, 10, 1.96);
    EXPECT_NEAR(half.low, 0.2366, 1e-4);
    EXPECT_NEAR(half.high, 0.7634, 1e-4);
    EXPECT_DOUBLE_EQ(none.low, 0.0);
    EXPECT_NEAR(none.high, 0.2775, 1e-4);
    EXPECT_NEAR(all.low, 1 - none.high, 1e-12);
    EXPECT_DOUBLE_EQ(all.high, 1.0);
    EXPECT_DOUBLE_EQ(weir_wilson(0, 0, 1.96).high, 1.0);
}

TEST(Interval, BootstrapCoversTheMeanAndRepeats)
{
    std::vector<double> values, scratch(2000);
    for (int i = 0; i < 400; i++) values.push_back(i % 4 == 0 ? 1.0 : 0.0);
    const weir_interval got = weir_bootstrap(
                            values.data(), values.size(), 0.95, 3, scratch.data(), scratch.size()
                        ),
                        again = weir_bootstrap(
                            values.data(), values.size(), 0.95, 3, scratch.data(), scratch.size()
                        ),
                        wilson = weir_wilson(100, 400, 1.96);
    EXPECT_NEAR(got.low, wilson.low, 0.01);
    EXPECT_NEAR(got.high, wilson.high, 0.01);
    EXPECT_EQ(got.low, again.low);
    EXPECT_EQ(got.high, again.high);
    const double same[] = { 2.5, 2.5 };
    EXPECT_DOUBLE_EQ(weir_bootstrap(same, 2, 0.95, 1, scratch.data(), 50).low, 2.5);
    EXPECT_DOUBLE_EQ(weir_bootstrap(same, 0, 0.95, 1, scratch.data(), 50).high, 0.0);
}

} // namespace
