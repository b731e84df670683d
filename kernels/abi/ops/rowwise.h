/* kernels/abi/ops/rowwise.h - ops on rows of activations: embed, rmsnorm, gated_rmsnorm, rope,
 * glu, sigmoid_gate, add, softcap. */
#pragma once
#include "kernels/abi/dtype.h"
#include "kernels/abi/marshal.h"

/* True if rows of `width` elements, `stride` apart, do not overlap. */
static inline bool weir_rows_are_apart(int64_t n, int64_t stride, int64_t width)
{
    return n <= 1 || stride >= width;
}

/* dst[t,:] = table[ids[t],:] as f32, exact.
 * shapes : dst [T, dim]; ids [T], 0 <= id < n_vocab; table is file bytes: n_vocab rows of dim
 *          elements of `dtype`, unaligned */
typedef struct weir_embed_args {
    float *dst;
    const void *table;
    const int32_t *ids;
    int64_t n_rows, dim, n_vocab;
    weir_dtype dtype;
} weir_embed_args;

static inline bool weir_embed_is_valid(const weir_embed_args *args)
{
    return args->n_rows >= 0 && args->dim % weir_dtype_of(args->dtype).block_elements == 0;
}
/* The table is part of the model's file: the host reads it. */
static inline void weir_embed_marshal(weir_marshaller *m, weir_embed_args *args)
{
    (void)args;
    weir_marshal_refuse(m);
}

/* dst[t,h,:] = src[t,h,:] / sqrt(mean(src[t,h,:]^2) + eps) * weight[:]
 * shapes : dst, src [n_rows, n_groups, dim] with row and group strides (n_groups 1 for a layer
 *          norm, heads for a q or k norm); weight [dim]. If `add` is given, src[t,:] += add[t,:]
 *          first and the sum is stored to src (the residual stream).
 * alias  : dst == src allowed when add is NULL
 * errors : EINVAL if dim <= 0 */
typedef struct weir_rmsnorm_args {
    float *dst, *src;
    const float *weight;
    const float *add; /* NULL or [n_rows, dim] with add_stride, only with n_groups == 1 */
    int64_t n_rows, n_groups, dim;
    int64_t dst_stride, dst_group_stride, src_stride, src_group_stride, add_stride;
    float eps;
} weir_rmsnorm_args;

static inline bool weir_rmsnorm_is_valid(const weir_rmsnorm_args *args)
{
    return weir_rows_are_apart(args->n_groups, args->dst_group_stride, args->dim) &&
           weir_rows_are_apart(args->n_groups, args->src_group_stride, args->dim) &&
           weir_rows_are_apart(args->n_rows, args->dst_stride, args->dim) &&
           weir_rows_are_apart(args->n_rows, args->src_stride, args->dim) &&
           (!args->add || (args->n_groups == 1 && args->dst != args->src &&
                           weir_rows_are_apart(args->n_rows, args->add_stride, args->dim)));
}
static inline void weir_rmsnorm_marshal(weir_marshaller *m, weir_rmsnorm_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->src);
    weir_marshal_require(m, args->weight);
    weir_marshal_require(m, args->add);
}

/* dst[r,:] = weight[r % n_weights,:] * norm(src[r,:]) * silu(gate[r,:]), the output norm of Gated
 * DeltaNet, or with gate_first weight[r % n_weights,:] * norm(src[r,:] * silu(gate[r,:])), that of
 * Mamba-2; norm(x) = x / sqrt(mean(x^2) + eps).
 * shapes : dst, src, gate [n_rows, dim], weight [n_weights, dim], contiguous
 * alias  : dst == src allowed */
typedef struct weir_gated_rmsnorm_args {
    float *dst;
    const float *src, *gate, *weight;
    int64_t n_rows, dim, n_weights;
    float eps;
    bool gate_first;
} weir_gated_rmsnorm_args;

static inline bool weir_gated_rmsnorm_is_valid(const weir_gated_rmsnorm_args *args)
{
    return args->n_rows >= 0 && args->n_weights >= 1 && args->dst != args->gate;
}
static inline void weir_gated_rmsnorm_marshal(weir_marshaller *m, weir_gated_rmsnorm_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->src);
    weir_marshal_require(m, args->gate);
    weir_marshal_require(m, args->weight);
}

/* Rotates the first rotary_dim elements of x[t,h,:] in place by
 * angle = (float)positions[t] * frequencies[i], i < rotary_dim / 2; half split pairs
 * (i, i + rotary_dim/2), pairs (2i, 2i+1). cos and sin are multiplied by `magnitude`, and with a
 * temperature_length also by 1 + temperature_scale * ln(1 + floor(positions[t] /
 * temperature_length)), the temperature of Llama 4's queries.
 * shapes : x [T, n_heads, *] with strides; positions [T]; frequencies [rotary_dim / 2], scaling
 *          already applied */
typedef enum weir_rope_pairing { WEIR_ROPE_HALF_SPLIT, WEIR_ROPE_PAIRS } weir_rope_pairing;
typedef struct weir_rope_args {
    float *x;
    const int32_t *positions;
    const float *frequencies;
    int64_t n_rows, n_heads, rotary_dim, row_stride, head_stride;
    float magnitude;
    weir_rope_pairing pairing;
    float temperature_scale;
    int32_t temperature_length; /* 0: none */
} weir_rope_args;

static inline bool weir_rope_is_valid(const weir_rope_args *args)
{
    return args->rotary_dim % 2 == 0 && args->temperature_length >= 0 &&
           weir_rows_are_apart(args->n_heads, args->head_stride, args->rotary_dim);
}
static inline void weir_rope_marshal(weir_marshaller *m, weir_rope_args *args)
{
    const int64_t width = (args->n_heads - 1) * args->head_stride + args->rotary_dim;
    args->x =
        weir_marshal_rows(m, args->x, args->n_rows, args->row_stride, width, WEIR_MARSHAL_IN_OUT);
    args->positions = (const int32_t *)weir_marshal_array(
        m, args->positions, (size_t)args->n_rows * sizeof *args->positions, WEIR_MARSHAL_IN
    );
    args->frequencies = (const float *)weir_marshal_array(
        m, args->frequencies, (size_t)(args->rotary_dim / 2) * sizeof *args->frequencies,
        WEIR_MARSHAL_IN
    );
}

/* dst[t,i] by kind, with g = gate[t,i] and u = up[t,i]:
 *   SWIGLU   silu(g) * u
 *   GEGLU    gelu(g) * u, gelu(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3)))
 *   BILINEAR g * u
 *   CLAMPED  g' * sigmoid(1.702 g') * (u' + 1), g' = min(g, limit), u' = u within -limit .. limit
 *   RELU2    max(g, 0)^2 (So et al. 2021, Primer); up is not read
 * shapes : [T, dim], own row strides; up_stride 0: one row for all
 * alias  : dst == gate or dst == up allowed */
typedef enum weir_glu_kind {
    WEIR_GLU_SWIGLU,
    WEIR_GLU_GEGLU,
    WEIR_GLU_BILINEAR,
    WEIR_GLU_CLAMPED,
    WEIR_GLU_RELU2,
} weir_glu_kind;
typedef struct weir_glu_args {
    float *dst;
    const float *gate, *up;
    int64_t n_rows, dim, dst_stride, gate_stride, up_stride;
    weir_glu_kind kind;
    float limit; /* of CLAMPED */
} weir_glu_args;

static inline bool weir_glu_is_valid(const weir_glu_args *args)
{
    return weir_rows_are_apart(args->n_rows, args->dst_stride, args->dim) &&
           weir_rows_are_apart(args->n_rows, args->gate_stride, args->dim) &&
           (args->up_stride == 0 ? args->n_rows <= 1 || args->dst != args->up
                                 : weir_rows_are_apart(args->n_rows, args->up_stride, args->dim));
}
static inline void weir_glu_marshal(weir_marshaller *m, weir_glu_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->gate);
    weir_marshal_require(m, args->up);
}

/* x[t,h,:] *= sigmoid(gate[t,h,:])
 * shapes : x, gate [T, n_heads, dim] with strides */
typedef struct weir_sigmoid_gate_args {
    float *x;
    const float *gate;
    int64_t n_rows, n_heads, dim, x_stride, x_head_stride, gate_stride, gate_head_stride;
} weir_sigmoid_gate_args;

static inline bool weir_sigmoid_gate_is_valid(const weir_sigmoid_gate_args *args)
{
    return weir_rows_are_apart(args->n_heads, args->x_head_stride, args->dim) &&
           weir_rows_are_apart(args->n_heads, args->gate_head_stride, args->dim);
}
static inline void weir_sigmoid_gate_marshal(weir_marshaller *m, weir_sigmoid_gate_args *args)
{
    weir_marshal_require(m, args->x);
    weir_marshal_require(m, args->gate);
}

/* dst[t,:] += src[t,:]
 * shapes : [T, dim] with row strides */
typedef struct weir_add_args {
    float *dst;
    const float *src;
    int64_t n_rows, dim, dst_stride, src_stride;
} weir_add_args;

static inline bool weir_add_is_valid(const weir_add_args *args)
{
    return weir_rows_are_apart(args->n_rows, args->dst_stride, args->dim) &&
           weir_rows_are_apart(args->n_rows, args->src_stride, args->dim);
}
static inline void weir_add_marshal(weir_marshaller *m, weir_add_args *args)
{
    weir_marshal_require(m, args->dst);
    weir_marshal_require(m, args->src);
}

/* x[t,:] = cap * tanh(x[t,:] / cap), which keeps x within -cap .. cap.
 * shapes : [T, dim] with row stride; cap > 0 */
typedef struct weir_softcap_args {
    float *x;
    int64_t n_rows, dim, stride;
    float cap;
} weir_softcap_args;

static inline bool weir_softcap_is_valid(const weir_softcap_args *args)
{
    return args->cap > 0.0f && weir_rows_are_apart(args->n_rows, args->stride, args->dim);
}
static inline void weir_softcap_marshal(weir_marshaller *m, weir_softcap_args *args)
{
    weir_marshal_require(m, args->x);
}
