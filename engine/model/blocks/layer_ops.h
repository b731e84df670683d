/* engine/model/blocks/layer_ops.h - the ops that blocks call in their forward passes, over all rows
 * of a step. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes dst [n_rows, weight->n_out] = W x, x [n_rows, weight->n_in]. */
WEIR_MUST_CHECK weir_status
weir_linear(const weir_step *step, float *dst, const weir_weight *weight, const float *x);

typedef struct weir_linear_output {
    float *dst; /* [n_rows, weight->n_out] */
    const weir_weight *weight;
    const float *bias; /* NULL: none */
} weir_linear_output;
/* Computes dst = W x + bias for up to WEIR_MATMUL_OUTPUTS matrices that read the same x. */
WEIR_MUST_CHECK weir_status weir_linear_outputs(
    const weir_step *step, int32_t n_outputs, const weir_linear_output *outputs, const float *x
);

/* The first `dim` elements of n heads in each row: x [n_rows, n, stride]. */
typedef struct weir_head_rows {
    float *x;
    int64_t n, dim, stride;
} weir_head_rows;
/* Applies RMS norm to each head in place; weight [dim], NULL: no norm. */
WEIR_MUST_CHECK weir_status
weir_norm_heads(const weir_step *step, weir_head_rows heads, const float *weight, double eps);
/* The same of the heads in src, which lie as `heads`; src may be heads.x. */
WEIR_MUST_CHECK weir_status weir_norm_heads_of(
    const weir_step *step, weir_head_rows heads, float *src, const float *weight, double eps
);
/* Applies RoPE to the first `rotary_dim` elements of each head in place. */
WEIR_MUST_CHECK weir_status weir_rope_heads(
    const weir_step *step, weir_rope_table rope, weir_head_rows heads, int64_t rotary_dim,
    weir_rope_pairing pairing
);
/* Copies the states that are kept after a round of the recurrent ops before it. */
void weir_copy_states(const weir_step *step, const weir_recurrent_round *round);

#ifdef __cplusplus
}
#endif
