// Attention over a KV cache, plain and differential.
#include <omp.h>

#include <algorithm>

#include "offload/caps.h"
#include "tests/bench/kernels_bench.h"

namespace kernels_bench {
namespace {

// K and V of `depth` rows, or latents, which have no V; as many copies as no cache holds, or one
// for prompts.
struct Cache {
    Cache(
        int32_t depth, int32_t rows, weir_kv_format kv_format, int64_t n_kv_heads, int64_t head_dim,
        bool has_values = true
    )
        : kv_heads(n_kv_heads), dim(head_dim), format(kv_format), pages((depth + rows + 63) / 64)
    {
        const int64_t page_bytes = weir_kv_bytes(format, format, dim, has_values ? dim : 0),
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

// Attention of `n_rows` rows over a cache, with `heads` query heads.
struct Attention {
    Attention(
        const Cache &cache, int32_t depth, int32_t n_rows, int64_t heads,
        const weir_kernel &row = WEIR_BEST(attention), int64_t aliased = 0
    )
        : kernel(row), out((size_t)(n_rows * heads * cache.dim)), q(noise(out.size()))
    {
        segment.page_stride = cache.pages, segment.n_rows = n_rows, segment.n_past = depth;
        args.out = out.data(), args.q = q.data(), args.segments = &segment, args.n_segments = 1;
        args.n_heads = heads, args.n_kv_heads = cache.kv_heads,
        args.key_dim = args.value_dim = cache.dim;
        args.q_stride = args.out_stride = heads * cache.dim, args.q_head_stride = cache.dim;
        args.scale = 0.0625f, args.k_format = args.v_format = cache.format;
        if (aliased > 0) {
            args.value_dim = aliased, args.out_stride = heads * aliased;
            args.value_aliases_key = true;
        }
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

/* Runs the call over each of the cache's tables in turn. */
void measure(benchmark::State &state, const Cache &cache, Attention &call)
{
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
}

} // namespace

void attention(
    benchmark::State &state, int32_t depth, int32_t rows, weir_kv_format format, int64_t heads,
    int64_t kv_heads, int64_t dim
)
{
    const Cache cache(depth, rows, format, kv_heads, dim);
    Attention call(cache, depth, rows, heads);
    measure(state, cache, call);
    const double positions = (double)rows * depth + rows * (rows + 1.0) / 2;
    rate(
        state,
        rows == 1 ? (double)(depth + rows) * (double)(kv_heads * dim * 2 * cache.element_bytes())
                  : 0,
        positions * (double)(heads * dim) * 4
    );
}

std::vector<const weir_kernel *> latent_kernels()
{
    std::vector<const weir_kernel *> kernels = { &WEIR_BEST(attention) };
    if (weir_caps_detect().amx_bf16) kernels.push_back(&weir_kernel_omp_attention_amx);
    return kernels;
}

void latents(
    benchmark::State &state, const weir_kernel &kernel, int32_t depth, int32_t rows, int64_t heads
)
{
    constexpr int64_t rank = 512, width = rank + 64;
    const Cache cache(depth, rows, WEIR_KV_F16, 1, width, false);
    Attention call(cache, depth, rows, heads, kernel, rank);
    measure(state, cache, call);
    const double positions = (double)rows * depth + rows * (rows + 1.0) / 2,
                 bytes = (double)(depth + rows) * (double)(width * cache.element_bytes());
    if (rows == 1) state.counters["MB"] = bytes * 1e-6;
    rate(state, rows == 1 ? bytes : 0, positions * (double)(heads * (width + rank)) * 2);
}

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
    const weir_kernel &rotate = WEIR_BEST(coda_queries), &subtract = WEIR_BEST(coda_combine);
    std::vector<double> of_plain, of_both;
    bool ran = true;
    for (auto _ : state) {
        const double start = omp_get_wtime();
        for (const auto &pages : cache.tables) ran = ran && plain.run(pages.data());
        const double middle = omp_get_wtime();
        for (const auto &pages : cache.tables)
            ran = ran && rotate.run(&context, &queries) == WEIR_OK && doubled.run(pages.data()) &&
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

} // namespace kernels_bench
