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

/* blocks_grid.c: blocks of 256 elements that are rows of grids */
void weir_quantise_iq3_s(weir_block_iq3_s *out, const float *x, const float *w);
void weir_quantise_iq3_xxs(weir_block_iq3_xxs *out, const float *x, const float *w);
void weir_quantise_iq2_s(weir_block_iq2_s *out, const float *x, const float *w);
void weir_quantise_iq2_xs(weir_block_iq2_xs *out, const float *x, const float *w);
void weir_quantise_iq2_xxs(weir_block_iq2_xxs *out, const float *x, const float *w);
void weir_quantise_iq1_s(weir_block_iq1_s *out, const float *x, const float *w);
void weir_quantise_iq1_m(weir_block_iq1_m *out, const float *x, const float *w);

/* blocks_ternary.c */
void weir_quantise_tq1_0(weir_block_tq1_0 *out, const float *x, const float *w);
void weir_quantise_tq2_0(weir_block_tq2_0 *out, const float *x, const float *w);
void weir_quantise_q2_0(weir_block_q2_0 *out, const float *x, const float *w); /* 64 elements */
void weir_quantise_q1_0(weir_block_q1_0 *out, const float *x, const float *w); /* 128 elements */

/* blocks.c: blocks of 64 elements with a scale for each 16 */
void weir_quantise_nvfp4(weir_block_nvfp4 *out, const float *x, const float *w);

/* The levels of IQ4_NL and IQ4_XS. */
extern const levels weir_iq4_levels_of;

#ifdef __cplusplus
}
#endif
