/* tools/convert/blocks.h - one function per block type: the codes and scales of a block's elements.
 * Private to the quantisers.
 *
 * x, w [elements of the block]: finite; w >= 0, not all 0. */
#pragma once
#include "kernels/abi/quant.h"
#include "tools/convert/search.h"

#ifdef __cplusplus
extern "C" {
#endif

/* blocks.c: blocks of 32 elements */
void weir_quantise_q8_0(weir_block_q8_0 *out, const float *x, const float *w);
void weir_quantise_q4_0(weir_block_q4_0 *out, const float *x, const float *w);
void weir_quantise_q4_1(weir_block_q4_1 *out, const float *x, const float *w);
void weir_quantise_q5_0(weir_block_q5_0 *out, const float *x, const float *w);
void weir_quantise_q5_1(weir_block_q5_1 *out, const float *x, const float *w);
void weir_quantise_iq4_nl(weir_block_iq4_nl *out, const float *x, const float *w);
void weir_quantise_mxfp4(weir_block_mxfp4 *out, const float *x, const float *w);

/* blocks_scale.c, blocks_affine.c: blocks of 256 elements with scales of their groups */
void weir_quantise_q3_k(weir_block_q3_k *out, const float *x, const float *w);
void weir_quantise_q6_k(weir_block_q6_k *out, const float *x, const float *w);
void weir_quantise_iq4_xs(weir_block_iq4_xs *out, const float *x, const float *w);
void weir_quantise_q2_k(weir_block_q2_k *out, const float *x, const float *w);
void weir_quantise_q4_k(weir_block_q4_k *out, const float *x, const float *w);
void weir_quantise_q5_k(weir_block_q5_k *out, const float *x, const float *w);

/* The levels of IQ4_NL and IQ4_XS. */
extern const levels weir_iq4_levels_of;

#ifdef __cplusplus
}
#endif
