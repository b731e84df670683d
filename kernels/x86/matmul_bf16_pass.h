/* kernels/x86/matmul_bf16_pass.h - the inner loop of matmul_bf16_amx.c: 16 rows by 16 outputs by 32
 * inputs per instruction, in eight tile registers. */
#pragma once
#include <string.h>

#include "kernels/x86/amx.h"
#include "kernels/x86/tile_registers.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LANES = WEIR_AMX_LANES,
    BLOCK_ROWS = 2 * LANES, /* of the sums in registers */
};

/* 32 inputs to bf16, to nearest even; denormals are zero. */
ALWAYS_INLINE void round_inputs(void *dst, const float *src)
{
#ifdef WEIR_EMULATED
    for (int64_t i = 0; i < WEIR_AMX_STEP; i++)
        ((uint16_t *)dst)[i] = weir_bf16_from_f32(emulated_flushed(src[i]));
#else
    const __m512 low = _mm512_loadu_ps(src), high = _mm512_loadu_ps(src + 16);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(high, low);
    memcpy(dst, &rounded, sizeof rounded);
#endif
}

/* For blocks whose tiles have `upper` and `lower` rows. Registers 0 to 3 are sums, 4 and 5
 * activations, 6 and 7 weights. */
static void configure_tiles(int64_t upper, int64_t lower)
{
    tile_configuration c = { .palette = 1 };
    const int64_t rows[] = { upper, upper, lower, lower, upper, lower, LANES, LANES };
    for (int i = 0; i < 8; i++) c.rows[i] = (uint8_t)rows[i], c.row_bytes[i] = TILE_ROW_BYTES;
    TILE(loadconfig, &c);
}

/* Sums of a block: tiles [2 of rows][2 of outputs][16][16]. */
typedef float block_sums[2][2][LANES][LANES];

/* A block of rows with some steps of a panel. */
typedef struct pass {
    const char *upper, *lower; /* the tiles of activations */
    int64_t upper_bytes, lower_bytes; /* of a step */
    const char *weights;
    int64_t n_steps;
    const char *ahead; /* prefetch address; may point anywhere */
    int64_t ahead_bytes; /* per step */
    bool starts; /* sums start at zero */
} pass;

ALWAYS_INLINE void load_sums(block_sums sums, bool starts, bool two)
{
    if (starts) {
        TILE(zero, 0);
        TILE(zero, 1);
        if (two) TILE(zero, 2);
        if (two) TILE(zero, 3);
        return;
    }
    TILE(loadd, 0, sums[0][0], TILE_ROW_BYTES);
    TILE(loadd, 1, sums[0][1], TILE_ROW_BYTES);
    if (two) TILE(loadd, 2, sums[1][0], TILE_ROW_BYTES);
    if (two) TILE(loadd, 3, sums[1][1], TILE_ROW_BYTES);
}

/* two: tiles of rows; stream: activations are read once, weights stay in L1. */
ALWAYS_INLINE void multiply(block_sums sums, const pass *p, bool two, bool stream)
{
    const char *upper = p->upper, *lower = p->lower, *weights = p->weights, *ahead = p->ahead;
    load_sums(sums, p->starts, two);
    for (int64_t s = 0; s < p->n_steps; s++) {
        for (int64_t line = 0; line < p->ahead_bytes; line += 64)
            __builtin_prefetch(ahead + line, 0, 2);
        ahead += p->ahead_bytes;
        if (stream)
            TILE(STREAM_LOAD, 4, upper, TILE_ROW_BYTES);
        else
            TILE(loadd, 4, upper, TILE_ROW_BYTES);
        TILE(loadd, 6, weights, TILE_ROW_BYTES);
        TILE(dpbf16ps, 0, 4, 6);
        TILE(loadd, 7, weights + WEIR_AMX_TILE_BYTES, TILE_ROW_BYTES);
        TILE(dpbf16ps, 1, 4, 7);
        if (two) {
            if (stream)
                TILE(STREAM_LOAD, 5, lower, TILE_ROW_BYTES);
            else
                TILE(loadd, 5, lower, TILE_ROW_BYTES);
            TILE(dpbf16ps, 2, 5, 6);
            TILE(dpbf16ps, 3, 5, 7);
        }
        upper += p->upper_bytes;
        lower += p->lower_bytes;
        weights += WEIR_AMX_STEP_BYTES;
    }
    TILE(stored, 0, sums[0][0], TILE_ROW_BYTES);
    TILE(stored, 1, sums[0][1], TILE_ROW_BYTES);
    if (two) TILE(stored, 2, sums[1][0], TILE_ROW_BYTES);
    if (two) TILE(stored, 3, sums[1][1], TILE_ROW_BYTES);
}
