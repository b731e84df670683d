/* kernels/abi/ops/recurrent.h - ops that update a state along a sequence: conv1d,
 * gated_delta_rule, ssm_scan. */
#pragma once
#include "kernels/abi/dtype.h"
#include "kernels/abi/marshal.h"

/* Rows of one sequence; the sequence owns the state memory, which is updated in place. */
typedef struct weir_recurrent_segment {
    float *conv_history; /* [n_taps - 1, C], oldest first: raw inputs before the convolution */
    float *state; /* as the op lays it out: see gated_delta_rule, ssm_scan */
    int32_t first_row, n_rows;
} weir_recurrent_segment;

static inline const weir_recurrent_segment *weir_recurrent_segments_marshal(
    weir_marshaller *m, const weir_recurrent_segment *segments, int64_t n
)
{
    for (int64_t i = 0; i < n; i++) {
        weir_marshal_require(m, segments[i].conv_history);
        weir_marshal_require(m, segments[i].state);
    }
    return (const weir_recurrent_segment *)weir_marshal_list(
        m, segments, (size_t)n * sizeof *segments
    );
}

/* dst[t,c] = silu(bias[c] + sum_j taps[c,j] * u[t - n_taps + 1 + j, c]), without silu if is_linear;
 * u before the first row comes from the history, which is updated.
 * shapes : dst, src [T, C] contiguous, not aliased; taps [C, n_taps], the last tap multiplies the
 *          current row; n_taps <= 8; bias [C], NULL: none */
typedef struct weir_conv1d_args {
    float *dst;
    const float *src, *taps;
    const weir_recurrent_segment *segments;
    int64_t n_segments, n_channels, n_taps;
    bool is_linear;
    const float *bias;
} weir_conv1d_args;

static inline bool weir_conv1d_is_valid(const weir_conv1d_args *args)
{
    return args->n_taps >= 1 && args->n_taps <= 8 && args->dst != args->src;
}
static inline void weir_conv1d_marshal(weir_marshaller *m, weir_conv1d_args *args)
{
    args->segments = weir_recurrent_segments_marshal(m, args->segments, args->n_segments);
}

/* Gated delta rule (Yang et al. 2024), per V head h with K head m:
 *   q = q / sqrt(|q|^2 + 1e-6) * key_dim^-0.5,  k = k / sqrt(|k|^2 + 1e-6),  beta = sigmoid(b),
 *   g = a_neg * softplus(a + dt_bias)
 *   S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  out = S^T q
 * With channel_decay (Kimi Delta Attention, Kimi Team 2025) a, dt_bias and g have an element for
 * each channel of the key: S[i][:] <- exp(g[i]) S[i][:].
 * shapes  : q, k [T, Hk, key_dim], v [T, Hv, value_dim] inside rows of qkv_stride; a, b [T, Hv]
 *           with ab_stride; a_neg, dt_bias [Hv]; out [T, Hv, value_dim] contiguous;
 *           channel_decay: a [T, Hv, key_dim] with ab_stride * key_dim, dt_bias [Hv, key_dim]
 * state   : S[i][j] (i < key_dim, j < value_dim) of head h at
 *           ((h * tiles + j / 16) * key_dim + i) * 16 + j % 16, tiles = ceil(value_dim / 16); lanes
 *           past value_dim are zero
 * m       : tiled_heads (GGUF order) h % Hk, otherwise h / (Hv / Hk)
 * numerics: `scan` kernels run the recurrence in order: any cut of a sequence into calls gives the
 *           same bits */
enum { WEIR_DELTA_LANES = 16 };
typedef struct weir_gated_delta_rule_args {
    float *out;
    const float *q, *k, *v, *a, *b, *a_neg, *dt_bias;
    const weir_recurrent_segment *segments;
    int64_t n_segments, n_k_heads, n_v_heads, key_dim, value_dim, qkv_stride, ab_stride;
    bool tiled_heads, channel_decay;
} weir_gated_delta_rule_args;

static inline bool weir_gated_delta_rule_is_valid(const weir_gated_delta_rule_args *args)
{
    return args->n_k_heads > 0 && args->n_v_heads % args->n_k_heads == 0;
}
static inline void weir_gated_delta_rule_marshal(
    weir_marshaller *m, weir_gated_delta_rule_args *args
)
{
    args->segments = weir_recurrent_segments_marshal(m, args->segments, args->n_segments);
}

/* The selective state space of Mamba-2 (Dao & Gu 2024), per head h with group g = h / (H / G):
 *   d = softplus(dt + dt_bias) within dt_min .. dt_max
 *   S <- exp(a_neg d) S + d x B^T;  out = S C + skip x
 * shapes  : x [T, H, head_dim], b, c [T, G, n_state] inside rows of xbc_stride; dt [T, H] with
 *           dt_stride; a_neg, dt_bias, skip [H]; out [T, H, head_dim] contiguous
 * state   : S[i][n] (i < head_dim, n < n_state) of head h at
 *           ((h * tiles + i / 16) * n_state + n) * 16 + i % 16, tiles = ceil(head_dim / 16); lanes
 *           past head_dim are zero
 * numerics: any cut of a sequence into calls gives the same bits */
enum { WEIR_SSM_LANES = 16 };
typedef struct weir_ssm_scan_args {
    float *out;
    const float *x, *b, *c, *dt, *a_neg, *dt_bias, *skip;
    const weir_recurrent_segment *segments;
    int64_t n_segments, n_heads, n_groups, head_dim, n_state, xbc_stride, dt_stride;
    float dt_min, dt_max;
} weir_ssm_scan_args;

static inline bool weir_ssm_scan_is_valid(const weir_ssm_scan_args *args)
{
    return args->n_groups > 0 && args->n_heads > 0 && args->n_heads % args->n_groups == 0 &&
           args->head_dim > 0 && args->n_state > 0 && args->dt_min <= args->dt_max;
}
static inline void weir_ssm_scan_marshal(weir_marshaller *m, weir_ssm_scan_args *args)
{
    args->segments = weir_recurrent_segments_marshal(m, args->segments, args->n_segments);
}
