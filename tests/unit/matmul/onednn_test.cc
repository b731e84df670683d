// Products of dense weights through oneDNN: values, bits over batches, implementation, bounded
// primitives, plans. Where oneDNN has no packed kernel for a type, plans must choose dense panels,
// and the rest is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/onednn/weight.h"
#include "offload/caps.h"
#include "tests/sanitizer.h"
#include "tests/unit/matmul/fixture.h"

namespace weir_test {
namespace {

const weir_kernel &kernel_of(const Weight &w)
{
    return w.weight.dtype == WEIR_BF16 ? weir_kernel_onednn_matmul_bf16
                                       : weir_kernel_onednn_matmul_f32;
}
// Types for which oneDNN has packed kernels here.
std::vector<weir_dtype> packed_types()
{
    std::vector<weir_dtype> types;
    size_t bytes;
    for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16 })
        if (weir_onednn_plan(&bytes, dtype, 64, 64, 2) == WEIR_OK) types.push_back(dtype);
    return types;
}
bool has_packed(weir_dtype dtype)
{
    const auto types = packed_types();
    return std::find(types.begin(), types.end(), dtype) != types.end();
}
// AVX-512 at most: tile registers are another row's.
struct Avx512Stream : Stream {
    explicit Avx512Stream(int n_threads = 2)
        : Stream(n_threads, weir_caps_detect().x86_v4 ? "v4" : nullptr)
    {
    }
};
#define SKIP_WITHOUT_PACKED_KERNELS()                                                              \
    if (packed_types().empty()) GTEST_SKIP() << "oneDNN has packed kernels from AVX-512 on"

TEST(OneDnn, HasPackedKernelsWhereTheMachineHasTheInstructions)
{
    const weir_caps caps = weir_caps_detect();
    EXPECT_EQ(has_packed(WEIR_F32), caps.x86_v4);
    EXPECT_EQ(has_packed(WEIR_BF16), caps.avx512_bf16);
}

TEST(OneDnn, PlansByActivations)
{
    Avx512Stream stream;
    const auto plan = [&](weir_dtype dtype, weir_activations activations, int64_t n_in = 256) {
        weir_weight w = {};
        const weir_matrix_source source = { nullptr, 100, n_in, dtype, false };
        EXPECT_EQ(weir_weight_plan(&w, stream.stream, &source, activations, nullptr), WEIR_OK);
        return w;
    };
    const auto expect_dense = [&](weir_dtype file, weir_activations activations, weir_dtype packed,
                                  weir_dtype kept) {
        const weir_weight w = plan(file, activations);
        EXPECT_EQ(w.layout, has_packed(packed) ? WEIR_LAYOUT_ONEDNN : WEIR_LAYOUT_DENSE)
            << weir_dtype_of(file).name;
        EXPECT_EQ(w.dtype, has_packed(packed) ? packed : kept) << weir_dtype_of(file).name;
    };
    expect_dense(WEIR_BF16, WEIR_ACTIVATIONS_FAST, WEIR_BF16, WEIR_BF16);
    expect_dense(WEIR_F16, WEIR_ACTIVATIONS_FAST, WEIR_BF16, WEIR_F16);
    expect_dense(WEIR_F8_E4M3, WEIR_ACTIVATIONS_FAST, WEIR_BF16, WEIR_BF16);
    expect_dense(WEIR_F32, WEIR_ACTIVATIONS_FAST, WEIR_F32, WEIR_F32);
    expect_dense(WEIR_BF16, WEIR_ACTIVATIONS_F32, WEIR_F32, WEIR_BF16);
    expect_dense(WEIR_F16, WEIR_ACTIVATIONS_F32, WEIR_F32, WEIR_F16);
    expect_dense(WEIR_Q4_K, WEIR_ACTIVATIONS_F32, WEIR_F32, WEIR_F32);
    EXPECT_EQ(plan(WEIR_Q4_K, WEIR_ACTIVATIONS_FAST).layout, WEIR_LAYOUT_TILES);
    for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16 }) {
        weir_weight grouped = {};
        const weir_matrix_source source = { nullptr, 100, 256, dtype, true };
        EXPECT_EQ(
            weir_weight_plan(&grouped, stream.stream, &source, WEIR_ACTIVATIONS_FAST, nullptr),
            WEIR_OK
        );
        EXPECT_EQ(grouped.layout, WEIR_LAYOUT_DENSE) << "a call of oneDNN has one matrix";
    }

    weir_weight w = {};
    weir_error error = {};
    const auto fails = [&](weir_matrix_source source) {
        return weir_weight_plan(&w, stream.stream, &source, WEIR_ACTIVATIONS_FAST, &error);
    };
    EXPECT_EQ(fails({ nullptr, 8, 64, WEIR_I32, false }), WEIR_EUNSUPPORTED);
    EXPECT_EQ(fails({ nullptr, 8, 80, WEIR_Q4_0, false }), WEIR_EFORMAT);
    EXPECT_NE(std::string(error.text).find("80"), std::string::npos);
    EXPECT_EQ(fails({ nullptr, 0, 64, WEIR_F32, false }), WEIR_EINVAL);
    EXPECT_EQ(fails({ nullptr, INT64_MAX, 64, WEIR_F32, false }), WEIR_EINVAL);
    EXPECT_EQ(fails({ nullptr, 8, 64, (weir_dtype)99, false }), WEIR_EINVAL);
}

// A step with fewer rows than planned needs no more: they may be copied where the most are not.
TEST(OneDnn, ScratchGrowsWithRows)
{
    for (const weir_kernel *kernel :
         { &weir_kernel_onednn_matmul_f32, &weir_kernel_onednn_matmul_bf16 }) {
        weir_weight weight = {};
        weight.layout = WEIR_LAYOUT_ONEDNN, weight.n_out = 96, weight.n_in = 256;
        weight.dtype = kernel == &weir_kernel_onednn_matmul_f32 ? WEIR_F32 : WEIR_BF16;
        weir_matmul_args args = {};
        args.n_in = args.x_stride = 256, args.n_outputs = 1;
        args.outputs[0] = { &weight, nullptr, nullptr, 96, false };
        size_t before = 0;
        for (args.n_rows = 1; args.n_rows <= 80; args.n_rows++) {
            const size_t bytes = kernel->scratch(&args);
            EXPECT_GE(bytes, before) << kernel->name << ", " << args.n_rows << " rows";
            before = bytes;
        }
    }
}

TEST(OneDnn, UsesThePackedKernels)
{
    SKIP_WITHOUT_PACKED_KERNELS();
    Avx512Stream stream;
    for (const weir_dtype dtype : packed_types()) {
        for (const int64_t n_out : { 1, 33, 320 }) {
            const Weight w(stream.stream, dtype, n_out, 100);
            EXPECT_EQ(w.weight.dtype, dtype);
            for (const int64_t m : { 1, 2, 16, 17, 300 }) {
                const std::string name =
                    weir_onednn_implementation((weir_onednn_weight *)w.weight.packed_state, m, 2);
                EXPECT_EQ(name.rfind("brg:", 0), 0u)
                    << name << ", " << n_out << " outputs, " << m << " rows";
                EXPECT_EQ(name.find("amx"), std::string::npos)
                    << name << " has other bits for other numbers of rows";
            }
        }
    }
}

// Activations that bf16 holds exactly leave only the rounding of sums (and of f16 weights to bf16).
TEST(OneDnn, MatchesTheReference)
{
    SKIP_WITHOUT_PACKED_KERNELS();
    Avx512Stream stream;
    for (const weir_activations activations : { WEIR_ACTIVATIONS_FAST, WEIR_ACTIVATIONS_F32 }) {
        for (const weir_dtype dtype : { WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_Q8_0, WEIR_Q5_K }) {
            if (activations == WEIR_ACTIVATIONS_FAST && weir_dtype_of(dtype).quantised) continue;
            if (activations == WEIR_ACTIVATIONS_FAST && dtype != WEIR_F32 && !has_packed(WEIR_BF16))
                continue;
            for (const int64_t n_in : { 256, 1280, 333 }) {
                if (n_in % weir_dtype_of(dtype).block_elements) continue;
                const int64_t n_rows = 5, n_out = 77;
                const Weight w(stream.stream, dtype, n_out, n_in, 2, activations);
                auto x = random_rows(n_rows * n_in, 8);
                for (auto &value : x) value = weir_bf16_to_f32(weir_bf16_from_f32(value));
                std::vector<float> got((size_t)(n_rows * n_out)), want(got.size());
                ASSERT_TRUE(run(kernel_of(w), arguments(&w.weight, got.data(), x.data(), n_rows)));
                const weir_weight rows = w.rows();
                ASSERT_TRUE(
                    run(weir_kernel_ref_matmul, arguments(&rows, want.data(), x.data(), n_rows))
                );
                double error = 0, norm = 0;
                for (size_t i = 0; i < got.size(); i++) {
                    error += std::pow((double)got[i] - (double)want[i], 2);
                    norm += std::pow((double)want[i], 2);
                }
                EXPECT_LT(
                    std::sqrt(error / norm),
                    dtype == WEIR_F16 && w.weight.dtype == WEIR_BF16 ? 3e-3 : 1e-6
                ) << weir_dtype_of(dtype).name
                  << " " << n_in << " " << activations;
            }
        }
    }
}

TEST(OneDnn, RowsHaveTheSameBitsInEveryBatch)
{
    SKIP_WITHOUT_PACKED_KERNELS();
    Avx512Stream stream;
    for (const weir_dtype dtype : packed_types()) {
        for (const int64_t n_in : { 512, 1000 }) {
            const int64_t n_out = 200, most = 300;
            const Weight w(stream.stream, dtype, n_out, n_in, 3);
            const auto x = random_rows(most * n_in, 5), bias = random_rows(n_out, 6),
                       before = random_rows(most * n_out, 7);
            std::vector<float> alone = before, batch;
            for (int64_t r = 0; r < most; r++) {
                weir_matmul_args one =
                    arguments(&w.weight, &alone[(size_t)(r * n_out)], &x[(size_t)(r * n_in)], 1);
                one.outputs[0].bias = bias.data(), one.outputs[0].accumulate = true;
                ASSERT_TRUE(run(kernel_of(w), one));
            }
            std::vector<int64_t> counts = { 100, 128, 300 };
            for (int64_t n = 1; n <= 64; n++) counts.push_back(n);
            for (const int64_t n : counts) {
                const int64_t first = n < most ? (n * 37) % (most - n) : 0;
                batch.assign(before.begin() + first * n_out, before.end());
                weir_matmul_args args =
                    arguments(&w.weight, batch.data(), &x[(size_t)(first * n_in)], n);
                args.outputs[0].bias = bias.data(), args.outputs[0].accumulate = true;
                ASSERT_TRUE(run(kernel_of(w), args));
                EXPECT_EQ(
                    std::memcmp(
                        batch.data(), &alone[(size_t)(first * n_out)],
                        sizeof(float) * (size_t)(n * n_out)
                    ),
                    0
                ) << weir_dtype_of(dtype).name
                  << " n_in " << n_in << ", " << n << " rows";
            }
            EXPECT_LE(weir_onednn_primitive_count((weir_onednn_weight *)w.weight.packed_state), 10)
                << "primitives are bounded";
        }
    }
}

// The scratch of oneDNN grows with the threads, and so must the caller's; the bits do not change.
// libomp leaks teams that grow, so the address sanitizer sees few.
TEST(OneDnn, AnyNumberOfThreads)
{
    SKIP_WITHOUT_PACKED_KERNELS();
    const std::vector<int> threads =
        has_address_sanitizer() ? std::vector<int>{ 1, 2, 3 } : std::vector<int>{ 1, 2, 16, 64 };
    for (const weir_dtype dtype : packed_types()) {
        const int64_t n_in = 4096, n_out = 640, n_rows = 40;
        const auto x = random_rows(n_rows * n_in, 5);
        std::vector<float> one, many;
        for (const int n_threads : threads) {
            Avx512Stream stream(n_threads);
            const Weight w(stream.stream, dtype, n_out, n_in, 3);
            ASSERT_EQ(w.weight.layout, WEIR_LAYOUT_ONEDNN) << n_threads << " threads";
            for (const int64_t n : { (int64_t)1, (int64_t)3, n_rows }) {
                many.resize((size_t)(n * n_out));
                ASSERT_TRUE(
                    run(kernel_of(w), arguments(&w.weight, many.data(), x.data(), n), n_threads)
                ) << n_threads
                  << " threads, " << n << " rows";
                if (n_threads == 1 && n == n_rows) one = many;
            }
            EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)), 0)
                << n_threads << " threads";
        }
    }
}

TEST(OneDnn, SeveralOutputsBiasStridesAndAccumulation)
{
    SKIP_WITHOUT_PACKED_KERNELS();
    Avx512Stream stream;
    for (const weir_dtype dtype : packed_types()) {
        const int64_t n_in = 192, n_rows = 9, x_stride = 200;
        const Weight a(stream.stream, dtype, 96, n_in, 1), b(stream.stream, dtype, 40, n_in, 2),
            c(stream.stream, dtype, 96, n_in, 3);
        const Weight *weights[] = { &a, &b, &c };
        const int64_t strides[] = { 96, 50, 96 };
        const auto x = random_rows(n_rows * x_stride, 9), bias = random_rows(96, 10),
                   before = random_rows(n_rows * 96, 11);
        std::vector<float> got[3], single(n_rows * 96);
        weir_matmul_args args = arguments(&a.weight, nullptr, x.data(), n_rows);
        args.x_stride = x_stride, args.n_outputs = 3;
        for (int o = 0; o < 3; o++) {
            got[o] = before;
            args.outputs[o] = { &weights[o]->weight, got[o].data(), o < 2 ? bias.data() : nullptr,
                                strides[o], o == 2 };
        }
        ASSERT_TRUE(run(kernel_of(a), args));
        for (int o = 0; o < 3; o++) {
            weir_matmul_args one = arguments(&weights[o]->weight, single.data(), x.data(), n_rows);
            one.x_stride = x_stride;
            ASSERT_TRUE(run(kernel_of(a), one));
            const int64_t n_out = weights[o]->weight.n_out;
            for (int64_t at = 0; at < n_rows * strides[o]; at++) {
                const int64_t r = at / strides[o], i = at % strides[o];
                float want = before[(size_t)at];
                if (i < n_out) {
                    const float value =
                        single[(size_t)(r * n_out + i)] + (o < 2 ? bias[(size_t)i] : 0.0f);
                    want = o == 2 ? before[(size_t)at] + value : value;
                }
                ASSERT_EQ(got[o][(size_t)at], want) << weir_dtype_of(dtype).name << " output " << o
                                                    << " row " << r << " column " << i;
            }
        }
    }
}

} // namespace
} // namespace weir_test
