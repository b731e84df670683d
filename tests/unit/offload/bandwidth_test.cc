// The measurement is sane; nothing is asserted about speed.
#include "offload/bandwidth.h"

#include <gtest/gtest.h>

namespace {

TEST(Bandwidth, ReportsTheBestAndAMedianThatIsNoBetter)
{
    weir_bandwidth bandwidth = {};
    weir_error error;
    ASSERT_EQ(weir_bandwidth_measure(&bandwidth, 2, 1 << 20, 5, &error), WEIR_OK);
    EXPECT_GT(bandwidth.median, 0);
    EXPECT_GE(bandwidth.best, bandwidth.median);
    EXPECT_EQ(bandwidth.n_threads, 2);
}

TEST(Bandwidth, TakesSizesThatAreNoMultipleOfAnything)
{
    weir_bandwidth bandwidth = {};
    EXPECT_EQ(weir_bandwidth_measure(&bandwidth, 3, 1, 1, nullptr), WEIR_OK);
    EXPECT_EQ(weir_bandwidth_measure(&bandwidth, 3, (3 << 20) + 7, 1, nullptr), WEIR_OK);
}

TEST(Bandwidth, OfADeviceLeavesNothingThere)
{
    weir_device *device = nullptr;
    weir_bandwidth bandwidth = {};
    weir_error error = {};
    char why[320];
    ASSERT_EQ(weir_device_open(&device, "checked", why, sizeof why, &error), WEIR_OK) << error.text;
    EXPECT_EQ(weir_bandwidth_measure_device(&bandwidth, device, 2, &error), WEIR_OK) << error.text;
    EXPECT_GT(bandwidth.median, 0);
    EXPECT_GE(bandwidth.best, bandwidth.median);
    EXPECT_EQ(weir_bandwidth_measure_device(&bandwidth, device, -1, &error), WEIR_EINVAL);
    weir_device_close(device); /* asserts that its memory was freed */
}

TEST(Bandwidth, RefusesNonsense)
{
    weir_bandwidth bandwidth = {};
    EXPECT_EQ(weir_bandwidth_measure(&bandwidth, -1, 0, 0, nullptr), WEIR_EINVAL);
    EXPECT_EQ(weir_bandwidth_measure(&bandwidth, 1, 0, 1 << 20, nullptr), WEIR_EINVAL);
    EXPECT_EQ(weir_bandwidth_measure(&bandwidth, 1, SIZE_MAX, 1, nullptr), WEIR_EINVAL);
}

}  // namespace
