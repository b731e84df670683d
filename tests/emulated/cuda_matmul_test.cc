// The CUDA matmul on an emulated GPU, beyond what the parity cases ask: a row's bits in any
// batch, unusual activations, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/emulated/cuda_weight.h"

extern "C" const weir_kernel weir_kernel_cuda_matmul;

namespace weir_test {
namespace {

const weir_dtype kKept[] = { WEIR_F32,  WEIR_BF16, WEIR_F16,  WEIR_Q8_0,   WEIR_Q4_0,
                             WEIR_Q4_1, WEIR_Q5_0, WEIR_Q5_1, WEIR_IQ4_NL, WEIR_IQ4_XS,
                             WEIR_Q2_K, WEIR_Q3_K, WEIR_Q4_K, WEIR_Q5_K,   WEIR_Q6_K };

std::vector<float> products(const CudaWeight &w, const float *x, int64_t n_rows)
{
    std::vector<float> dst((size_t)(n_rows * w.weight.n_out), NAN);
    EXPECT_TRUE(run(weir_kernel_cuda_matmul, arguments(&w.weight, dst.data(), x, n_rows)));
    return dst;
}

// Devices differ in the kernels of halves only.
bool is_as_on_others(weir_dtype dtype)
{
    const char *const capability = getenv("WEIR_EMULATED_CAPABILITY");
    return capability && std::string(capability) == "90" && !weir_cuda_is_half(dtype);
}

TEST(CudaMatmul, ARowHasTheSameBitsInAnyBatch)
{
    for (const weir_dtype dtype : kKept)
        for (const int64_t n_in : { 768, 4608 }) { // slices of 256 and of 512, the last one shorter
            const int64_t n_out = n_in == 768 ? 35 : 17, most = 140;
            if (is_as_on_others(dtype)) continue;
            const CudaWeight w(dtype, n_out, n_in);
            const auto x = random_rows(most * n_in, 5);
            const auto all = products(w, x.data(), most);
            const auto expect_same = [&](int64_t first, int64_t n_rows) {
                const auto some = products(w, x.data() + first * n_in, n_rows);
                EXPECT_EQ(
                    std::memcmp(
                        some.data(), all.data() + first * n_out, some.size() * sizeof(float)
                    ),
                    0
                ) << weir_dtype_of(dtype).name
                  << ", rows " << first << " to " << first + n_rows << " of inputs " << n_in;
            };
            for (const int64_t row : { 0, 7, 8, 139 }) expect_same(row, 1);
            for (const int64_t n_rows : { 2, 4, 5, 8, 9, 33, 128, 129 }) expect_same(3, n_rows);
        }
}

// Warps take runs of slices of panels: whole panels where a matrix has many outputs, parts of one
// where it has few. Who sums a slice must not matter.
TEST(CudaMatmul, AnOutputHasTheSameBitsInAnyMatrix)
{
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16, WEIR_Q8_0 })
        for (const int64_t n_rows : { 1, 8, 13 }) {
            const int64_t n_in = 768, n_out = 611, n_few = 35;
            const CudaWeight many(dtype, n_out, n_in), few(dtype, n_few, n_in, n_out);
            const auto x = random_rows(n_rows * n_in, 5);
            const auto all = products(many, x.data(), n_rows),
                       some = products(few, x.data(), n_rows);
            for (int64_t r = 0; r < n_rows; r++)
                EXPECT_EQ(
                    std::memcmp(
                        all.data() + r * n_out, some.data() + r * n_few,
                        (size_t)n_few * sizeof(float)
                    ),
                    0
                ) << weir_dtype_of(dtype).name
                  << ", row " << r << " of " << n_rows;
        }
}

TEST(CudaMatmul, OutputsDoNotChangeEachOther)
{
    const int64_t n_in = 256, n_rows = 5;
    const CudaWeight codes(WEIR_Q4_K, 40, n_in), f16(WEIR_F16, 20, n_in), bf16(WEIR_BF16, 20, n_in),
        f32(WEIR_F32, 20, n_in);
    const CudaWeight *weights[] = { &codes, &f16, &bf16, &f32 };
    const auto x = random_rows(n_rows * n_in, 5);
    std::vector<float> dst[4];
    weir_matmul_args args = arguments(&codes.weight, nullptr, x.data(), n_rows);
    args.n_outputs = 4;
    for (int o = 0; o < 4; o++) {
        dst[o].resize((size_t)(n_rows * weights[o]->weight.n_out));
        args.outputs[o] = { &weights[o]->weight, dst[o].data(), nullptr, weights[o]->weight.n_out,
                            false };
    }
    ASSERT_TRUE(run(weir_kernel_cuda_matmul, args));
    for (int o = 0; o < 4; o++) EXPECT_EQ(dst[o], products(*weights[o], x.data(), n_rows));
}

TEST(CudaMatmul, UnusualActivations)
{
    for (const weir_dtype dtype : { WEIR_Q8_0, WEIR_F16, WEIR_BF16, WEIR_F32 })
        for (const int64_t holders : { 0, 40, 140 }) {
            const int64_t n_in = 64, n_out = 32, n_rows = 6 + holders;
            const CudaWeight w(dtype, n_out, n_in);
            std::vector<float> x((size_t)(n_rows * n_in), 0.0f);
            for (int64_t i = 0; i < n_in; i++)
                x[(size_t)(n_in + i)] = 1e-42f, x[(size_t)(4 * n_in + i)] = 1e30f;
            x[2 * n_in + 3] = INFINITY;
            x[3 * n_in + 40] = NAN;
            x[5 * n_in] = 1.0f, x[5 * n_in + 1] = 1e-9f;
            const auto got = products(w, x.data(), n_rows);
            for (int64_t i = 0; i < n_out; i++) {
                EXPECT_EQ(got[(size_t)i], 0.0f);
                EXPECT_LT(std::fabs(got[(size_t)(n_out + i)]), 1e-40f);
                EXPECT_FALSE(std::isfinite(got[(size_t)(2 * n_out + i)]))
                    << "an infinity spoils its own row";
                EXPECT_TRUE(std::isnan(got[(size_t)(3 * n_out + i)]));
                EXPECT_TRUE(std::isfinite(got[(size_t)(4 * n_out + i)])) << "f16 is scaled";
                EXPECT_NEAR(got[(size_t)(5 * n_out + i)], weir_cuda_element(&w.weight, i, 0), 1e-3);
            }
        }
}

TEST(CudaMatmul, RejectsWithAReason)
{
    const CudaWeight w(WEIR_Q8_0, 32, 64);
    std::vector<float> x(64), y(32);
    weir_matmul_args args = arguments(&w.weight, y.data(), x.data(), 1);
    weir_caps caps = {};
    const auto why = [&] { return weir_kernel_cuda_matmul.reject(&caps, &args); };
    caps.cuda_capability = 75;
    EXPECT_STREQ(why(), "needs sm_80");
    caps.cuda_capability = 80;
    EXPECT_EQ(why(), nullptr);
    args.n_in = 32;
    EXPECT_STREQ(why(), "n_in differs from the weight's");
    args.n_in = 64, args.n_rows = 65528;
    EXPECT_STREQ(why(), "more than 65527 rows");
    args.n_rows = 1, args.n_outputs = 5;
    EXPECT_STREQ(why(), "too many outputs");
    args.n_outputs = 1;
    weir_weight other = w.weight;
    args.outputs[0].weight = &other;
    other.layout = WEIR_LAYOUT_ROWS;
    EXPECT_STREQ(why(), "weight is not in a GPU's layout");
    other = w.weight, other.dtype = WEIR_I8;
    EXPECT_STREQ(why(), "type without a GPU layout");
    other.dtype = WEIR_Q4_K;
    EXPECT_STREQ(why(), "rows are no whole blocks");
    other = w.weight, other.data = w.memory.get() + 4;
    EXPECT_STREQ(why(), "weight not 16-byte aligned");
    other.data = w.memory.get();
    const weir_kernel_context small = {};
    EXPECT_EQ(weir_kernel_cuda_matmul.run(&small, &args), WEIR_EINVAL) << "scratch is too small";
}

} // namespace
} // namespace weir_test
