// Products on the shapes of a 0.8B model, with the read bandwidth, the clock and the int8 and bf16
// peaks of this process, measured around each case. Options and columns: tests/bench/README.md.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>

#include "offload/bandwidth.h"
#include "offload/caps.h"
#include "tests/unit/matmul/fixture.h"

namespace weir_test {
namespace {

int threads = 2;
const char *isa = "auto";

struct Shape {
    int64_t n_in, n_out;
};
constexpr Shape kShapes[] = { { 1024, 3584 }, { 3584, 1024 }, { 1024, 6144 },
                              { 2048, 1024 }, { 4096, 4096 }, { 1024, 248320 } };

template <typename Work> double seconds_of(const Work &work)
{
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Operations per second of both threads: eight independent chains, as many as the latency of the
// instruction asks for.
#define PROBE(instruction)                                                                         \
    __asm__ volatile(                                                                              \
        "1:\n" instruction " %%zmm31, %%zmm30, %%zmm0\n" instruction                               \
        " %%zmm31, %%zmm30, %%zmm1\n" instruction " %%zmm31, %%zmm30, %%zmm2\n" instruction        \
        " %%zmm31, %%zmm30, %%zmm3\n" instruction " %%zmm31, %%zmm30, %%zmm4\n" instruction        \
        " %%zmm31, %%zmm30, %%zmm5\n" instruction " %%zmm31, %%zmm30, %%zmm6\n" instruction        \
        " %%zmm31, %%zmm30, %%zmm7\n dec %0\n jnz 1b"                                              \
        : "+r"(n)                                                                                  \
        :                                                                                          \
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"                           \
    )

// Four independent products of tiles at a time, as many sums as the kernel has.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_tiles(int64_t n)
{
    struct {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = { 64, 64, 64, 64, 64, 64, 64, 64 };
        uint8_t rows[16] = { 16, 16, 16, 16, 16, 16, 16, 16 };
    } configuration;
    _tile_loadconfig(&configuration);
    for (; n > 0; n--) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

double tile_peak()
{
    constexpr int64_t kSteps = 50000;
    double best = 1e9;
    for (int i = 0; i < 3; i++)
        best = std::min(best, seconds_of([&] {
#pragma omp parallel num_threads(threads)
                            multiply_tiles(kSteps);
                        }));
    return 2.0 * threads * kSteps * 4 * 16 * 16 * 32 / best;
}

// Of dot products: those of int8 or of bf16.
double peak(bool int8)
{
    const weir_caps caps = weir_caps_detect();
    if (int8 ? !caps.avx512_vnni : !caps.avx512_bf16) return 0;
    constexpr int64_t kSteps = 200000;
    double best = 1e9;
    for (int i = 0; i < 3; i++)
        best = std::min(best, seconds_of([&] {
#pragma omp parallel num_threads(threads)
                            {
                                int64_t n = kSteps;
                                if (int8)
                                    PROBE("vpdpbusd");
                                else
                                    PROBE("vdpbf16ps");
                            }
                        }));
    return (double)threads * kSteps * 8 * (int8 ? 128 : 64) / best;
}

// Cycles per second: a multiplication takes three. In stretches shorter than a time slice.
double clock_rate()
{
    constexpr int64_t kSteps = 10000;
    double best = 1e9;
    for (int i = 0; i < 100; i++)
        best = std::min(best, seconds_of([&] {
                            int64_t n = kSteps, x = 3;
                            __asm__ volatile("1:\n imul %1, %1\n imul %1, %1\n imul %1, %1\n"
                                             " imul %1, %1\n dec %0\n jnz 1b"
                                             : "+r"(n), "+r"(x));
                        }));
    return 12.0 * kSteps / best;
}

double bandwidth()
{
    weir_bandwidth measured = {};
    return weir_bandwidth_measure(&measured, threads, 256 << 20, 3, nullptr) == WEIR_OK
               ? measured.best
               : 0;
}

struct Copies { // packed once per dtype and shape
    weir_dtype dtype = WEIR_DTYPE_COUNT;
    Shape shape = {};
    std::vector<std::unique_ptr<Weight>> weights;

    void fill(weir_stream *stream, weir_dtype wanted, Shape s)
    {
        if (dtype == wanted && shape.n_in == s.n_in && shape.n_out == s.n_out) return;
        weights.clear();
        dtype = wanted, shape = s;
        const int64_t n = std::max<int64_t>(
            1, (int64_t)320e6 / (int64_t)(weir_row_bytes(dtype, s.n_in) * (size_t)s.n_out)
        );
        for (int64_t i = 0; i < n; i++)
            weights.push_back(
                std::make_unique<Weight>(stream, dtype, s.n_out, s.n_in, (uint32_t)i + 1)
            );
    }
};

void product(benchmark::State &state, weir_dtype dtype, Shape shape, int64_t n_rows)
{
    static Stream stream(threads, isa);
    static Copies copies;
    copies.fill(stream.stream, dtype, shape);
    const bool tiles = copies.weights[0]->weight.layout == WEIR_LAYOUT_TILES;
    const bool bf16 = copies.weights[0]->weight.dtype == WEIR_BF16,
               amx = copies.weights[0]->weight.layout == WEIR_LAYOUT_AMX;
    const weir_kernel *const rows[] = {
        &weir_kernel_x86_matmul_tiles_amx,     &weir_kernel_x86_matmul_tiles_vnni,
        &weir_kernel_x86_matmul_tiles_avxvnni, &weir_kernel_x86_matmul_tiles_v3,
        &weir_kernel_x86_matmul_tiles_v2,      &weir_kernel_x86_matmul_bf16_amx,
        &weir_kernel_onednn_matmul_bf16,       &weir_kernel_onednn_matmul_f32,
        &weir_kernel_x86_matmul_dense_v3,      &weir_kernel_x86_matmul_dense_v2
    };
    const auto x = random_rows(n_rows * shape.n_in, 1);
    Memory y = aligned_memory((size_t)(n_rows * shape.n_out) * sizeof(float));
    weir_matmul_args args =
        arguments(&copies.weights[0]->weight, (float *)y.get(), x.data(), n_rows);
    const weir_caps caps = *weir_stream_caps(stream.stream);
    const weir_kernel *kernel =
        *std::find_if(std::begin(rows), std::end(rows), [&](const weir_kernel *k) {
            return !k->reject(&caps, &args);
        });
    const size_t bytes = kernel->scratch(&args) + kernel->thread_scratch * (size_t)threads;
    Memory scratch = aligned_memory(bytes);
    const weir_kernel_context context = { 0, threads, nullptr, scratch.get(), bytes };

    double limit = bandwidth(), most = amx ? tile_peak() : peak(!bf16), clock = clock_rate();
    std::vector<double> times;
    size_t next = 0;
    for (auto &copy : copies.weights) { // makes primitives, touches everything
        args.outputs[0].weight = &copy->weight;
        if (kernel->run(&context, &args) != WEIR_OK) state.SkipWithError("the kernel failed");
    }
    for (auto _ : state) {
        args.outputs[0].weight = &copies.weights[next++ % copies.weights.size()]->weight;
        times.push_back(seconds_of([&] { (void)kernel->run(&context, &args); }));
        state.SetIterationTime(times.back());
    }
    limit = std::max(limit, bandwidth());
    most = std::max(most, amx ? tile_peak() : peak(!bf16));
    clock = std::max(clock, clock_rate());
    std::sort(times.begin(), times.end());
    const double time = times[times.size() / 4], read = (double)copies.weights[0]->weight.bytes,
                 flops = 2.0 * (double)(n_rows * shape.n_in * shape.n_out);
    state.SetLabel(kernel->name);
    state.counters["us"] = time * 1e6;
    state.counters["us_best"] = times[0] * 1e6;
    state.counters["GB/s"] = read / time * 1e-9;
    state.counters["of_bandwidth"] = read / time * 1e-9 / limit;
    state.counters["GFLOP/s"] = flops / time * 1e-9;
    state.counters["MAC/cycle"] = flops / 2 / times[0] / clock / threads;
    if (most > 0 && (tiles || bf16)) state.counters["of_peak"] = flops / time / most;
}

} // namespace
} // namespace weir_test

int main(int argc, char **argv)
{
    using namespace weir_test;
    for (const weir_dtype dtype : { WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_K, WEIR_Q6_K, WEIR_BF16 }) {
        for (const Shape shape : kShapes) {
            for (const int64_t n_rows : { 1, 2, 4, 8, 16, 64, 512 }) {
                if (n_rows * shape.n_out > 512 * 8192) continue; // the vocabulary meets few rows
                const std::string name = std::string(weir_dtype_of(dtype).name) + "/" +
                                         std::to_string(shape.n_in) + "x" +
                                         std::to_string(shape.n_out) + "/" + std::to_string(n_rows);
                benchmark::RegisterBenchmark(
                    name.c_str(),
                    [=](benchmark::State &state) { product(state, dtype, shape, n_rows); }
                )
                    ->UseManualTime()
                    ->MinTime(0.15)
                    ->Unit(benchmark::kMicrosecond);
            }
        }
    }
    benchmark::Initialize(&argc, argv);
    int n = 1;
    for (int i = 1; i < argc; i++) {
        if (std::strncmp(argv[i], "--isa=", 6) == 0)
            isa = argv[i] + 6;
        else if (std::strncmp(argv[i], "--threads=", 10) == 0)
            threads = std::max(1, std::atoi(argv[i] + 10));
        else
            argv[n++] = argv[i];
    }
    if (benchmark::ReportUnrecognizedArguments(n, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
