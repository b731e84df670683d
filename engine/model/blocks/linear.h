/* engine/model/blocks/linear.h - projections of a step's contiguous rows. */
#pragma once
#include "engine/model/block.h"

typedef struct weir_linear_output {
    float *dst; /* [n_rows, weight->n_out] */
    const weir_weight *weight;
    const float *bias; /* may be NULL */
} weir_linear_output;

/* dst = W x + bias for each of up to WEIR_MATMUL_OUTPUTS matrices that read the same x. */
WEIR_MUST_CHECK weir_status weir_linear(
    const weir_step *step, const float *x, int32_t n_outputs, const weir_linear_output *outputs
);
