// Cases of the ops that look along a sequence: kv_write, attention, conv1d, gated delta rule.
#include <algorithm>
#include <cmath>

#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

struct Span { // one sequence in the batch
    int32_t n_rows, n_past;
};
using Spans = std::vector<Span>;

std::string text_of(const Spans &spans)
{
    std::string text;
    for (const auto &span : spans) text += "_" + std::to_string(span.n_rows) + "at" + std::to_string(span.n_past);
    return text;
}

int64_t rows_of(const Spans &spans)
{
    int64_t n = 0;
    for (const auto &span : spans) n += span.n_rows;
    return n;
}

void store(void *page, weir_dtype dtype, int64_t at, float value)
{
    if (dtype == WEIR_F16)
        static_cast<_Float16 *>(page)[at] = (_Float16)value;
    else
        static_cast<float *>(page)[at] = value;
}

struct Kv {
    int64_t    n_kv_heads, key_dim, value_dim;
    weir_dtype dtype;
};

// A page with its first n_tokens rows filled and the rest zero, as the contract promises.
void *page_of(Builder &b, const Kv &kv, int64_t n_tokens)
{
    const size_t bytes = weir_page_bytes(kv.dtype, kv.key_dim, kv.value_dim);
    void        *page = b.bytes(bytes);
    std::fill_n(static_cast<uint8_t *>(page), bytes, (uint8_t)0);
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t d = 0; d < kv.key_dim; d++) store(page, kv.dtype, weir_page_k(t, d, kv.key_dim), b.normal());
        for (int64_t d = 0; d < kv.value_dim; d++) store(page, kv.dtype, weir_page_v(t, kv.key_dim, kv.value_dim) + d, b.normal());
    }
    return page;
}

// Pages for all heads of each span; `written`: rows of this batch are in the pages already, otherwise the pages are compared.
weir_kv_segment *kv_segments(Builder &b, const Spans &spans, const Kv &kv, bool written)
{
    auto   *segments = b.array<weir_kv_segment>(spans.size());
    int32_t row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        const int64_t end = spans[s].n_past + spans[s].n_rows, filled = written ? end : spans[s].n_past;
        const int64_t n_pages = (end + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS, stride = n_pages + 2;
        auto        **pages = b.array<void *>((size_t)(kv.n_kv_heads * stride));
        for (int64_t g = 0; g < kv.n_kv_heads; g++)
            for (int64_t p = 0; p < n_pages; p++) {
                void *page = page_of(b, kv, std::clamp<int64_t>(filled - p * WEIR_PAGE_TOKENS, 0, WEIR_PAGE_TOKENS));
                if (!written) b.compare(page, (size_t)(WEIR_PAGE_TOKENS * (kv.key_dim + kv.value_dim)), kv.dtype);
                pages[g * stride + p] = page;
            }
        segments[s] = { pages, stride, row, spans[s].n_rows, spans[s].n_past };
        row += spans[s].n_rows;
    }
    return segments;
}

Case kv_write(Spans spans, Kv kv)
{
    const int64_t rows = rows_of(spans);
    return { label("kv_write", { kv.n_kv_heads, kv.key_dim, kv.value_dim }) + text_of(spans) + "_" + weir_dtype_of(kv.dtype).name,
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_kv_write_args>();
                 const int64_t k_stride = kv.n_kv_heads * kv.key_dim + 3, v_stride = kv.n_kv_heads * kv.value_dim + 5;
                 *args = { b.input((size_t)(rows * k_stride)),
                           b.input((size_t)(rows * v_stride)),
                           kv_segments(b, spans, kv, false),
                           (int64_t)spans.size(),
                           kv.n_kv_heads,
                           kv.key_dim,
                           kv.value_dim,
                           k_stride,
                           v_stride,
                           kv.dtype };
                 return args;
             },
             { (double)(rows * kv.n_kv_heads * (kv.key_dim + kv.value_dim)) * 6, 0 } };
}

struct Attention {
    int64_t n_heads;
    Kv      kv;
    int32_t window = 0;
    int64_t pad = 0;
    float   sharp = 1; // scale of q: large values make one key win
};

Case attention(Spans spans, Attention a)
{
    double pairs = 0, tokens = 0;
    for (const auto &span : spans) {
        for (int32_t r = 0; r < span.n_rows; r++) pairs += a.window > 0 ? std::min(a.window, span.n_past + r + 1) : span.n_past + r + 1;
        tokens += span.n_past + span.n_rows;
    }
    const int64_t rows = rows_of(spans), width = a.kv.key_dim + a.kv.value_dim;
    return { label("attention", { a.n_heads, a.kv.n_kv_heads, a.kv.key_dim, a.kv.value_dim, a.window, a.pad, (int64_t)a.sharp }) +
                 text_of(spans) + "_" + weir_dtype_of(a.kv.dtype).name,
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_attention_args>();
                 const int64_t q_head = a.kv.key_dim + a.pad, q_stride = a.n_heads * q_head + a.pad;
                 const int64_t out_stride = a.n_heads * a.kv.value_dim + a.pad;
                 args->out = b.output((size_t)(rows * out_stride));
                 args->q = b.input((size_t)(rows * q_stride), Fill::Normal, a.sharp);
                 args->segments = kv_segments(b, spans, a.kv, true);
                 args->n_segments = (int64_t)spans.size(), args->n_heads = a.n_heads, args->n_kv_heads = a.kv.n_kv_heads;
                 args->key_dim = a.kv.key_dim, args->value_dim = a.kv.value_dim, args->dtype = a.kv.dtype;
                 args->q_stride = q_stride, args->q_head_stride = q_head, args->out_stride = out_stride;
                 args->window = a.window, args->scale = 1 / std::sqrt((float)a.kv.key_dim);
                 return args;
             },
             { tokens * (double)(a.kv.n_kv_heads * width) * (a.kv.dtype == WEIR_F16 ? 2 : 4), 2 * pairs * (double)(a.n_heads * width) } };
}

weir_recurrent_segment *recurrent_segments(Builder &b, const Spans &spans, int64_t history, int64_t state)
{
    auto   *segments = b.array<weir_recurrent_segment>(spans.size());
    int32_t row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        segments[s] = { b.inout((size_t)history), state > 0 ? b.inout((size_t)state, Fill::Normal, 0.3f) : nullptr, row, spans[s].n_rows };
        row += spans[s].n_rows;
    }
    return segments;
}

Case conv1d(Spans spans, int64_t n_channels, int64_t n_taps, Fill fill = Fill::Normal)
{
    const int64_t rows = rows_of(spans);
    return { label("conv1d", { n_channels, n_taps }) + text_of(spans) + suffix(fill),
             [=](Builder &b, bool) {
                 auto        *args = b.one<weir_conv1d_args>();
                 const size_t n = (size_t)(rows * n_channels);
                 *args = { b.output(n),
                           b.input(n, fill),
                           b.input((size_t)(n_channels * n_taps)),
                           recurrent_segments(b, spans, (n_taps - 1) * n_channels, 0),
                           (int64_t)spans.size(),
                           n_channels,
                           n_taps };
                 return args;
             },
             { (double)(rows * n_channels) * 8, (double)(rows * n_channels * n_taps) * 2 } };
}

struct Delta {
    int64_t n_k_heads, n_v_heads, key_dim, value_dim;
    bool    tiled = false;
    int64_t pad = 0;
};

// Lanes past value_dim are zero, as the contract says.
void clear_unused_lanes(float *state, const Delta &d)
{
    const int64_t tiles = (d.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    for (int64_t h = 0; h < d.n_v_heads; h++)
        for (int64_t j = d.value_dim; j < tiles * WEIR_DELTA_LANES; j++)
            for (int64_t i = 0; i < d.key_dim; i++)
                state[((h * tiles + j / WEIR_DELTA_LANES) * d.key_dim + i) * WEIR_DELTA_LANES + j % WEIR_DELTA_LANES] = 0;
}

Case gated_delta_rule(Spans spans, Delta d)
{
    const int64_t rows = rows_of(spans), tiles = (d.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    const int64_t state = d.n_v_heads * tiles * d.key_dim * WEIR_DELTA_LANES;
    return { label("gated_delta_rule", { d.n_k_heads, d.n_v_heads, d.key_dim, d.value_dim, d.pad }) + (d.tiled ? "_tiled" : "") +
                 text_of(spans),
             [=](Builder &b, bool) {
                 auto         *args = b.one<weir_gated_delta_rule_args>();
                 const int64_t q_width = d.n_k_heads * d.key_dim, stride = 2 * q_width + d.n_v_heads * d.value_dim + d.pad;
                 const int64_t ab = 2 * d.n_v_heads + d.pad;
                 float        *qkv = b.input((size_t)(rows * stride)), *gates = b.input((size_t)(rows * ab), Fill::Normal, 2);
                 auto         *a_neg = b.array<float>((size_t)d.n_v_heads);
                 for (int64_t h = 0; h < d.n_v_heads; h++) a_neg[h] = -std::exp(b.normal());
                 args->out = b.output((size_t)(rows * d.n_v_heads * d.value_dim));
                 args->q = qkv, args->k = qkv + q_width, args->v = qkv + 2 * q_width, args->a = gates, args->b = gates + d.n_v_heads;
                 args->a_neg = a_neg, args->dt_bias = b.input((size_t)d.n_v_heads);
                 auto *segments = recurrent_segments(b, spans, 1, state);
                 for (size_t s = 0; s < spans.size(); s++) clear_unused_lanes(segments[s].state, d);
                 args->segments = segments, args->n_segments = (int64_t)spans.size(), args->n_k_heads = d.n_k_heads;
                 args->n_v_heads = d.n_v_heads, args->key_dim = d.key_dim, args->value_dim = d.value_dim, args->qkv_stride = stride;
                 args->ab_stride = ab, args->tiled_heads = d.tiled;
                 return args;
             },
             { (double)state * 8 * (double)spans.size(), (double)(rows * state) * 7 } };
}

}  // namespace

std::vector<Case> sequence_cases(weir_op op)
{
    const Kv f16 = { 2, 64, 64, WEIR_F16 }, f32 = { 1, 32, 32, WEIR_F32 };
    switch (op) {
    case WEIR_OP_KV_WRITE:
        return { kv_write({ { 1, 0 } }, f16),
                 kv_write({ { 1, 63 }, { 1, 64 }, { 1, 31 } }, f16),
                 kv_write({ { 130, 40 } }, { 2, 128, 64, WEIR_F16 }),
                 kv_write({ { 5, 30 }, { 70, 0 } }, f32),
                 kv_write({ { 3, 61 } }, { 3, 40, 24, WEIR_F16 }),
                 kv_write({ { 33, 0 } }, { 1, 256, 256, WEIR_F16 }) };
    case WEIR_OP_ATTENTION:
        return { attention({ { 1, 0 } }, { 4, f16 }),
                 attention({ { 1, 31 }, { 1, 32 }, { 1, 63 }, { 1, 64 } }, { 4, f16 }),
                 attention({ { 1, 2600 } }, { 4, f16 }),
                 attention({ { 70, 0 } }, { 6, f16, 0, 3 }),
                 attention({ { 40, 1000 }, { 1, 1023 }, { 1, 1024 } }, { 4, f16 }),
                 attention({ { 1, 300 }, { 9, 100 } }, { 8, { 2, 256, 256, WEIR_F16 }, 0, 4 }),
                 attention({ { 17, 90 } }, { 2, f32 }),
                 attention({ { 33, 50 } }, { 4, { 4, 128, 128, WEIR_F16 } }),
                 attention({ { 3, 200 } }, { 4, { 1, 96, 64, WEIR_F16 } }),
                 attention({ { 40, 1500 } }, { 4, f16, 100 }),
                 attention({ { 5, 40 } }, { 4, f16, 1 }),
                 attention({ { 3, 500 } }, { 4, f16, 0, 0, 20 }),
                 attention({ { 2, 70 } }, { 16, { 1, 64, 64, WEIR_F32 }, 33 }) };
    case WEIR_OP_CONV1D:
        return { conv1d({ { 1, 0 } }, 64, 4),
                 conv1d({ { 2, 0 }, { 1, 0 }, { 3, 0 } }, 100, 4),
                 conv1d({ { 50, 0 } }, 6144, 4),
                 conv1d({ { 9, 0 } }, 33, 8),
                 conv1d({ { 4, 0 } }, 17, 1),
                 conv1d({ { 7, 0 }, { 1, 0 } }, 64, 2, Fill::Large),
                 conv1d({ { 5, 0 } }, 64, 3, Fill::Zero) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 2, 4, 64, 64 }),
                 gated_delta_rule({ { 70, 0 } }, { 2, 2, 128, 128 }),
                 gated_delta_rule({ { 1, 0 }, { 5, 0 }, { 2, 0 } }, { 2, 4, 128, 128, true, 8 }),
                 gated_delta_rule({ { 9, 0 } }, { 2, 6, 64, 64, false, 3 }),
                 gated_delta_rule({ { 4, 0 } }, { 1, 2, 32, 24 }),
                 gated_delta_rule({ { 3, 0 } }, { 1, 1, 16, 8, true }) };
    default: return {};
    }
}

std::vector<Case> sequence_benches(weir_op op)
{
    const Kv kv = { 2, 256, 256, WEIR_F16 };
    switch (op) {
    case WEIR_OP_KV_WRITE: return { kv_write({ { 1, 4000 } }, kv), kv_write({ { 512, 0 } }, kv) };
    case WEIR_OP_ATTENTION:
        return { attention({ { 1, 4096 } }, { 8, kv }), attention({ { 1, 32768 } }, { 8, kv }), attention({ { 512, 0 } }, { 8, kv }),
                 attention({ { 512, 4096 } }, { 8, kv }) };
    case WEIR_OP_CONV1D: return { conv1d({ { 1, 0 } }, 6144, 4), conv1d({ { 512, 0 } }, 6144, 4) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 16, 16, 128, 128 }), gated_delta_rule({ { 512, 0 } }, { 16, 16, 128, 128 }) };
    default: return {};
    }
}

}  // namespace weir_test
