/* kernels/ref/levels.h - blocks whose elements are indices of up to 16 levels: IQ1, IQ2, IQ3,
 * NVFP4, TQ, Q1_0, Q2_0. Shared by decoding and packing.
 *
 *   value = scale * level
 *
 * A scale has at most 16 significant bits and a level 6: no product is rounded, so the values are
 * ggml's, whatever the order of its multiplications. */
#pragma once
#include <stdbool.h>

#include "kernels/abi/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_LEVELS = 16, WEIR_LEVEL_BLOCK = 256, WEIR_LEVEL_SCALE = 16 };

/* A file block of block_elements elements; a scale for each 16 of them. */
typedef struct weir_level_block {
    uint8_t indices[WEIR_LEVEL_BLOCK];
    float scales[WEIR_LEVEL_BLOCK / WEIR_LEVEL_SCALE];
} weir_level_block;

/* The levels of a type, [WEIR_LEVELS]; NULL for other types. IQ2: index = digit + 4 if negative;
 * IQ3: digit + 8 if negative; IQ1: digit + 4 if its group's delta is negative. */
const int8_t *weir_levels_of(weir_dtype dtype);

/* Decodes one file block, unaligned, of a type that has levels. */
void weir_levels_decode(weir_level_block *out, const void *src, weir_dtype dtype);

#ifdef __cplusplus
}
#endif
