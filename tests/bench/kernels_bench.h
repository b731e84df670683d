// What the benchmarks of single kernels share: the row for this CPU, data, and rates.
#pragma once
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/abi/coda.h"
#include "kernels/abi/ops.h"

#define WEIR_ROWS(X)                                                                               \
    X(attention)                                                                                   \
    X(gated_delta_rule)                                                                            \
    X(gated_delta_rule_chunk)                                                                      \
    X(rmsnorm) X(glu) X(conv1d) X(rope) X(kv_write) X(coda_queries) X(coda_combine) X(coda_write)
#define WEIR_DECLARE(op)                                                                           \
    extern "C" const weir_kernel weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3,             \
        weir_kernel_omp_##op##_v2;
WEIR_ROWS(WEIR_DECLARE)
extern "C" const weir_kernel weir_kernel_omp_attention_amx;

namespace kernels_bench {

using Floats = std::vector<float>;

inline const weir_kernel &best(const weir_kernel &v4, const weir_kernel &v3, const weir_kernel &v2)
{
    __builtin_cpu_init();
    const char *const forced = std::getenv("WEIR_BENCH_ISA");
    const std::string isa = forced                                ? forced
                            : __builtin_cpu_supports("x86-64-v4") ? "v4"
                            : __builtin_cpu_supports("x86-64-v3") ? "v3"
                                                                  : "v2";
    return isa == "v4" ? v4 : isa == "v3" ? v3 : v2;
}
#define WEIR_BEST(op)                                                                              \
    best(weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3, weir_kernel_omp_##op##_v2)

template <class T> T *aligned(size_t n)
{
    T *const p = static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64));
    std::memset(static_cast<void *>(p), 0, n * sizeof(T));
    return p;
}

inline Floats noise(size_t n, float scale = 1)
{
    static std::mt19937 rng(1);
    std::normal_distribution<float> normal(0, scale);
    Floats x(n);
    for (float &value : x) value = normal(rng);
    return x;
}

double median(std::vector<double> values);
double best_seconds(int repeats, const std::function<void()> &work);

// Bytes per second of reading, all threads.
double measured_bandwidth();
// Flops per second of f32 multiply-adds in the widest registers, all threads; 0 without AVX2.
double measured_flops();

// Sets GB/s and GFLOP/s, with their shares of what the machine has, from the counter best_us.
void rate(benchmark::State &state, double bytes, double flops);

// A sequence of `depth` past rows and `rows` new ones; copies are visited in turn.
void attention(
    benchmark::State &state, int32_t depth, int32_t rows, weir_kv_format format, int64_t heads,
    int64_t kv_heads, int64_t dim
);
// The rows of attention for latents: the one for this CPU, and the one with tile registers.
std::vector<const weir_kernel *> latent_kernels();
// attention over f16 latents of 512 and rotated keys of 64, as in DeepSeek.
void latents(
    benchmark::State &state, const weir_kernel &kernel, int32_t depth, int32_t rows, int64_t heads
);
// One row of differential attention (queries, attention with both, combination) and of plain
// attention over the same K and V, in turns: the medians' ratio. Both are per copy.
void differential(
    benchmark::State &state, int32_t depth, weir_kv_format format, int64_t heads, int64_t kv_heads,
    int64_t dim
);

} // namespace kernels_bench
