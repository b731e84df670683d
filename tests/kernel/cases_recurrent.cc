// Cases of the ops that carry a state along a sequence: conv1d, gated delta rule, scan of Mamba-2.
#include <cmath>

#include "tests/kernel/cases_pages.h"

namespace weir_test {
namespace {

weir_recurrent_segment *recurrent_segments(
    Builder &b, const Spans &spans, int64_t history, int64_t state
)
{
    auto *segments = b.array<weir_recurrent_segment>(spans.size());
    int32_t row = 0;
    for (size_t s = 0; s < spans.size(); s++) {
        segments[s] = { b.inout((size_t)history),
                        state > 0 ? b.inout((size_t)state, Fill::Normal, 0.3f) : nullptr, row,
                        spans[s].n_rows };
        row += spans[s].n_rows;
    }
    return segments;
}

Case conv1d(
    Spans spans, int64_t n_channels, int64_t n_taps, Fill fill = Fill::Normal,
    bool is_linear = false, bool has_bias = false
)
{
    const int64_t rows = rows_of(spans);
    return { label("conv1d", { n_channels, n_taps, is_linear, has_bias }) + text_of(spans) +
                 suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_conv1d_args>();
                 const size_t n = (size_t)(rows * n_channels);
                 *args = { b.output(n),
                           b.input(n, fill),
                           b.input((size_t)(n_channels * n_taps)),
                           recurrent_segments(b, spans, (n_taps - 1) * n_channels, 0),
                           (int64_t)spans.size(),
                           n_channels,
                           n_taps,
                           is_linear,
                           has_bias ? b.input((size_t)n_channels) : nullptr };
                 return args;
             },
             { (double)(rows * n_channels) * 8, (double)(rows * n_channels * n_taps) * 2 } };
}

// `n` sequences of one row, and one of more among them.
Spans many(size_t n, const Span &other)
{
    Spans spans(n, { 1, 0 });
    spans.insert(spans.begin() + (long)n / 3, other);
    return spans;
}

struct Delta {
    int64_t n_k_heads, n_v_heads, key_dim, value_dim;
    bool tiled = false;
    int64_t pad = 0;
    bool by_channel = false;
};

// Lanes of a head past `width` are zero, as the contracts say; both ops have 16 lanes, each with
// `depth` elements.
static_assert(WEIR_DELTA_LANES == 16 && WEIR_SSM_LANES == 16, "one layout");
void clear_unused_lanes(float *state, int64_t n_heads, int64_t width, int64_t depth)
{
    const int64_t tiles = (width + 15) / 16;
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t j = width; j < tiles * 16; j++)
            for (int64_t i = 0; i < depth; i++)
                state[((h * tiles + j / 16) * depth + i) * 16 + j % 16] = 0;
}

Case gated_delta_rule(Spans spans, Delta d)
{
    const int64_t rows = rows_of(spans),
                  tiles = (d.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    const int64_t state = d.n_v_heads * tiles * d.key_dim * WEIR_DELTA_LANES;
    return {
        label("gated_delta_rule", { d.n_k_heads, d.n_v_heads, d.key_dim, d.value_dim, d.pad }) +
            (d.tiled ? "_tiled" : "") + (d.by_channel ? "_channels" : "") + text_of(spans),
        [=](Builder &b, bool) {
            auto *args = b.one<weir_gated_delta_rule_args>();
            const int64_t q_width = d.n_k_heads * d.key_dim,
                          stride = 2 * q_width + d.n_v_heads * d.value_dim + d.pad;
            const int64_t ab = 2 * d.n_v_heads + d.pad, n_decays = d.by_channel ? d.key_dim : 1;
            float *qkv = b.input((size_t)(rows * stride)),
                  *gates = b.input((size_t)(rows * ab), Fill::Normal, 2);
            auto *a_neg = b.array<float>((size_t)d.n_v_heads);
            for (int64_t h = 0; h < d.n_v_heads; h++) a_neg[h] = -std::exp(b.normal());
            args->out = b.output((size_t)(rows * d.n_v_heads * d.value_dim));
            args->q = qkv, args->k = qkv + q_width, args->v = qkv + 2 * q_width;
            args->a =
                d.by_channel ? b.input((size_t)(rows * ab * n_decays), Fill::Normal, 2) : gates;
            args->b = gates + d.n_v_heads;
            args->a_neg = a_neg, args->dt_bias = b.input((size_t)(d.n_v_heads * n_decays));
            auto *segments = recurrent_segments(b, spans, 1, state);
            for (size_t s = 0; s < spans.size(); s++)
                clear_unused_lanes(segments[s].state, d.n_v_heads, d.value_dim, d.key_dim);
            args->segments = segments, args->n_segments = (int64_t)spans.size(),
            args->n_k_heads = d.n_k_heads;
            args->n_v_heads = d.n_v_heads, args->key_dim = d.key_dim, args->value_dim = d.value_dim,
            args->qkv_stride = stride;
            args->ab_stride = ab, args->tiled_heads = d.tiled, args->channel_decay = d.by_channel;
            return args;
        },
        { (double)state * 8 * (double)spans.size(), (double)(rows * state) * 7 }
    };
}

struct Ssm {
    int64_t n_heads, n_groups, head_dim, n_state;
    int64_t pad = 0;
    float dt_min = 0, dt_max = INFINITY;
};

Case ssm_scan(Spans spans, Ssm d)
{
    const int64_t rows = rows_of(spans), tiles = (d.head_dim + WEIR_SSM_LANES - 1) / WEIR_SSM_LANES;
    const int64_t state = d.n_heads * tiles * d.n_state * WEIR_SSM_LANES;
    return { label("ssm_scan", { d.n_heads, d.n_groups, d.head_dim, d.n_state, d.pad }) +
                 (d.dt_min > 0 ? "_limits" : "") + text_of(spans),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_ssm_scan_args>();
                 const int64_t width = d.n_heads * d.head_dim, shared = d.n_groups * d.n_state,
                               stride = width + 2 * shared + d.pad, dt_stride = d.n_heads + d.pad;
                 float *xbc = b.input((size_t)(rows * stride));
                 auto *a_neg = b.array<float>((size_t)d.n_heads);
                 for (int64_t h = 0; h < d.n_heads; h++) a_neg[h] = -std::exp(b.normal());
                 auto *segments = recurrent_segments(b, spans, 1, state);
                 for (size_t s = 0; s < spans.size(); s++)
                     clear_unused_lanes(segments[s].state, d.n_heads, d.head_dim, d.n_state);
                 *args = { b.output((size_t)(rows * width)),
                           xbc,
                           xbc + width,
                           xbc + width + shared,
                           b.input((size_t)(rows * dt_stride), Fill::Normal, 4),
                           a_neg,
                           b.input((size_t)d.n_heads),
                           b.input((size_t)d.n_heads),
                           segments,
                           (int64_t)spans.size(),
                           d.n_heads,
                           d.n_groups,
                           d.head_dim,
                           d.n_state,
                           stride,
                           dt_stride,
                           d.dt_min,
                           d.dt_max };
                 return args;
             },
             { (double)state * 8 * (double)spans.size(), (double)(rows * state) * 5 } };
}

} // namespace

std::vector<Case> recurrent_cases(weir_op op)
{
    switch (op) {
    case WEIR_OP_CONV1D:
        return { conv1d({ { 1, 0 } }, 64, 4),
                 conv1d({ { 2, 0 }, { 1, 0 }, { 3, 0 } }, 100, 4),
                 conv1d({ { 50, 0 } }, 6144, 4),
                 conv1d({ { 9, 0 } }, 33, 8),
                 conv1d({ { 4, 0 } }, 17, 1),
                 conv1d({ { 7, 0 }, { 1, 0 } }, 64, 2, Fill::Large),
                 conv1d({ { 5, 0 } }, 64, 3, Fill::Zero),
                 conv1d({ { 9, 0 }, { 1, 0 } }, 300, 3, Fill::Normal, true),
                 conv1d({ { 6, 0 }, { 1, 0 } }, 300, 4, Fill::Normal, false, true),
                 conv1d({ { 5, 0 } }, 33, 2, Fill::Normal, true, true),
                 conv1d(many(140, { 70, 0 }), 130, 4) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 2, 4, 64, 64 }),
                 gated_delta_rule({ { 70, 0 } }, { 2, 2, 128, 128 }),
                 gated_delta_rule({ { 1, 0 }, { 5, 0 }, { 2, 0 } }, { 2, 4, 128, 128, true, 8 }),
                 gated_delta_rule({ { 9, 0 } }, { 2, 6, 64, 64, false, 3 }),
                 gated_delta_rule({ { 4, 0 } }, { 1, 2, 32, 24 }),
                 gated_delta_rule({ { 3, 0 } }, { 1, 1, 16, 8, true }),
                 gated_delta_rule(many(140, { 40, 0 }), { 1, 2, 32, 24 }),
                 gated_delta_rule(many(20, { 40, 0 }), { 2, 4, 128, 128, true, 4 }),
                 gated_delta_rule({ { 1, 0 } }, { 4, 4, 128, 128, false, 0, true }),
                 gated_delta_rule({ { 40, 0 } }, { 2, 2, 64, 64, false, 0, true }),
                 gated_delta_rule({ { 1, 0 }, { 5, 0 } }, { 2, 4, 32, 24, true, 3, true }) };
    case WEIR_OP_SSM_SCAN:
        return { ssm_scan({ { 1, 0 } }, { 4, 1, 64, 128 }),
                 ssm_scan({ { 70, 0 } }, { 4, 2, 64, 128 }),
                 ssm_scan({ { 1, 0 }, { 5, 0 }, { 2, 0 } }, { 6, 2, 80, 16, 8 }),
                 ssm_scan({ { 9, 0 } }, { 3, 3, 24, 7, 3 }),
                 ssm_scan({ { 4, 0 } }, { 2, 1, 8, 16, 0, 0.5f, 2 }),
                 ssm_scan({ { 6, 0 } }, { 1, 1, 1, 1 }),
                 ssm_scan({ { 3, 0 } }, { 2, 1, 200, 33 }) };
    default: return {};
    }
}

std::vector<Case> recurrent_benches(weir_op op)
{
    switch (op) {
    case WEIR_OP_CONV1D:
        return { conv1d({ { 1, 0 } }, 6144, 4), conv1d({ { 512, 0 } }, 6144, 4),
                 conv1d(Spans(64, { 1, 0 }), 6144, 4) };
    case WEIR_OP_GATED_DELTA_RULE:
        return { gated_delta_rule({ { 1, 0 } }, { 16, 16, 128, 128 }),
                 gated_delta_rule({ { 512, 0 } }, { 16, 16, 128, 128 }),
                 gated_delta_rule(Spans(64, { 1, 0 }), { 16, 16, 128, 128 }),
                 gated_delta_rule({ { 1, 0 } }, { 16, 16, 128, 128, false, 0, true }),
                 gated_delta_rule({ { 512, 0 } }, { 16, 16, 128, 128, false, 0, true }) };
    case WEIR_OP_SSM_SCAN:
        return { ssm_scan({ { 1, 0 } }, { 48, 1, 64, 128 }),
                 ssm_scan({ { 512, 0 } }, { 48, 1, 64, 128 }) };
    default: return {};
    }
}

} // namespace weir_test
