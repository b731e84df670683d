// tests/bench/kernels_bench.cc - the hot single-source kernels at the shapes of Qwen3.5, against the machine's own limits.
//
// The limits are measured in the same run: read bandwidth over 256 MiB and f32 multiply-adds in registers, both on all threads.
//     bazel run -c opt //tests/bench:kernels_bench -- --benchmark_min_time=0.5
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/abi/ops.h"

#define WEIR_ROWS(X) X(attention) X(gated_delta_rule) X(gated_delta_rule_chunk) X(rmsnorm) X(swiglu) X(conv1d) X(rope) X(kv_write)
#define WEIR_DECLARE(op) extern "C" const weir_kernel weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3, weir_kernel_omp_##op##_v2;
WEIR_ROWS(WEIR_DECLARE)

namespace {

using Floats = std::vector<float>;

const weir_kernel &best(const weir_kernel &v4, const weir_kernel &v3, const weir_kernel &v2)
{
    __builtin_cpu_init();
    const char *const forced = std::getenv("WEIR_BENCH_ISA");
    const std::string isa = forced                                ? forced
                            : __builtin_cpu_supports("x86-64-v4") ? "v4"
                            : __builtin_cpu_supports("x86-64-v3") ? "v3"
                                                                  : "v2";
    return isa == "v4" ? v4 : isa == "v3" ? v3 : v2;
}
#define WEIR_BEST(op) best(weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3, weir_kernel_omp_##op##_v2)

template <class T> T *aligned(size_t n)
{
    T *const p = static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64));
    std::memset(static_cast<void *>(p), 0, n * sizeof(T));
    return p;
}

Floats noise(size_t n, float scale = 1)
{
    static std::mt19937             rng(1);
    std::normal_distribution<float> normal(0, scale);
    Floats                          x(n);
    for (float &value : x) value = normal(rng);
    return x;
}

double best_seconds(int repeats, const std::function<void()> &work)
{
    double best_of = 1e9;
    for (int i = 0; i < repeats; i++) {
        const double start = omp_get_wtime();
        work();
        best_of = std::min(best_of, omp_get_wtime() - start);
    }
    return best_of;
}

// Bytes per second of reading, all threads.
double measured_bandwidth()
{
    static const double result = [] {
        const size_t n = (size_t)256 << 18;
        float *const data = aligned<float>(n);
        float        total = 0;
        const double seconds = best_seconds(20, [&] {
            float sum = 0;
#pragma omp parallel for simd reduction(+ : sum) schedule(static)
            for (size_t i = 0; i < n; i++) sum += data[i];
            total += sum;
        });
        benchmark::DoNotOptimize(total);
        std::free(data);
        return (double)(n * sizeof(float)) / seconds;
    }();
    return result;
}

typedef float Wide __attribute__((vector_size(64)));
#if defined(__x86_64__)
__attribute__((target("avx512f,fma")))
#endif
void multiply_add_512(Wide *out, int64_t n)
{
    Wide a[12], b, c;
    for (int i = 0; i < 16; i++) b[i] = 0.999f, c[i] = 0.001f;
    for (int i = 0; i < 12; i++) a[i] = b;
    for (int64_t k = 0; k < n; k++) {
#pragma unroll
        for (int i = 0; i < 12; i++) a[i] = __builtin_elementwise_fma(a[i], b, c);
        asm volatile("" : "+v"(a[0]), "+v"(a[1]), "+v"(a[2]), "+v"(a[3]), "+v"(a[4]), "+v"(a[5]));
    }
    for (int i = 0; i < 12; i++) *out += a[i];
}

// Flops per second of f32 multiply-adds in 512-bit registers, all threads; 0 without AVX-512.
double measured_flops()
{
    static const double result = [] {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("x86-64-v4")) return 0.0;
        const int64_t n = 40000;
        const int     threads = omp_get_max_threads();
        const double  seconds = best_seconds(200, [&] {
#pragma omp parallel
            {
                Wide out = {};
                multiply_add_512(&out, n);
                benchmark::DoNotOptimize(out);
            }
        });
        return (double)n * 12 * 16 * 2 * threads / seconds;
    }();
    return result;
}

// Runs a row again and again with scratch as it asks for.
void repeat(benchmark::State &state, const weir_kernel &kernel, const void *args)
{
    weir_kernel_context context = {};
    context.n_threads = omp_get_max_threads();
    context.scratch_bytes = kernel.scratch ? kernel.scratch(args) : 0;
    context.scratch = aligned<char>(context.scratch_bytes + 64);
    if (kernel.run(&context, args) != WEIR_OK) state.SkipWithError("the kernel refused");
    double fastest = 1e9;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        if (kernel.run(&context, args) != WEIR_OK) break;
        const double seconds = omp_get_wtime() - start;
        fastest = std::min(fastest, seconds);
        state.SetIterationTime(seconds);
    }
    state.counters["best_us"] = fastest * 1e6;
    std::free(context.scratch);
}

void rate(benchmark::State &state, double bytes, double flops)
{
    const double seconds = state.counters["best_us"].value * 1e-6;
    if (bytes > 0) {
        state.counters["GB/s"] = bytes / seconds * 1e-9;
        state.counters["bw%"] = 100 * bytes / seconds / measured_bandwidth();
    }
    if (flops > 0) {
        state.counters["GFLOP/s"] = flops / seconds * 1e-9;
        if (measured_flops() > 0) state.counters["peak%"] = 100 * flops / seconds / measured_flops();
    }
}

// A sequence of `depth` past rows and `rows` new ones; `layers` copies are visited in turn so that no cache holds them.
void attention(benchmark::State &state, int32_t depth, int32_t rows, weir_kv_format format, int64_t heads, int64_t kv_heads, int64_t dim)
{
    const int64_t pages = (depth + rows + 63) / 64, page_bytes = weir_kv_bytes(format, format, dim, dim);
    const int64_t layer_bytes = pages * kv_heads * page_bytes,
                  layers = rows == 1 ? std::clamp<int64_t>((int64_t)100e6 / layer_bytes, 1, 64) : 1;
    char *const  memory = aligned<char>((size_t)(layers * layer_bytes));
    const Floats values = noise(4096, 0.3f);
    for (int64_t i = 0; i < layers * layer_bytes / (format == WEIR_KV_F16 ? 2 : 4); i++) {
        if (format == WEIR_KV_F16)
            reinterpret_cast<_Float16 *>(memory)[i] = (_Float16)values[(size_t)i % 4093];
        else
            reinterpret_cast<float *>(memory)[i] = values[(size_t)i % 4093];
    }
    std::vector<std::vector<void *>> tables((size_t)layers);
    for (int64_t layer = 0; layer < layers; layer++)
        for (int64_t i = 0; i < pages * kv_heads; i++) tables[(size_t)layer].push_back(memory + layer * layer_bytes + i * page_bytes);
    Floats          out((size_t)(rows * heads * dim));
    const Floats    q = noise(out.size());
    weir_kv_segment segment = {};
    segment.pages = tables[0].data(), segment.page_stride = pages, segment.n_rows = rows, segment.n_past = depth;
    weir_attention_args args = {};
    args.out = out.data(), args.q = q.data(), args.segments = &segment, args.n_segments = 1;
    args.n_heads = heads, args.n_kv_heads = kv_heads, args.key_dim = args.value_dim = dim;
    args.q_stride = args.out_stride = heads * dim, args.q_head_stride = dim;
    args.scale = 0.0625f, args.k_format = args.v_format = format;
    const weir_kernel  &kernel = WEIR_BEST(attention);
    weir_kernel_context context = {};
    context.n_threads = omp_get_max_threads();
    context.scratch_bytes = kernel.scratch(&args);
    context.scratch = aligned<char>(context.scratch_bytes + 64);
    double fastest = 1e9;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        for (int64_t layer = 0; layer < layers; layer++) {
            segment.pages = tables[(size_t)layer].data();
            if (kernel.run(&context, &args) != WEIR_OK) state.SkipWithError("the kernel refused");
        }
        const double seconds = (omp_get_wtime() - start) / (double)layers;
        state.SetIterationTime(seconds);
        fastest = std::min(fastest, seconds);
    }
    state.counters["best_us"] = fastest * 1e6;
    const double positions = (double)rows * depth + rows * (rows + 1.0) / 2;
    rate(state, rows == 1 ? (double)(depth + rows) * (double)(kv_heads * dim * 2 * (format == WEIR_KV_F16 ? 2 : 4)) : 0,
         positions * (double)(heads * dim) * 4);
    std::free(context.scratch);
    std::free(memory);
}

void delta(benchmark::State &state, const weir_kernel &kernel, int32_t rows)
{
    const int64_t          k_heads = 16, v_heads = 16, dim = 128, stride = (2 * k_heads + v_heads) * dim;
    const Floats           qkv = noise((size_t)(rows * stride)), ab = noise((size_t)(rows * 2 * v_heads)), bias = noise((size_t)v_heads);
    const Floats           a_neg((size_t)v_heads, -0.5f);
    Floats                 out((size_t)(rows * v_heads * dim)), memory((size_t)(v_heads * dim * dim));
    weir_recurrent_segment segment = { nullptr, memory.data(), 0, rows };
    const weir_gated_delta_rule_args args = { out.data(),
                                              qkv.data(),
                                              qkv.data() + k_heads * dim,
                                              qkv.data() + 2 * k_heads * dim,
                                              ab.data(),
                                              ab.data() + v_heads,
                                              a_neg.data(),
                                              bias.data(),
                                              &segment,
                                              1,
                                              k_heads,
                                              v_heads,
                                              dim,
                                              dim,
                                              stride,
                                              2 * v_heads,
                                              false };
    repeat(state, kernel, &args);
    rate(state, rows == 1 ? 8.0 * (double)memory.size() : 0, 8.0 * (double)rows * (double)memory.size());
}

void rmsnorm(benchmark::State &state, int64_t rows, int64_t dim)
{
    Floats                  dst((size_t)(rows * dim)), src = noise(dst.size());
    const Floats            weight = noise((size_t)dim);
    const weir_rmsnorm_args args = { dst.data(), src.data(), weight.data(), nullptr, rows, 1, dim, dim, dim, dim, dim, 0, 1e-6f };
    repeat(state, WEIR_BEST(rmsnorm), &args);
    rate(state, 8.0 * (double)(rows * dim), 0);
}

void swiglu(benchmark::State &state, int64_t rows, int64_t dim)
{
    Floats                 dst((size_t)(rows * dim));
    const Floats           gate = noise(dst.size(), 3), up = noise(dst.size());
    const weir_swiglu_args args = { dst.data(), gate.data(), up.data(), rows, dim, dim, dim, dim };
    repeat(state, WEIR_BEST(swiglu), &args);
    rate(state, 12.0 * (double)(rows * dim), 0);
}

void conv1d(benchmark::State &state, int32_t rows)
{
    const int64_t                channels = 6144, n_taps = 4;
    Floats                       dst((size_t)(rows * channels)), history((size_t)(3 * channels));
    const Floats                 src = noise(dst.size()), taps = noise((size_t)(channels * n_taps));
    const weir_recurrent_segment segment = { history.data(), nullptr, 0, rows };
    const weir_conv1d_args       args = { dst.data(), src.data(), taps.data(), &segment, 1, channels, n_taps };
    repeat(state, WEIR_BEST(conv1d), &args);
    rate(state, 8.0 * (double)(rows * channels), 0);
}

void rope(benchmark::State &state, int64_t rows)
{
    const int64_t        heads = 10, dim = 256;
    Floats               x = noise((size_t)(rows * heads * dim)), frequencies(32, 0.01f);
    std::vector<int32_t> positions((size_t)rows, 100000);
    const weir_rope_args args = {
        x.data(), positions.data(), frequencies.data(), rows, heads, 64, heads * dim, dim, 1, WEIR_ROPE_HALF_SPLIT
    };
    repeat(state, WEIR_BEST(rope), &args);
}

void limits(benchmark::State &state)
{
    for (auto _ : state) state.SetIterationTime(1e-3);
    state.counters["GB/s"] = measured_bandwidth() * 1e-9;
    state.counters["GFLOP/s"] = measured_flops() * 1e-9;
}

void add(const std::string &name, const std::function<void(benchmark::State &)> &body)
{
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

} // namespace

int main(int argc, char **argv)
{
    add("machine", limits);
    for (int32_t depth : { 128, 1024, 8192, 32768 })
        add("attention/decode/f16/" + std::to_string(depth), [=](auto &state) { attention(state, depth - 1, 1, WEIR_KV_F16, 8, 2, 256); });
    add("attention/decode/f32/8192", [](auto &state) { attention(state, 8191, 1, WEIR_KV_F32, 8, 2, 256); });
    add("attention/decode/f16/8192/group1", [](auto &state) { attention(state, 8191, 1, WEIR_KV_F16, 4, 4, 128); });
    for (int32_t depth : { 0, 8192 })
        add("attention/prefill512/f16/" + std::to_string(depth),
            [=](auto &state) { attention(state, depth, 512, WEIR_KV_F16, 8, 2, 256); });
    add("attention/prefill512/f16/0/dim64", [](auto &state) { attention(state, 0, 512, WEIR_KV_F16, 8, 2, 64); });
    for (int32_t rows : { 1, 512 }) {
        add("delta/scan/" + std::to_string(rows), [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule), rows); });
        add("delta/chunk/" + std::to_string(rows), [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule_chunk), rows); });
        add("rmsnorm/" + std::to_string(rows), [=](auto &state) { rmsnorm(state, rows, 4096); });
        add("swiglu/" + std::to_string(rows), [=](auto &state) { swiglu(state, rows, 12288); });
        add("conv1d/" + std::to_string(rows), [=](auto &state) { conv1d(state, rows); });
        add("rope/" + std::to_string(rows), [=](auto &state) { rope(state, rows); });
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
