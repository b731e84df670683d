// Products of dense weights in own panels: layout and bytes, values, bits over batches and threads,
// several outputs, refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/x86/dense.h"
#include "offload/caps.h"
#include "tests/unit/matmul/fixture.h"

namespace weir_test {
namespace {

const weir_dtype kKept[] = { WEIR_F32, WEIR_BF16, WEIR_F16 };

std::vector<const weir_kernel *> kernels_here()
{
    std::vector<const weir_kernel *> kernels;
    if (weir_caps_detect().x86_v3) kernels.push_back(&weir_kernel_x86_matmul_dense_v3);
    kernels.push_back(&weir_kernel_x86_matmul_dense_v2);
    return kernels;
}

// Plans as a machine without AVX-512 does.
struct OldStream : Stream {
    OldStream() : Stream(2, "v2") {}
};

TEST(Dense, PlansKeepTheFilesBitsAndTellTheBytes)
{
    OldStream stream;
    const auto plan = [&](weir_dtype dtype, weir_activations activations) {
        weir_weight w = {};
        const weir_matrix_source source = { nullptr, 100, 256, dtype, false };
        EXPECT_EQ(weir_weight_plan(&w, stream.stream, &source, activations, nullptr), WEIR_OK);
        return w;
    };
    for (const weir_activations activations : { WEIR_ACTIVATIONS_FAST, WEIR_ACTIVATIONS_F32 }) {
        const weir_dtype pairs[][2] = { { WEIR_F32, WEIR_F32 },      { WEIR_F16, WEIR_F16 },
                                        { WEIR_BF16, WEIR_BF16 },    { WEIR_F64, WEIR_F32 },
                                        { WEIR_F8_E4M3, WEIR_BF16 }, { WEIR_F8_E5M2, WEIR_BF16 },
                                        { WEIR_Q6_K, WEIR_F32 } };
        for (const auto &pair : pairs) {
            const weir_weight w = plan(pair[0], activations);
            if (activations == WEIR_ACTIVATIONS_FAST && weir_dtype_of(pair[0]).quantised) {
                EXPECT_EQ(w.layout, WEIR_LAYOUT_TILES);
                continue;
            }
            EXPECT_EQ(w.layout, WEIR_LAYOUT_DENSE) << weir_dtype_of(pair[0]).name;
            EXPECT_EQ(w.dtype, pair[1]) << weir_dtype_of(pair[0]).name;
            EXPECT_EQ(w.bytes, 128u * 256u * (size_t)weir_dtype_of(pair[1]).block_bytes)
                << weir_dtype_of(pair[0]).name;
        }
    }
    size_t bytes;
    EXPECT_FALSE(weir_dense_bytes(&bytes, WEIR_F32, 0, 1));
    EXPECT_FALSE(weir_dense_bytes(&bytes, WEIR_F32, INT64_MAX, 1));
    EXPECT_TRUE(weir_dense_bytes(&bytes, WEIR_F32, INT32_MAX, INT32_MAX));
    EXPECT_EQ(bytes, ((size_t)1 << 31) * INT32_MAX * 4);
}

TEST(Dense, UnpacksToTheFilesBits)
{
    OldStream stream;
    for (const weir_dtype dtype : kKept) {
        const Weight w(stream.stream, dtype, 71, 300);
        std::vector<float> values(71 * 300);
        ASSERT_EQ(weir_dequantise(values.data(), w.rows().data, dtype, 71 * 300), WEIR_OK);
        int different = 0;
        for (int64_t i = 0; i < 71 * 300; i++) {
            const float value = weir_dense_element(&w.weight, i / 300, i % 300);
            different += std::memcmp(&value, &values[(size_t)i], sizeof value) != 0;
        }
        EXPECT_EQ(different, 0) << weir_dtype_of(dtype).name;
    }
}

// The smallest and greatest values of f16, which SSE expands without an instruction for it.
TEST(Dense, ExpandsEveryF16)
{
    OldStream stream;
    std::vector<uint16_t> file;
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        if ((bits & 0x7C00) != 0x7C00) file.push_back((uint16_t)bits);
    const int64_t n_out = (int64_t)file.size() / 2; // [n_out, 2]
    const weir_matrix_source source = { file.data(), n_out, 2, WEIR_F16, false };
    weir_weight weight = {};
    ASSERT_EQ(
        weir_weight_plan(&weight, stream.stream, &source, WEIR_ACTIVATIONS_FAST, nullptr), WEIR_OK
    );
    const Memory memory = aligned_memory(weight.bytes);
    ASSERT_EQ(weir_weight_pack(&weight, stream.stream, &source, memory.get(), nullptr), WEIR_OK);
    for (const weir_kernel *kernel : kernels_here()) {
        for (const int64_t n_rows : { 2, 14 }) { // 14 rows expand pieces first
            std::vector<float> x((size_t)(2 * n_rows)), got((size_t)(n_rows * n_out));
            for (int64_t r = 0; r < n_rows; r++) x[(size_t)(2 * r + r % 2)] = 1.0f;
            ASSERT_TRUE(run(*kernel, arguments(&weight, got.data(), x.data(), n_rows)));
            int different = 0;
            for (int64_t r = 0; r < n_rows; r++)
                for (int64_t i = 0; i < n_out; i++)
                    different += got[(size_t)(r * n_out + i)] !=
                                 weir_f16_to_f32(file[(size_t)(2 * i + r % 2)]);
            EXPECT_EQ(different, 0) << kernel->name << ", " << n_rows << " rows";
        }
    }
}

TEST(Dense, MatchesTheReference)
{
    OldStream stream;
    for (const weir_kernel *kernel : kernels_here()) {
        for (const weir_dtype dtype : { WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_Q8_0, WEIR_Q5_K }) {
            for (const int64_t n_in : { 256, 1280, 333 }) {
                if (n_in % weir_dtype_of(dtype).block_elements) continue;
                for (const int64_t n_rows : { 1, 5, 40 }) {
                    const int64_t n_out = 77;
                    const Weight w(stream.stream, dtype, n_out, n_in, 2, WEIR_ACTIVATIONS_F32);
                    const auto x = random_rows(n_rows * n_in, 8);
                    std::vector<float> got((size_t)(n_rows * n_out)), want(got.size()),
                        panels(got.size());
                    ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), n_rows)));
                    const weir_weight rows = w.rows();
                    ASSERT_TRUE(
                        run(weir_kernel_ref_matmul, arguments(&rows, want.data(), x.data(), n_rows))
                    );
                    ASSERT_TRUE(
                        run(weir_kernel_ref_matmul,
                            arguments(&w.weight, panels.data(), x.data(), n_rows))
                    );
                    EXPECT_EQ(want, panels) << "ref reads both layouts";
                    double error = 0, norm = 0;
                    for (size_t i = 0; i < got.size(); i++) {
                        error += std::pow((double)got[i] - (double)want[i], 2);
                        norm += std::pow((double)want[i], 2);
                    }
                    EXPECT_LT(std::sqrt(error / norm), 1e-6)
                        << kernel->name << " " << weir_dtype_of(dtype).name << " " << n_in;
                }
            }
        }
    }
}

// The promise: a row has the same bits alone, in any batch, at any place in it, with any number of
// threads.
TEST(Dense, RowsHaveTheSameBitsInEveryBatch)
{
    OldStream stream;
    for (const weir_kernel *kernel : kernels_here()) {
        for (const weir_dtype dtype : kKept) {
            for (const int64_t n_in : { 256, 333 }) {
                const int64_t n_out = 70, most = 300;
                const Weight w(stream.stream, dtype, n_out, n_in, 3);
                const auto x = random_rows(most * n_in, 5), bias = random_rows(n_out, 6),
                           before = random_rows(most * n_out, 7);
                std::vector<float> alone = before, batch;
                for (int64_t r = 0; r < most; r++) {
                    weir_matmul_args one = arguments(
                        &w.weight, &alone[(size_t)(r * n_out)], &x[(size_t)(r * n_in)], 1
                    );
                    one.outputs[0].bias = bias.data(), one.outputs[0].accumulate = true;
                    ASSERT_TRUE(run(*kernel, one, 1));
                }
                std::vector<int64_t> counts = { 96, 97, 100, 128, 192, 193, 300 };
                for (int64_t n = 1; n <= 70; n++) counts.push_back(n);
                for (const int64_t n : counts) {
                    for (const int n_threads : { 1, 2, 3, 4 }) {
                        const int64_t first = n < most ? (n * 37 + n_threads) % (most - n) : 0;
                        batch.assign(before.begin() + first * n_out, before.end());
                        weir_matmul_args args =
                            arguments(&w.weight, batch.data(), &x[(size_t)(first * n_in)], n);
                        args.outputs[0].bias = bias.data(), args.outputs[0].accumulate = true;
                        ASSERT_TRUE(run(*kernel, args, n_threads));
                        const size_t written = (size_t)(n * n_out);
                        ASSERT_EQ(
                            std::memcmp(
                                batch.data(), &alone[(size_t)(first * n_out)],
                                sizeof(float) * written
                            ),
                            0
                        ) << kernel->name
                          << " " << weir_dtype_of(dtype).name << " n_in " << n_in << ", " << n
                          << " rows, " << n_threads;
                        ASSERT_EQ(
                            std::memcmp(
                                batch.data() + written,
                                before.data() + (size_t)(first * n_out) + written,
                                sizeof(float) * (batch.size() - written)
                            ),
                            0
                        ) << "wrote beyond row "
                          << n;
                    }
                }
            }
        }
    }
}

// 16-bit weights are expanded exactly: the bits are those of the same values in f32.
TEST(Dense, HalfWeightsHaveTheBitsOfTheirF32)
{
    OldStream stream;
    const int64_t n_out = 50, n_in = 270;
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16 }) {
        const Weight half(stream.stream, dtype, n_out, n_in, 5);
        std::vector<float> values((size_t)(n_out * n_in));
        ASSERT_EQ(weir_dequantise(values.data(), half.rows().data, dtype, n_out * n_in), WEIR_OK);
        const weir_matrix_source source = { values.data(), n_out, n_in, WEIR_F32, false };
        weir_weight wide = {};
        ASSERT_EQ(
            weir_weight_plan(&wide, stream.stream, &source, WEIR_ACTIVATIONS_FAST, nullptr), WEIR_OK
        );
        EXPECT_EQ(wide.bytes, 2 * half.weight.bytes);
        const Memory memory = aligned_memory(wide.bytes);
        ASSERT_EQ(weir_weight_pack(&wide, stream.stream, &source, memory.get(), nullptr), WEIR_OK);
        for (const weir_kernel *kernel : kernels_here()) {
            for (const int64_t n_rows : { 1, 3, 6, 30 }) {
                const auto x = random_rows(n_rows * n_in, 2);
                std::vector<float> a((size_t)(n_rows * n_out)), b(a.size());
                ASSERT_TRUE(run(*kernel, arguments(&half.weight, a.data(), x.data(), n_rows)));
                ASSERT_TRUE(run(*kernel, arguments(&wide, b.data(), x.data(), n_rows)));
                EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
                    << kernel->name << " " << weir_dtype_of(dtype).name;
            }
        }
    }
}

TEST(Dense, SeveralOutputsBiasStridesAndAccumulation)
{
    OldStream stream;
    const int64_t n_in = 192;
    const Weight a(stream.stream, WEIR_F32, 96, n_in, 1), b(stream.stream, WEIR_BF16, 40, n_in, 2),
        c(stream.stream, WEIR_F16, 96, n_in, 3), d(stream.stream, WEIR_F32, 1, n_in, 4);
    expect_outputs(kernels_here(), { &a, &b, &c, &d });
}

TEST(Dense, AnInfinityOrNanSpoilsItsOwnRow)
{
    OldStream stream;
    const int64_t n_in = 64;
    for (const weir_dtype dtype : kKept) {
        const Weight w(stream.stream, dtype, 33, n_in);
        for (const weir_kernel *kernel : kernels_here()) {
            std::vector<float> x((size_t)(8 * n_in), 1.0f), got(8 * 33);
            x[2 * n_in + 3] = INFINITY;
            x[5 * n_in + 40] = NAN;
            ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), 8)));
            for (int r = 0; r < 8; r++)
                for (int i = 0; i < 33; i++)
                    EXPECT_EQ(std::isfinite(got[(size_t)(r * 33 + i)]), r != 2 && r != 5)
                        << kernel->name << " " << r;
        }
    }
}

TEST(Dense, RefusesWeightsThatAreNotFinite)
{
    OldStream stream;
    for (const float value : { (float)NAN, -INFINITY }) {
        for (const int at : { 0, 257, 40 * 300 - 1 }) {
            std::vector<float> file(40 * 300, 0.5f);
            file[(size_t)at] = value;
            const weir_matrix_source source = { file.data(), 40, 300, WEIR_F32, false };
            weir_weight w = {};
            weir_error error = {};
            ASSERT_EQ(
                weir_weight_plan(&w, stream.stream, &source, WEIR_ACTIVATIONS_FAST, &error), WEIR_OK
            );
            const Memory memory = aligned_memory(w.bytes);
            EXPECT_EQ(
                weir_weight_pack(&w, stream.stream, &source, memory.get(), &error), WEIR_EFORMAT
            );
            EXPECT_NE(std::string(error.text).find("not finite"), std::string::npos) << error.text;
        }
    }
}

TEST(Dense, RejectWithAReason)
{
    OldStream stream;
    const Weight w(stream.stream, WEIR_BF16, 32, 64), tiles(stream.stream, WEIR_Q8_0, 32, 64);
    std::vector<float> x(64), y(32);
    weir_matmul_args args = arguments(&w.weight, y.data(), x.data(), 1);
    const weir_caps old = {};
    EXPECT_STREQ(weir_kernel_x86_matmul_dense_v3.reject(&old, &args), "needs AVX2 (x86-64-v3)");
    EXPECT_STREQ(weir_kernel_onednn_matmul_bf16.reject(&old, &args), "needs AVX-512 BF16");
    EXPECT_STREQ(weir_kernel_onednn_matmul_f32.reject(&old, &args), "needs AVX-512 (x86-64-v4)");
    EXPECT_EQ(weir_kernel_x86_matmul_dense_v2.reject(&old, &args), nullptr);
    args.n_in = 32;
    EXPECT_STREQ(
        weir_kernel_x86_matmul_dense_v2.reject(&old, &args), "n_in differs from the weight's"
    );
    args.n_in = 64, args.n_rows = 0;
    EXPECT_STREQ(weir_kernel_x86_matmul_dense_v2.reject(&old, &args), "needs rows");
    args = arguments(&tiles.weight, y.data(), x.data(), 1);
    EXPECT_STREQ(
        weir_kernel_x86_matmul_dense_v2.reject(&old, &args), "weight is not in dense panels"
    );
}

} // namespace
} // namespace weir_test
