/* kernels/omp/delta.h - shared by the two forms of the gated delta rule: the factors of a token,
 * computed once, and the division of heads. */
#pragma once
#include "kernels/omp/lanes.h"

#include <math.h>

/* Factors of (row, V head) in the scratch, [T, Hv]. With channel_decay the decay is 1 here, and
 * `channels` follow, [T, Hv, 2, key_dim]: decays, and elements of the key times them. */
typedef struct delta_factors {
    float log_decay, decay, beta, k_scale, q_scale; /* q_scale includes key_dim^-0.5 */
} delta_factors;

#pragma omp declare target
WEIR_INLINE float square_sum(const float *x, int64_t n, float *partial, int tid)
{
    float sum = 0.0f, total = 0.0f;
    LANES_SUM(sum)
    for (int64_t i = tid; i < n; i += LANE_THREADS) sum += x[i] * x[i];
    partial[tid] = sum;
    TEAM_BARRIER
    for (int t = 0; t < LANE_THREADS; t++) total += partial[t];
    TEAM_BARRIER
    return total;
}

WEIR_INLINE float head_softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* channels [2, key_dim] of one row and V head. */
WEIR_INLINE void decay_channels(
    float *channels, const float *k, const float *a, const float *dt_bias, float a_neg,
    int64_t key_dim, int tid
)
{
    LANES
    for (int64_t i = tid; i < key_dim; i += LANE_THREADS) {
        const float decay = lane_exp(a_neg * lane_softplus(a[i] + dt_bias[i]));
        channels[i] = decay;
        channels[key_dim + i] = decay * k[i];
    }
}

/* K head m of one row: its norms, and the gates of the V heads that use it. channels: of the row,
 * NULL: a head has one decay. partial [LANE_THREADS] is shared by the team. */
WEIR_INLINE void factor_row(
    delta_factors *factors, float *channels, const float *q, const float *k, const float *a,
    const float *b, const float *a_neg, const float *dt_bias, int64_t key_dim, int64_t n_k_heads,
    int64_t n_v_heads, int64_t m, bool tiled_heads, float *partial, int tid
)
{
    const float q_scale =
        1.0f / sqrtf((square_sum(q, key_dim, partial, tid) + 1e-6f) * (float)key_dim);
    const float k_scale = 1.0f / sqrtf(square_sum(k, key_dim, partial, tid) + 1e-6f);
    const int64_t shared_by = n_v_heads / n_k_heads;
    for (int64_t j = tid; j < shared_by; j += LANE_THREADS) {
        const int64_t h = tiled_heads ? m + j * n_k_heads : m * shared_by + j;
        delta_factors *const f = factors + h;
        f->log_decay = channels != NULL ? 0.0f : a_neg[h] * head_softplus(a[h] + dt_bias[h]);
        f->decay = expf(f->log_decay);
        f->beta = 1.0f / (1.0f + expf(-b[h]));
        f->q_scale = q_scale;
        f->k_scale = k_scale;
    }
    for (int64_t j = 0; channels != NULL && j < shared_by; j++) {
        const int64_t h = tiled_heads ? m + j * n_k_heads : m * shared_by + j, at = h * key_dim;
        decay_channels(channels + 2 * at, k, a + at, dt_bias + at, a_neg[h], key_dim, tid);
    }
}

WEIR_INLINE int64_t delta_k_head(int64_t h, int64_t n_k_heads, int64_t n_v_heads, bool tiled_heads)
{
    return tiled_heads ? h % n_k_heads : h / (n_v_heads / n_k_heads);
}
#pragma omp end declare target

static inline int64_t delta_rows(const weir_gated_delta_rule_args *args)
{
    int64_t end = 0;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const int64_t last = (int64_t)args->segments[s].first_row + args->segments[s].n_rows;
        end = last > end ? last : end;
    }
    return end;
}

static inline size_t delta_factor_bytes(const weir_gated_delta_rule_args *args)
{
    return (size_t)(delta_rows(args) * args->n_v_heads) * sizeof(delta_factors);
}

/* With channel_decay: what follows the factors. */
static inline size_t delta_channel_bytes(const weir_gated_delta_rule_args *args)
{
    return args->channel_decay
               ? (size_t)(delta_rows(args) * args->n_v_heads * 2 * args->key_dim) * sizeof(float)
               : 0;
}

static inline float *delta_channels(const weir_gated_delta_rule_args *args, delta_factors *factors)
{
    return args->channel_decay ? (float *)((char *)factors + delta_factor_bytes(args)) : NULL;
}

static inline bool delta_shape_ok(const weir_gated_delta_rule_args *args)
{
    return args->n_k_heads > 0 && args->n_v_heads % args->n_k_heads == 0 && args->key_dim > 0 &&
           args->value_dim > 0;
}

/* The factors of all rows: the first region of both forms. */
static inline void delta_compute_factors(
    const weir_kernel_context *context, const weir_gated_delta_rule_args *args,
    delta_factors *factors
)
{
    const float *const q = args->q, *const k = args->k, *const a = args->a, *const b = args->b,
                       *const a_neg = args->a_neg, *const dt_bias = args->dt_bias;
    const int64_t n_k_heads = args->n_k_heads, n_v_heads = args->n_v_heads, key_dim = args->key_dim,
                  qkv_stride = args->qkv_stride;
    const int64_t b_stride = args->ab_stride, n_units = delta_rows(args) * n_k_heads,
                  a_stride = b_stride * (args->channel_decay ? key_dim : 1);
    const bool tiled_heads = args->tiled_heads;
    float *const channels = delta_channels(args, factors);

    TEAMS(n_units, factors, channels, q, k, a, b, a_neg, dt_bias)
    {
        float partial[LANE_THREADS];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t row = u / n_k_heads, m = u % n_k_heads;
            factor_row(
                factors + row * n_v_heads,
                channels != NULL ? channels + row * n_v_heads * 2 * key_dim : NULL,
                q + row * qkv_stride + m * key_dim, k + row * qkv_stride + m * key_dim,
                a + row * a_stride, b + row * b_stride, a_neg, dt_bias, key_dim, n_k_heads,
                n_v_heads, m, tiled_heads, partial, lane_thread()
            );
        }
    }
}
