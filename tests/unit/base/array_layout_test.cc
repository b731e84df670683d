/* Arrays in one allocation: measured and placed alike, and sizes that overflow. */
#include "engine/base/array_layout.h"

#include <gtest/gtest.h>

namespace {

struct Arrays {
    int32_t *a;
    double *b;
    char *c;
};

size_t place(Arrays *arrays, char *base)
{
    weir_arrays layout = { base, 0 };
    arrays->a = static_cast<int32_t *>(weir_arrays_place(&layout, sizeof *arrays->a, 17));
    arrays->b = static_cast<double *>(weir_arrays_place3(&layout, sizeof *arrays->b, 2, 3, 4));
    arrays->c = static_cast<char *>(weir_arrays_place(&layout, 1, 0));
    return layout.bytes;
}

TEST(ArrayLayout, MeasuresWhatItPlaces)
{
    alignas(64) char memory[320];
    Arrays arrays = {};
    ASSERT_EQ(place(&arrays, nullptr), 320u) << "17 * 4 and 24 * 8 bytes, in pieces of 64";
    EXPECT_EQ(arrays.a, nullptr);
    EXPECT_EQ(place(&arrays, memory), 320u);
    EXPECT_EQ(reinterpret_cast<char *>(arrays.a), memory);
    EXPECT_EQ(reinterpret_cast<char *>(arrays.b), memory + 128);
    EXPECT_EQ(arrays.c, nullptr) << "it is empty";
}

TEST(ArrayLayout, TooLargeStaysTooLarge)
{
    const int64_t sizes[][3] = { { INT64_MAX, 1, 1 },
                                 { int64_t{ 1 } << 31, int64_t{ 1 } << 31, 8 },
                                 { int64_t{ 1 } << 57, 1, 1 },
                                 { -1, 1, 1 } };
    for (const auto &size : sizes) {
        char memory[64];
        weir_arrays layout = { memory, 0 };
        EXPECT_EQ(weir_arrays_place3(&layout, 4, size[0], size[1], size[2]), nullptr);
        EXPECT_EQ(layout.bytes, WEIR_ARRAYS_TOO_LARGE);
        EXPECT_EQ(weir_arrays_place(&layout, 1, 8), nullptr) << "nothing fits after it";
        EXPECT_EQ(layout.bytes, WEIR_ARRAYS_TOO_LARGE);
        EXPECT_GT(16 * layout.bytes, layout.bytes) << "a sum of some does not wrap";
    }
}

} // namespace
