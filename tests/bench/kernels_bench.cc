// tests/bench/kernels_bench.cc - the hot single-source kernels at the shapes of Qwen3.5, against
// the machine's own limits.
//
// The limits are measured in the same run: read bandwidth over 256 MiB and f32 multiply-adds in
// registers, both on all threads.
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
#include <utility>
#include <vector>

#include "kernels/abi/coda.h"
#include "kernels/abi/ops.h"

#define WEIR_ROWS(X)                                                                               \
    X(attention)                                                                                   \
    X(gated_delta_rule)                                                                            \
    X(gated_delta_rule_chunk)                                                                      \
    X(rmsnorm) X(swiglu) X(conv1d) X(rope) X(kv_write) X(coda_queries) X(coda_combine) X(coda_write)
#define WEIR_DECLARE(op)                                                                           \
    extern "C" const weir_kernel weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3,             \
        weir_kernel_omp_##op##_v2;
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
#define WEIR_BEST(op)                                                                              \
    best(weir_kernel_omp_##op##_v4, weir_kernel_omp_##op##_v3, weir_kernel_omp_##op##_v2)

template <class T> T *aligned(size_t n)
{
    T *const p = static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64));
    std::memset(static_cast<void *>(p), 0, n * sizeof(T));
    return p;
}

Floats noise(size_t n, float scale = 1)
{
    static std::mt19937 rng(1);
    std::normal_distribution<float> normal(0, scale);
    Floats x(n);
    for (float &value : x) value = normal(rng);
    return x;
}

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

// Bytes per second of reading, all threads.
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

// Flops per second of f32 multiply-adds in the widest registers, all threads; 0 without AVX2.
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
        if (measured_flops() > 0)
            state.counters["peak%"] = 100 * flops / seconds / measured_flops();
    }
}

// K and V of `depth` rows; as many copies as no cache holds, or one for prompts.
struct Cache {
    Cache(
        int32_t depth, int32_t rows, weir_kv_format kv_format, int64_t n_kv_heads, int64_t head_dim
    )
        : kv_heads(n_kv_heads), dim(head_dim), format(kv_format), pages((depth + rows + 63) / 64)
    {
        const int64_t page_bytes = weir_kv_bytes(format, format, dim, dim),
                      layer_bytes = pages * kv_heads * page_bytes;
        const int64_t layers =
            rows == 1 ? std::clamp<int64_t>((int64_t)100e6 / layer_bytes, 1, 64) : 1;
        memory = aligned<char>((size_t)(layers * layer_bytes));
        const Floats values = noise(4096, 0.3f);
        for (int64_t i = 0; i < layers * layer_bytes / element_bytes(); i++) {
            if (format == WEIR_KV_F16)
                reinterpret_cast<_Float16 *>(memory)[i] = (_Float16)values[(size_t)i % 4093];
            else if (format == WEIR_KV_BF16)
                reinterpret_cast<uint16_t *>(memory)[i] =
                    weir_bf16_from_f32(values[(size_t)i % 4093]);
            else
                reinterpret_cast<float *>(memory)[i] = values[(size_t)i % 4093];
        }
        for (int64_t layer = 0; layer < layers; layer++) {
            tables.emplace_back();
            for (int64_t i = 0; i < pages * kv_heads; i++)
                tables.back().push_back(memory + layer * layer_bytes + i * page_bytes);
        }
    }
    ~Cache() { std::free(memory); }
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;

    int64_t element_bytes() const { return format == WEIR_KV_F32 ? 4 : 2; }

    int64_t kv_heads, dim;
    weir_kv_format format;
    int64_t pages;
    char *memory;
    std::vector<std::vector<void *>> tables;
};

// Attention of `rows` rows over a cache, with so many query heads.
struct Attention {
    Attention(const Cache &cache, int32_t depth, int32_t n_rows, int64_t heads)
        : kernel(WEIR_BEST(attention)), out((size_t)(n_rows * heads * cache.dim)),
          q(noise(out.size()))
    {
        segment.page_stride = cache.pages, segment.n_rows = n_rows, segment.n_past = depth;
        args.out = out.data(), args.q = q.data(), args.segments = &segment, args.n_segments = 1;
        args.n_heads = heads, args.n_kv_heads = cache.kv_heads,
        args.key_dim = args.value_dim = cache.dim;
        args.q_stride = args.out_stride = heads * cache.dim, args.q_head_stride = cache.dim;
        args.scale = 0.0625f, args.k_format = args.v_format = cache.format;
        context.n_threads = omp_get_max_threads();
        segment.pages = cache.tables[0].data();
        context.scratch_bytes = kernel.scratch(&args);
        context.scratch = aligned<char>(context.scratch_bytes + 64);
    }
    ~Attention() { std::free(context.scratch); }
    Attention(const Attention &) = delete;
    Attention &operator=(const Attention &) = delete;

    bool run(void *const *pages)
    {
        segment.pages = pages;
        return kernel.run(&context, &args) == WEIR_OK;
    }

    const weir_kernel &kernel;
    Floats out, q;
    weir_kv_segment segment = {};
    weir_attention_args args = {};
    weir_kernel_context context = {};
};

// A sequence of `depth` past rows and `rows` new ones; copies are visited in turn.
void attention(
    benchmark::State &state, int32_t depth, int32_t rows, weir_kv_format format, int64_t heads,
    int64_t kv_heads, int64_t dim
)
{
    const Cache cache(depth, rows, format, kv_heads, dim);
    Attention call(cache, depth, rows, heads);
    double fastest = 1e9;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        for (const auto &pages : cache.tables)
            if (!call.run(pages.data())) state.SkipWithError("the kernel refused");
        const double seconds = (omp_get_wtime() - start) / (double)cache.tables.size();
        state.SetIterationTime(seconds);
        fastest = std::min(fastest, seconds);
    }
    state.counters["best_us"] = fastest * 1e6;
    const double positions = (double)rows * depth + rows * (rows + 1.0) / 2;
    rate(
        state,
        rows == 1 ? (double)(depth + rows) * (double)(kv_heads * dim * 2 * cache.element_bytes())
                  : 0,
        positions * (double)(heads * dim) * 4
    );
}

// One row of differential attention (queries, attention with both, combination) and of plain
// attention over the same K and V, in turns: the medians' ratio. Both are per copy.
void differential(
    benchmark::State &state, int32_t depth, weir_kv_format format, int64_t heads, int64_t kv_heads,
    int64_t dim
)
{
    const Cache cache(depth - 1, 1, format, kv_heads, dim);
    Attention plain(cache, depth - 1, 1, heads), doubled(cache, depth - 1, 1, 2 * heads);
    const Floats theta((size_t)(heads * dim / 2), 1.5f), lambda((size_t)heads, -6),
        norm((size_t)dim, 1);
    Floats combined((size_t)(heads * dim));
    weir_kernel_context context = {};
    context.n_threads = omp_get_max_threads();
    weir_coda_queries_args queries = {};
    queries.dst = doubled.q.data(), queries.q = plain.q.data(), queries.theta = theta.data(),
    queries.n_rows = 1;
    queries.n_heads = heads, queries.n_kv_heads = kv_heads, queries.head_dim = dim,
    queries.q_stride = heads * dim;
    weir_coda_combine_args combine = {};
    combine.dst = combined.data(), combine.src = doubled.out.data(), combine.lambda = lambda.data(),
    combine.bias = lambda.data();
    combine.weight = norm.data(), combine.n_rows = 1, combine.n_heads = heads,
    combine.n_kv_heads = kv_heads, combine.head_dim = dim;
    combine.lambda_stride = heads, combine.eps = 1e-6f;
    const weir_kernel &turn = WEIR_BEST(coda_queries), &subtract = WEIR_BEST(coda_combine);
    std::vector<double> of_plain, of_both;
    bool ran = true;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        for (const auto &pages : cache.tables) ran = ran && plain.run(pages.data());
        const double middle = omp_get_wtime();
        for (const auto &pages : cache.tables)
            ran = ran && turn.run(&context, &queries) == WEIR_OK && doubled.run(pages.data()) &&
                  subtract.run(&context, &combine) == WEIR_OK;
        of_plain.push_back((middle - start) / (double)cache.tables.size());
        of_both.push_back((omp_get_wtime() - middle) / (double)cache.tables.size());
        state.SetIterationTime(of_both.back());
    }
    if (!ran) state.SkipWithError("a kernel refused");
    const double plain_seconds = median(of_plain), seconds = median(of_both);
    const double bytes = (double)depth * (double)(kv_heads * dim * 2 * cache.element_bytes());
    state.counters["plain_us"] = plain_seconds * 1e6;
    state.counters["differential_us"] = seconds * 1e6;
    state.counters["ratio"] = seconds / plain_seconds;
    state.counters["GB/s"] = bytes / seconds * 1e-9;
    state.counters["bw%"] = 100 * bytes / seconds / measured_bandwidth();
    state.counters["GFLOP/s"] = (double)depth * (double)(heads * dim) * 8 / seconds * 1e-9;
}

// Writes of `rows` rows into bounded memories of window 256, banks of 64, in turns; 0 rows: a step.
// All are full.
void coda_write(
    benchmark::State &state, int32_t rows, weir_kv_format format, int64_t kv_heads, int64_t dim
)
{
    const int32_t n = std::max(rows, 1);
    const Floats k = noise((size_t)(n * kv_heads * dim)), v = noise(k.size()),
                 gates = noise((size_t)n), rates((size_t)kv_heads, 0.05f);
    weir_coda_layer layer = {};
    layer.n_kv_heads = kv_heads, layer.head_dim = dim, layer.window = 256,
    layer.n_exact = layer.n_summary = 64;
    layer.least_exact = layer.least_summary = 64, layer.exact_candidates = 8,
    layer.summary_candidates = 64;
    layer.exact_gate = 0.1f, layer.summary_gate = 0.05f, layer.hit = 0.9f, layer.novelty = 0.7f,
    layer.is_gated = layer.founds = true;
    layer.format = format, layer.rates = rates.data();
    const size_t bytes = weir_coda_view(&layer, nullptr).bytes, n_states = 40000000 / bytes + 1;
    char *const memory = aligned<char>(bytes * n_states);
    weir_coda_segment segment = {};
    weir_coda_write_args args = {};
    const weir_kernel &kernel = WEIR_BEST(coda_write);
    weir_kernel_context context = {};
    args.k = k.data(), args.v = v.data(), args.gates = gates.data(), args.layer = &layer,
    args.segments = &segment, args.n_segments = 1;
    args.k_stride = args.v_stride = kv_heads * dim, args.gate_stride = 1;
    segment.state = memory, segment.n_rows = n, segment.is_step = rows == 0;
    context.n_threads = omp_get_max_threads();
    context.scratch_bytes = kernel.scratch(&args);
    context.scratch = aligned<char>(context.scratch_bytes + 64);
    const auto write_all = [&] {
        bool ran = true;
        for (size_t i = 0; i < n_states; i++) {
            segment.state = memory + i * bytes;
            ran = ran && kernel.run(&context, &args) == WEIR_OK;
        }
        return ran;
    };
    for (size_t i = 0; i < n_states; i++) weir_coda_reset(&layer, memory + i * bytes);
    for (int64_t written = 0; written < 1024; written += n) (void)write_all();
    std::vector<double> seconds;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        if (!write_all()) state.SkipWithError("the kernel refused");
        seconds.push_back((omp_get_wtime() - start) / (double)n_states);
        state.SetIterationTime(seconds.back());
    }
    state.counters["us"] = median(seconds) * 1e6;
    std::free(context.scratch);
    std::free(memory);
}

void delta(benchmark::State &state, const weir_kernel &kernel, int32_t rows)
{
    const int64_t k_heads = 16, v_heads = 16, dim = 128, stride = (2 * k_heads + v_heads) * dim;
    const Floats qkv = noise((size_t)(rows * stride)), ab = noise((size_t)(rows * 2 * v_heads)),
                 bias = noise((size_t)v_heads);
    const Floats a_neg((size_t)v_heads, -0.5f);
    Floats out((size_t)(rows * v_heads * dim)), memory((size_t)(v_heads * dim * dim));
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
    rate(
        state, rows == 1 ? 8.0 * (double)memory.size() : 0,
        8.0 * (double)rows * (double)memory.size()
    );
}

void rmsnorm(benchmark::State &state, int64_t rows, int64_t dim)
{
    Floats dst((size_t)(rows * dim)), src = noise(dst.size());
    const Floats weight = noise((size_t)dim);
    const weir_rmsnorm_args args = { dst.data(), src.data(), weight.data(), nullptr, rows,
                                     1,          dim,        dim,           dim,     dim,
                                     dim,        0,          1e-6f };
    repeat(state, WEIR_BEST(rmsnorm), &args);
    rate(state, 8.0 * (double)(rows * dim), 0);
}

void swiglu(benchmark::State &state, int64_t rows, int64_t dim)
{
    Floats dst((size_t)(rows * dim));
    const Floats gate = noise(dst.size(), 3), up = noise(dst.size());
    const weir_swiglu_args args = { dst.data(), gate.data(), up.data(), rows, dim, dim, dim, dim };
    repeat(state, WEIR_BEST(swiglu), &args);
    rate(state, 12.0 * (double)(rows * dim), 0);
}

void conv1d(benchmark::State &state, int32_t rows)
{
    const int64_t channels = 6144, n_taps = 4;
    Floats dst((size_t)(rows * channels)), history((size_t)(3 * channels));
    const Floats src = noise(dst.size()), taps = noise((size_t)(channels * n_taps));
    const weir_recurrent_segment segment = { history.data(), nullptr, 0, rows };
    const weir_conv1d_args args = { dst.data(), src.data(), taps.data(), &segment,
                                    1,          channels,   n_taps };
    repeat(state, WEIR_BEST(conv1d), &args);
    rate(state, 8.0 * (double)(rows * channels), 0);
}

void rope(benchmark::State &state, int64_t rows)
{
    const int64_t heads = 10, dim = 256;
    Floats x = noise((size_t)(rows * heads * dim)), frequencies(32, 0.01f);
    std::vector<int32_t> positions((size_t)rows, 100000);
    const weir_rope_args args = {
        x.data(), positions.data(),    frequencies.data(), rows, heads, 64, heads * dim, dim,
        1,        WEIR_ROPE_HALF_SPLIT
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
    benchmark::RegisterBenchmark(name.c_str(), body)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

} // namespace

int main(int argc, char **argv)
{
    add("machine", limits);
    for (int32_t depth : { 128, 1024, 8192, 32768 })
        add("attention/decode/f16/" + std::to_string(depth),
            [=](auto &state) { attention(state, depth - 1, 1, WEIR_KV_F16, 8, 2, 256); });
    add("attention/decode/f32/8192",
        [](auto &state) { attention(state, 8191, 1, WEIR_KV_F32, 8, 2, 256); });
    add("attention/decode/f16/8192/group1",
        [](auto &state) { attention(state, 8191, 1, WEIR_KV_F16, 4, 4, 128); });
    for (int32_t depth : { 0, 8192 })
        add("attention/prefill512/f16/" + std::to_string(depth),
            [=](auto &state) { attention(state, depth, 512, WEIR_KV_F16, 8, 2, 256); });
    add("attention/prefill512/f16/0/dim64",
        [](auto &state) { attention(state, 0, 512, WEIR_KV_F16, 8, 2, 64); });
    for (const auto &[name, format] :
         { std::pair("f32", WEIR_KV_F32), std::pair("f16", WEIR_KV_F16),
           std::pair("bf16", WEIR_KV_BF16) }) {
        for (int32_t depth : { 384, 8192 }) {
            const std::string of = std::string(name) + "/" + std::to_string(depth);
            add("differential/32/8/128/" + of, [=, format = format](auto &state) {
                differential(state, depth, format, 32, 8, 128);
            });
            add("differential/16/4/64/" + of, [=, format = format](auto &state) {
                differential(state, depth, format, 16, 4, 64);
            });
        }
        for (int32_t rows : { 0, 256, 1024 }) {
            const std::string of =
                std::string(name) + "/" + (rows == 0 ? "step" : std::to_string(rows));
            add("coda_write/8/128/" + of,
                [=, format = format](auto &state) { coda_write(state, rows, format, 8, 128); });
            add("coda_write/4/64/" + of,
                [=, format = format](auto &state) { coda_write(state, rows, format, 4, 64); });
        }
    }
    for (int32_t rows : { 1, 512 }) {
        add("delta/scan/" + std::to_string(rows),
            [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule), rows); });
        add("delta/chunk/" + std::to_string(rows),
            [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule_chunk), rows); });
        add("rmsnorm/" + std::to_string(rows), [=](auto &state) { rmsnorm(state, rows, 4096); });
        add("swiglu/" + std::to_string(rows), [=](auto &state) { swiglu(state, rows, 12288); });
        add("conv1d/" + std::to_string(rows), [=](auto &state) { conv1d(state, rows); });
        add("rope/" + std::to_string(rows), [=](auto &state) { rope(state, rows); });
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
