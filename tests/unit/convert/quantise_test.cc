// The quantisers: how near the decoded values are, importance, threads, and inputs at the edges.
#include "tools/convert/quantise.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/ref/dequantise.h"

namespace {

struct Type {
    const char *name;
    /* Root of the mean square error over that of the values, of normal rows: 0.15 % above what is
     * measured, and below that of llama.cpp's quantiser (docs/quantisation.md). */
    double error;
    /* How near a value 150 times as large as the others is: without a level of 0, others in its
     * group lose more than it gains. */
    float outlier = 0.18f;
    double again = 0; /* the same error when the decoded values are quantised again */
};
const Type types[] = {
    { "f32", 0 },
    { "f16", 0.00020914 },
    { "bf16", 0.0016331 },
    { "q8_0", 0.0052131 },
    { "q4_0", 0.080439 },
    { "q4_1", 0.069246 },
    { "q5_0", 0.039314 },
    { "q5_1", 0.033415 },
    { "q2_k", 0.26181, 0.18f, 0.025 },
    { "q3_k", 0.14351 },
    { "q4_k", 0.069596, 0.18f, 0.0043 },
    { "q5_k", 0.034214, 0.18f, 0.0049 },
    { "q6_k", 0.016364, 0.18f, 0.00062 },
    { "iq4_nl", 0.072642 },
    { "iq4_xs", 0.073081 },
    { "iq3_s", 0.1285, 0.36f },
    { "iq3_xxs", 0.17606, 0.42f },
    { "iq2_s", 0.23769, 1.05f },
    { "iq2_xs", 0.28509, 1.05f },
    { "iq2_xxs", 0.32792, 1.55f },
    { "iq1_s", 0.44308, 0.9f },
    { "iq1_m", 0.41042, 0.52f },
    { "tq1_0", 0.43275 },
    { "tq2_0", 0.43275 },
    { "mxfp4", 0.11172 },
    { "nvfp4", 0.08935 },
    { "q2_0", 0.34876 },
    { "q1_0", 0.60216, 3.0f },
};

constexpr int64_t n_rows = 24, n = 512;

std::vector<float> normal_rows()
{
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::vector<float> x(n_rows * n);
    for (float &v : x) v = normal(random);
    return x;
}

weir_dtype dtype_of(const char *name)
{
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++)
        if (std::string(weir_dtype_of(static_cast<weir_dtype>(i)).name) == name)
            return static_cast<weir_dtype>(i);
    ADD_FAILURE() << name;
    return WEIR_F32;
}

std::vector<unsigned char> packed(
    weir_dtype dtype, const std::vector<float> &x, const float *importance = nullptr,
    int64_t width = n
)
{
    weir_error error = {};
    const int64_t rows = static_cast<int64_t>(x.size()) / width;
    std::vector<unsigned char> out(weir_row_bytes(dtype, width) * static_cast<size_t>(rows), 0xAA);
    EXPECT_EQ(weir_quantise(out.data(), dtype, x.data(), rows, width, importance, &error), WEIR_OK)
        << error.text;
    return out;
}

std::vector<float> decoded(weir_dtype dtype, const std::vector<unsigned char> &bytes, size_t count)
{
    std::vector<float> out(count);
    EXPECT_EQ(
        weir_k_ref_dequantise(out.data(), bytes.data(), dtype, static_cast<int64_t>(count)), WEIR_OK
    );
    return out;
}

double squares(
    const std::vector<float> &x, const std::vector<float> &y, const float *importance = nullptr
)
{
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        sum += d * d * (importance != nullptr ? static_cast<double>(importance[i % n]) : 1.0);
    }
    return sum;
}

class Quantise : public ::testing::TestWithParam<Type> {};

TEST_P(Quantise, IsNearTheValues)
{
    const std::vector<float> x = normal_rows(), zero(x.size());
    const weir_dtype dtype = dtype_of(GetParam().name);
    const std::vector<float> y = decoded(dtype, packed(dtype, x), x.size());
    const double error = std::sqrt(squares(x, y) / squares(x, zero));
    EXPECT_LE(error, GetParam().error) << GetParam().name;
}

TEST_P(Quantise, ThreadsChangeNoBit)
{
    const std::vector<float> x = normal_rows();
    const weir_dtype dtype = dtype_of(GetParam().name);
    omp_set_num_threads(1);
    const std::vector<unsigned char> one = packed(dtype, x);
    omp_set_num_threads(5);
    const std::vector<unsigned char> five = packed(dtype, x);
    omp_set_num_threads(1);
    EXPECT_EQ(one, five);
}

TEST_P(Quantise, ZerosAreZeros)
{
    const std::vector<float> x(n);
    const weir_dtype dtype = dtype_of(GetParam().name);
    for (const float y : decoded(dtype, packed(dtype, x), x.size())) EXPECT_EQ(y, 0.0f);
}

TEST_P(Quantise, ValuesOfAllSizes)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    const double most = std::max(0.1, 2.0 * GetParam().error * GetParam().error);
    for (const float size : { 1e-30f, 1e-6f, 1.0f, 2000.0f, 60000.0f }) {
        std::vector<float> x(n);
        if (dtype == WEIR_NVFP4 && size > 448 * 6) continue; /* past its scales */
        for (int64_t i = 0; i < n; i++)
            x[static_cast<size_t>(i)] = size * std::sin(static_cast<float>(i));
        const std::vector<float> y = decoded(dtype, packed(dtype, x), x.size()), zero(x.size());
        for (const float v : y) ASSERT_TRUE(std::isfinite(v)) << size;
        EXPECT_LE(squares(x, y), 1.0001 * squares(x, zero)) << "worse than zeros: " << size;
        if (size >= 1.0f) EXPECT_LT(squares(x, y), most * squares(x, zero)) << size;
    }
}

TEST_P(Quantise, OneOutlier)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    for (const float outlier : { -3.0f, 3.0f }) {
        std::vector<float> x = normal_rows();
        x.resize(n);
        x[100] = outlier;
        const std::vector<float> y = decoded(dtype, packed(dtype, x), x.size());
        EXPECT_NEAR(y[100], outlier, GetParam().outlier) << GetParam().name;
        EXPECT_LT(squares(x, y), squares(x, std::vector<float>(n))) << GetParam().name;
    }
}

/* What a decoder gave is coded as it was; by K types nearly so. */
TEST_P(Quantise, DecodedValuesStay)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    const std::vector<float> x = normal_rows(), once = decoded(dtype, packed(dtype, x), x.size()),
                             twice = decoded(dtype, packed(dtype, once), x.size());
    const std::vector<float> zero(x.size());
    EXPECT_LE(std::sqrt(squares(once, twice) / squares(once, zero)), GetParam().again);
}

TEST_P(Quantise, ImportantColumnsAreNearer)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    const std::vector<float> x = normal_rows();
    std::vector<float> importance(n, 0.01f);
    for (size_t i = 0; i < importance.size(); i += 7) importance[i] = 10.0f;
    const std::vector<float> plain = decoded(dtype, packed(dtype, x), x.size()),
                             with = decoded(dtype, packed(dtype, x, importance.data()), x.size());
    if (!weir_dtype_of(dtype).quantised)
        EXPECT_EQ(plain, with);
    else
        EXPECT_LT(squares(x, with, importance.data()), squares(x, plain, importance.data()));
}

TEST_P(Quantise, ImportanceOfNothingIsNone)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    const std::vector<float> x = normal_rows(), none(n);
    EXPECT_EQ(packed(dtype, x), packed(dtype, x, none.data()));
}

TEST_P(Quantise, ImportanceOfAnySize)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    const std::vector<float> x = normal_rows(), zero(x.size());
    const double most = std::max(0.1, 2.0 * GetParam().error * GetParam().error);
    for (const float size : { 1e-44f, 3e38f }) {
        const std::vector<float> same(n, size);
        const std::vector<float> y = decoded(dtype, packed(dtype, x, same.data()), x.size());
        EXPECT_LT(squares(x, y), most * squares(x, zero)) << size;
    }
}

TEST_P(Quantise, RefusesWhatIsNotFinite)
{
    const weir_dtype dtype = dtype_of(GetParam().name);
    std::vector<unsigned char> out(weir_row_bytes(dtype, n));
    for (const float bad : { std::nanf(""), INFINITY, -INFINITY }) {
        std::vector<float> x(n, 1.0f);
        weir_error error = {};
        x[77] = bad;
        EXPECT_EQ(weir_quantise(out.data(), dtype, x.data(), 1, n, nullptr, &error), WEIR_EFORMAT);
        EXPECT_NE(std::string(error.text).find("element 77"), std::string::npos) << error.text;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Types, Quantise, ::testing::ValuesIn(types),
    [](const ::testing::TestParamInfo<Type> &info) { return std::string(info.param.name); }
);

TEST(Quantise, ValuesPastF16)
{
    weir_error error = {};
    std::vector<float> x(n, 1.0f);
    std::vector<unsigned char> out(4 * n);
    x[3] = 1e6f;
    EXPECT_EQ(weir_quantise(out.data(), WEIR_F16, x.data(), 1, n, nullptr, &error), WEIR_EFORMAT);
    EXPECT_NE(std::string(error.text).find("use bf16 or f32"), std::string::npos) << error.text;
    EXPECT_EQ(weir_quantise(out.data(), WEIR_BF16, x.data(), 1, n, nullptr, &error), WEIR_OK);
    x[3] = 3000.0f;
    EXPECT_EQ(weir_quantise(out.data(), WEIR_NVFP4, x.data(), 1, n, nullptr, &error), WEIR_EFORMAT);
    EXPECT_NE(std::string(error.text).find("up to 2688"), std::string::npos) << error.text;
}

/* Values of 0, d and -d are ternary already: they stay, whatever their importance. */
TEST(Quantise, TernaryIsExact)
{
    std::vector<float> x(n), importance(n);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = 0.0625f * (static_cast<float>(i * i % 7 % 3) - 1.0f);
        importance[i] = 1.0f + static_cast<float>(i % 5);
    }
    for (const weir_dtype dtype : { WEIR_TQ1_0, WEIR_TQ2_0, WEIR_Q2_0 })
        EXPECT_EQ(decoded(dtype, packed(dtype, x, importance.data()), x.size()), x);
}

/* Blocks that no quantiser made: all rows of grids, signs and scales. */
TEST(Quantise, RandomBlocksStay)
{
    std::mt19937 random(5);
    for (const weir_dtype dtype : { WEIR_IQ3_S, WEIR_IQ3_XXS, WEIR_IQ2_S, WEIR_IQ2_XS, WEIR_IQ2_XXS,
                                    WEIR_IQ1_S, WEIR_IQ1_M, WEIR_TQ1_0, WEIR_NVFP4 }) {
        const weir_dtype_info info = weir_dtype_of(dtype);
        const auto bytes = static_cast<size_t>(info.block_bytes);
        std::vector<unsigned char> blocks(weir_row_bytes(dtype, n_rows * n));
        for (size_t at = 0; at < blocks.size(); at += bytes) {
            unsigned char *const block = &blocks[at];
            for (size_t i = 0; i < bytes; i++) block[i] = static_cast<unsigned char>(random());
            /* A scale that is finite, and not tiny. */
            if (dtype == WEIR_IQ1_M)
                for (size_t i = 0; i < 4; i++)
                    block[49 + 2 * i] = static_cast<unsigned char>(
                        (block[49 + 2 * i] & 15) | (i < 3 ? block[i] & 0xF0 : 0x20)
                    );
            else if (dtype == WEIR_NVFP4)
                for (size_t i = 0; i < 4; i++) block[i] &= 0x77;
            else
                block[dtype == WEIR_TQ1_0 ? bytes - 1 : 1] = 0x2C;
        }
        const std::vector<float> once = decoded(dtype, blocks, n_rows * n),
                                 twice = decoded(dtype, packed(dtype, once), once.size());
        EXPECT_EQ(once, twice) << info.name;
    }
}

} // namespace
