// Products of many rows by warpgroups on an emulated sm_90: the words of cuda.matmul, which other
// GPUs run and which can be pinned.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/emulated/cuda_weight.h"

extern "C" const weir_kernel weir_kernel_cuda_matmul, weir_kernel_cuda_matmul_warpgroup;

namespace weir_test {
namespace {

void expect_same_words(const std::vector<float> &a, const std::vector<float> &b)
{
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(CudaWarpgroup, TheWordsOfOtherRows)
{
    // Slices of 256 and of 512, the last one shorter; no whole step; places that blocks divide, and
    // several rounds of them.
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16 })
        for (const int64_t n_in : { 100, 768, 4608 })
            for (const int64_t n_out : { 17, 330 })
                for (const int64_t n_rows : { 33, 64, 100, 129, 193 }) {
                    if (n_in > 1000 && n_out > 100 && n_rows > 100) continue; // takes long
                    if (n_in != 768 && dtype == WEIR_F16) continue; // differs in one instruction
                    SCOPED_TRACE(testing::Message() << n_in << " " << n_out << " " << n_rows);
                    const CudaWeight w(dtype, n_out, n_in);
                    const auto x = random_rows(n_rows * n_in, 5);
                    std::vector<float> got((size_t)(n_rows * n_out), NAN), other = got;
                    const auto into = [&](std::vector<float> &dst) {
                        return arguments(&w.weight, dst.data(), x.data(), n_rows);
                    };
                    ASSERT_TRUE(run(weir_kernel_cuda_matmul_warpgroup, into(got)));
                    ASSERT_TRUE(run(weir_kernel_cuda_matmul, into(other)));
                    expect_same_words(got, other);
                }
}

// More places than blocks, which divide some of them: their sums lie by blocks, not by places.
TEST(CudaWarpgroup, MoreDividedPlacesThanBlocks)
{
    const int64_t n_in = 2560, n_out = 520, n_rows = 33;
    const CudaWeight w(WEIR_BF16, n_out, n_in);
    const auto x = random_rows(n_rows * n_in, 5);
    std::vector<float> got((size_t)(n_rows * n_out), NAN), other = got;
    ASSERT_TRUE(
        run(weir_kernel_cuda_matmul_warpgroup, arguments(&w.weight, got.data(), x.data(), n_rows))
    );
    ASSERT_TRUE(run(weir_kernel_cuda_matmul, arguments(&w.weight, other.data(), x.data(), n_rows)));
    expect_same_words(got, other);
}

// Outputs of different widths, one with a bias, one that is added to, one with a stride that is no
// multiple of four, between guards.
TEST(CudaWarpgroup, OutputsOfACall)
{
    const int64_t n_in = 300, n_rows = 70, widths[] = { 130, 7, 200 }, strides[] = { 130, 9, 203 };
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16 }) {
        const CudaWeight w[] = { { dtype, widths[0], n_in, 0, 1 },
                                 { dtype, widths[1], n_in, 0, 2 },
                                 { dtype, widths[2], n_in, 0, 3 } };
        const auto x = random_rows(n_rows * n_in, 5);
        const std::vector<float> bias(200, 0.25f);
        const auto products = [&](const weir_kernel &kernel) {
            std::vector<std::vector<float>> dst;
            weir_matmul_args args = arguments(&w[0].weight, nullptr, x.data(), n_rows);
            args.n_outputs = 3;
            for (int o = 0; o < 3; o++) dst.emplace_back((size_t)(n_rows * strides[o]), 7.0f);
            for (int o = 0; o < 3; o++)
                args.outputs[o] = { &w[o].weight, dst[(size_t)o].data(),
                                    o == 0 ? bias.data() : nullptr, strides[o], o == 1 };
            EXPECT_TRUE(run(kernel, args));
            return dst;
        };
        const auto got = products(weir_kernel_cuda_matmul_warpgroup),
                   other = products(weir_kernel_cuda_matmul);
        for (size_t o = 0; o < 3; o++) expect_same_words(got[o], other[o]);
        EXPECT_EQ(got[1][8], 7.0f) << "what is between rows stays";
    }
}

TEST(CudaWarpgroup, AnInfinitySpoilsItsOwnRow)
{
    const int64_t n_in = 64, n_out = 32, n_rows = 140;
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16 }) {
        const CudaWeight w(dtype, n_out, n_in);
        auto x = random_rows(n_rows * n_in, 5);
        x[2 * n_in + 3] = INFINITY, x[139 * n_in] = NAN;
        std::vector<float> dst((size_t)(n_rows * n_out), NAN);
        ASSERT_TRUE(run(
            weir_kernel_cuda_matmul_warpgroup, arguments(&w.weight, dst.data(), x.data(), n_rows)
        ));
        for (int64_t row = 0; row < n_rows; row++)
            for (int64_t i = 0; i < n_out; i++)
                EXPECT_EQ(std::isfinite(dst[(size_t)(row * n_out + i)]), row != 2 && row != 139);
    }
}

// A plan asks for the scratch of the most rows; fewer rows may be another kernel's.
TEST(CudaWarpgroup, MoreRowsTakeNoLessScratch)
{
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16, WEIR_Q8_0 }) {
        const CudaWeight w(dtype, 256, 2560);
        size_t most = 0, most_of_other = 0;
        for (const int64_t n_rows : { 1, 8, 9, 32, 33, 64, 128, 129, 512 }) {
            const weir_matmul_args args = arguments(&w.weight, nullptr, nullptr, n_rows);
            weir_caps caps = {};
            caps.cuda_capability = 90;
            const bool is_many = !weir_kernel_cuda_matmul_warpgroup.reject(&caps, &args);
            const size_t bytes = is_many ? weir_kernel_cuda_matmul_warpgroup.scratch(&args)
                                         : weir_kernel_cuda_matmul.scratch(&args);
            EXPECT_GE(bytes, most) << n_rows;
            most = bytes;
            const size_t other = weir_kernel_cuda_matmul.scratch(&args);
            EXPECT_GE(other, most_of_other) << n_rows;
            most_of_other = other;
        }
    }
}

TEST(CudaWarpgroup, RejectsWithAReason)
{
    const CudaWeight bf16(WEIR_BF16, 32, 64), f16(WEIR_F16, 32, 64), codes(WEIR_Q8_0, 32, 64);
    std::vector<float> x(64 * 40), y(32 * 40);
    weir_matmul_args args = arguments(&bf16.weight, y.data(), x.data(), 40);
    weir_caps caps = {};
    const auto why = [&] { return weir_kernel_cuda_matmul_warpgroup.reject(&caps, &args); };
    for (const int capability : { 80, 89, 100, 120 }) {
        caps.cuda_capability = capability;
        EXPECT_STREQ(why(), "needs sm_90");
    }
    caps.cuda_capability = 90;
    EXPECT_EQ(why(), nullptr);
    args.n_rows = 32;
    EXPECT_STREQ(why(), "at most 32 rows");
    args.n_rows = 33, args.outputs[1] = args.outputs[0], args.n_outputs = 2;
    args.outputs[1].weight = &f16.weight;
    EXPECT_STREQ(why(), "weights of two types");
    args.outputs[0].weight = &codes.weight;
    EXPECT_STREQ(why(), "weights are neither bf16 nor f16");
    args.outputs[0].weight = &bf16.weight, args.n_outputs = 1, args.n_in = 32;
    EXPECT_STREQ(why(), "n_in differs from the weight's");
    args.n_in = 64;
    const weir_kernel_context small = {};
    EXPECT_EQ(weir_kernel_cuda_matmul_warpgroup.run(&small, &args), WEIR_EINVAL);
}

} // namespace
} // namespace weir_test
