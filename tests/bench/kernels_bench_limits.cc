// The machine's limits, measured in the same run: read bandwidth over 256 MiB and f32 multiply-adds
// in registers, both on all threads.
#include <omp.h>

#include <algorithm>

#include "tests/bench/kernels_bench.h"

namespace kernels_bench {

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values.empty() ? 0.0 : values[values.size() / 2];
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

double measured_bandwidth()
{
    static const double result = [] {
        const size_t n = (size_t)256 << 18;
        float *const data = aligned<float>(n);
        float total = 0;
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

namespace {

// n multiply-adds in each of `chains` registers of `Wide`; inlined, so that they have the caller's
// instruction set.
template <class Wide, int chains>
inline __attribute__((always_inline)) float multiply_add(int64_t n)
{
    Wide a[chains], b = Wide{} + 0.999f, c = Wide{} + 0.001f;
    float sum = 0;
    for (int i = 0; i < chains; i++) a[i] = b;
    for (int64_t k = 0; k < n; k++) {
#pragma unroll
        for (int i = 0; i < chains; i++) a[i] = __builtin_elementwise_fma(a[i], b, c);
        asm volatile("" : "+x"(a[0]), "+x"(a[1]), "+x"(a[2]), "+x"(a[3]), "+x"(a[4]), "+x"(a[5]));
    }
    for (int i = 0; i < chains; i++) sum += a[i][0];
    return sum;
}
#if defined(__x86_64__)
typedef float Wide256 __attribute__((vector_size(32)));
typedef float Wide512 __attribute__((vector_size(64)));
__attribute__((target("avx512f,avx512vl,fma"))) float multiply_add_512(int64_t n)
{
    return multiply_add<Wide512, 12>(n);
}
__attribute__((target("avx2,fma"))) float multiply_add_256(int64_t n)
{
    return multiply_add<Wide256, 12>(n);
}
#endif

} // namespace

double measured_flops()
{
    static const double result = [] {
#if defined(__x86_64__)
        __builtin_cpu_init();
        const bool is_512 = __builtin_cpu_supports("x86-64-v4") != 0;
        if (!is_512 && __builtin_cpu_supports("x86-64-v3") == 0) return 0.0;
        const int64_t n = 40000;
        const int threads = omp_get_max_threads();
        const double seconds = best_seconds(200, [&] {
#pragma omp parallel
            {
                float sum = is_512 ? multiply_add_512(n) : multiply_add_256(n);
                benchmark::DoNotOptimize(sum);
            }
        });
        return (double)n * 12 * (is_512 ? 16 : 8) * 2 * threads / seconds;
#else
        return 0.0;
#endif
    }();
    return result;
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
        if (measured_flops() > 0)
            state.counters["peak%"] = 100 * flops / seconds / measured_flops();
    }
}

} // namespace kernels_bench
