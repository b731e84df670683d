/* tests/unit/model/toy_blocks.h - a mixer and FFNs that no model has. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TOY_KEY_DIM = 24, TOY_VALUE_DIM = 16 };

extern const weir_block toy_mixer, toy_ffn, toy_experts;

typedef struct toy_experts_weights {
    const weir_weight *gate, *up, *down; /* [n_experts] of [d_expert, D] twice, [D, d_expert] */
    const weir_weight *a, *b, *c; /* [d_expert, D] [d_shared, D] [d_shared, D] */
    const weir_weight *wide; /* [1, 1, 2, 2, 2, D] */
    const float *a_bias, *b_bias, *c_bias; /* [d_expert] [d_shared % 32] [d_shared] */
} toy_experts_weights;

#ifdef __cplusplus
}
#endif
