// tests/bench/kernels_bench.cc - the hot single-source kernels at the shapes of Qwen3.5, against
// the machine's own limits.
//     bazel run -c opt //tests/bench:kernels_bench -- --benchmark_min_time=0.5
#include <omp.h>

#include <algorithm>
#include <utility>

#include "tests/bench/kernels_bench.h"

namespace kernels_bench {
namespace {

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

void delta(benchmark::State &state, const weir_kernel &kernel, int32_t rows, bool by_channel)
{
    const int64_t k_heads = 16, v_heads = 16, dim = 128, stride = (2 * k_heads + v_heads) * dim;
    const int64_t decays = by_channel ? v_heads * dim : v_heads;
    const Floats qkv = noise((size_t)(rows * stride)), a = noise((size_t)(rows * decays)),
                 b = noise((size_t)(rows * v_heads)), bias = noise((size_t)decays);
    const Floats a_neg((size_t)v_heads, -0.5f);
    Floats out((size_t)(rows * v_heads * dim)), memory((size_t)(v_heads * dim * dim));
    weir_recurrent_segment segment = { nullptr, memory.data(), 0, rows };
    const weir_gated_delta_rule_args args = { out.data(),
                                              qkv.data(),
                                              qkv.data() + k_heads * dim,
                                              qkv.data() + 2 * k_heads * dim,
                                              a.data(),
                                              b.data(),
                                              a_neg.data(),
                                              bias.data(),
                                              &segment,
                                              1,
                                              k_heads,
                                              v_heads,
                                              dim,
                                              dim,
                                              stride,
                                              v_heads,
                                              false,
                                              by_channel };
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

void glu(benchmark::State &state, int64_t rows, int64_t dim)
{
    Floats dst((size_t)(rows * dim));
    const Floats gate = noise(dst.size(), 3), up = noise(dst.size());
    const weir_glu_args args = { dst.data(), gate.data(), up.data(),       rows, dim, dim,
                                 dim,        dim,         WEIR_GLU_SWIGLU, 0 };
    repeat(state, WEIR_BEST(glu), &args);
    rate(state, 12.0 * (double)(rows * dim), 0);
}

void conv1d(benchmark::State &state, int32_t rows)
{
    const int64_t channels = 6144, n_taps = 4;
    Floats dst((size_t)(rows * channels)), history((size_t)(3 * channels));
    const Floats src = noise(dst.size()), taps = noise((size_t)(channels * n_taps));
    const weir_recurrent_segment segment = { history.data(), nullptr, 0, rows };
    const weir_conv1d_args args = { dst.data(), src.data(), taps.data(), &segment, 1,
                                    channels,   n_taps,     false,       nullptr };
    repeat(state, WEIR_BEST(conv1d), &args);
    rate(state, 8.0 * (double)(rows * channels), 0);
}

void rope(benchmark::State &state, int64_t rows)
{
    const int64_t heads = 10, dim = 256;
    Floats x = noise((size_t)(rows * heads * dim)), frequencies(32, 0.01f);
    std::vector<int32_t> positions((size_t)rows, 100000);
    const weir_rope_args args = { x.data(),
                                  positions.data(),
                                  frequencies.data(),
                                  rows,
                                  heads,
                                  64,
                                  heads * dim,
                                  dim,
                                  1,
                                  WEIR_ROPE_HALF_SPLIT,
                                  0,
                                  0 };
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

void add_all()
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
    for (const weir_kernel *kernel : latent_kernels())
        for (int64_t heads : { 16, 128 }) {
            const std::string of = "/heads" + std::to_string(heads) + "/" + kernel->name;
            add("latents/decode/32768" + of,
                [=](auto &state) { latents(state, *kernel, 32767, 1, heads); });
            for (int32_t depth : { 0, 2048 })
                add("latents/prefill512/" + std::to_string(depth) + of,
                    [=](auto &state) { latents(state, *kernel, depth, 512, heads); });
        }
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
            [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule), rows, false); });
        add("delta/channels/" + std::to_string(rows),
            [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule), rows, true); });
        add("delta/chunk/" + std::to_string(rows),
            [=](auto &state) { delta(state, WEIR_BEST(gated_delta_rule_chunk), rows, false); });
        add("rmsnorm/" + std::to_string(rows), [=](auto &state) { rmsnorm(state, rows, 4096); });
        add("glu/" + std::to_string(rows), [=](auto &state) { glu(state, rows, 12288); });
        add("conv1d/" + std::to_string(rows), [=](auto &state) { conv1d(state, rows); });
        add("rope/" + std::to_string(rows), [=](auto &state) { rope(state, rows); });
    }
}

} // namespace
} // namespace kernels_bench

int main(int argc, char **argv)
{
    kernels_bench::add_all();
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
