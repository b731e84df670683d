/* kernels/abi/ops/coda.h - differential attention (Ye et al. 2024; CoDA-GQA-L) around the attention
 * op, and the banks that rows move to when they leave the ring.
 *
 * Every query head attends twice to the same keys and values, once as it is (signal) and once
 * rotated by its own angles (noise): one attention call with 2 H query heads reads K and V once. */
#pragma once
#include "kernels/abi/coda.h"
#include "kernels/abi/marshal.h"

/* dst[t, g, 0 .. H/G - 1, :] = q[t, heads of g, :], then the same rotated: pairs (2i, 2i + 1) of
 * head h by theta[h, i], whatever pairs RoPE has.
 * shapes : q [T, H, hd] after RoPE, q_stride; dst [T, G, 2 H/G, hd] contiguous, not aliased;
 *          theta [H, hd / 2], radians */
typedef struct weir_coda_queries_args {
    float *dst;
    const float *q, *theta;
    int64_t n_rows, n_heads, n_kv_heads, head_dim, q_stride;
} weir_coda_queries_args;

static inline bool weir_coda_queries_is_valid(const weir_coda_queries_args *args)
{
    return args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 &&
           (args->n_rows <= 1 || args->q_stride >= args->n_heads * args->head_dim);
}
static inline void weir_coda_queries_marshal(weir_marshaller *m, weir_coda_queries_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->q);
    weir_marshal_require(m, args->theta);
}

/* r[t, h, :] = signal - sigmoid(lambda[t, h] + bias[h]) * noise;
 * dst = r / sqrt(mean(r^2) + eps) * weight, or r where weight is NULL.
 * shapes : src [T, G, 2 H/G, hd] contiguous; dst [T, H, hd] contiguous, not aliased;
 *          lambda [T, H], lambda_stride; bias [H]; weight [hd] */
typedef struct weir_coda_combine_args {
    float *dst;
    const float *src, *lambda, *bias, *weight;
    int64_t n_rows, n_heads, n_kv_heads, head_dim, lambda_stride;
    float eps;
} weir_coda_combine_args;

static inline bool weir_coda_combine_is_valid(const weir_coda_combine_args *args)
{
    return args->n_kv_heads > 0 && args->n_heads % args->n_kv_heads == 0 && args->dst != args->src;
}
static inline void weir_coda_combine_marshal(weir_marshaller *m, weir_coda_combine_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->src);
    weir_marshal_require(m, args->lambda);
    weir_marshal_require(m, args->bias);
    weir_marshal_require(m, args->weight);
}

/* Stores new rows in the ring of each sequence; those that leave it are offered to the banks
 * (kernels/abi/coda.h). */
typedef struct weir_coda_segment {
    void *state; /* as in weir_coda_view, updated in place */
    int32_t first_row, n_rows;
    /* A step: n_rows is 1, the row replaces the oldest before attention, and its gate scales
     * blending. Otherwise the rows of a block that were attended together: the banks get candidates
     * among those that leave, chosen by their gates. */
    bool is_step;
} weir_coda_segment;

/* shapes  : k, v [T, G, hd] inside rows of their strides, keys rotated; gates [T], before the
 *           sigmoid; states differ; layer, its rates and segments are read where the kernel runs
 * numerics: cosines are summed in f32 (ref: f64), by head, then over heads in ascending order:
 *           decisions agree except where a score is within rounding of another or of a threshold.
 *           Gates and contents are the same bits everywhere: weir_coda_gate, weir_coda_blend, means
 *           of a block in f64 */
typedef struct weir_coda_write_args {
    const float *k, *v, *gates;
    const weir_coda_layer *layer;
    const weir_coda_segment *segments;
    int64_t n_segments, k_stride, v_stride, gate_stride;
} weir_coda_write_args;

static inline bool weir_coda_write_is_valid(const weir_coda_write_args *args)
{
    return args->n_segments >= 0;
}
/* For kernels, which read the layer and the segments. */
static inline bool weir_coda_write_is_whole(const weir_coda_write_args *args)
{
    const weir_coda_layer *const layer = args->layer;
    if (weir_coda_reject(layer) || layer->exact_candidates < 0 || layer->summary_candidates < 0)
        return false;
    for (int64_t s = 0; s < args->n_segments; s++)
        if (args->segments[s].n_rows < 0 ||
            (args->segments[s].is_step && args->segments[s].n_rows != 1))
            return false;
    return true;
}
/* States are in host memory. */
static inline void weir_coda_write_marshal(weir_marshaller *m, weir_coda_write_args *args)
{
    (void)args;
    weir_marshal_refuse(m);
}
