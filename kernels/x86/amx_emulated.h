/* kernels/x86/amx_emulated.h - the tile instructions of AMX-BF16 in C, as Intel's manual defines
 * them (Instruction Set Reference, TDPBF16PS), for a row of tests that runs on any machine. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/abi/convert.h"

typedef struct emulated_tile {
    char bytes[16][64];
} emulated_tile;

static _Thread_local struct {
    uint16_t row_bytes[16];
    uint8_t rows[16];
    emulated_tile tiles[8];
} emulated;

static inline void emulated_loadconfig(const void *configuration)
{
    memset(&emulated, 0, sizeof emulated);
    memcpy(emulated.row_bytes, (const char *)configuration + 16, sizeof emulated.row_bytes);
    memcpy(emulated.rows, (const char *)configuration + 48, sizeof emulated.rows);
}

static inline void emulated_zero(int tile)
{
    memset(&emulated.tiles[tile], 0, sizeof emulated.tiles[tile]);
}

static inline void emulated_loadd(int tile, const void *from, int64_t stride)
{
    emulated_zero(tile);
    for (int r = 0; r < emulated.rows[tile]; r++)
        memcpy(
            emulated.tiles[tile].bytes[r], (const char *)from + r * stride, emulated.row_bytes[tile]
        );
}

static inline void emulated_stored(int tile, void *to, int64_t stride)
{
    for (int r = 0; r < emulated.rows[tile]; r++)
        memcpy((char *)to + r * stride, emulated.tiles[tile].bytes[r], emulated.row_bytes[tile]);
}

/* Denormals count as zero, before and after every operation. */
static inline float emulated_flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static inline float emulated_half(const emulated_tile *tile, int row, int column)
{
    uint16_t bits;
    memcpy(&bits, tile->bytes[row] + 2 * column, sizeof bits);
    return emulated_flushed(weir_bf16_to_f32(bits));
}

/* The even and the odd inputs are each one chain from zero; their sum is added to `sums`. */
static inline void emulated_dpbf16ps(int sums, int a, int b)
{
    const emulated_tile *const x = &emulated.tiles[a], *const y = &emulated.tiles[b];
    for (int r = 0; r < emulated.rows[sums]; r++)
        for (int n = 0; n < emulated.row_bytes[sums] / 4; n++) {
            float chains[2] = { 0 }, sum;
            for (int k = 0; k < emulated.row_bytes[a] / 4; k++)
                for (int i = 0; i < 2; i++)
                    chains[i] = emulated_flushed(fmaf(
                        emulated_half(x, r, 2 * k + i), emulated_half(y, k, 2 * n + i), chains[i]
                    ));
            char *const at = emulated.tiles[sums].bytes[r] + 4 * n;
            memcpy(&sum, at, sizeof sum);
            sum = emulated_flushed(emulated_flushed(sum) + emulated_flushed(chains[0] + chains[1]));
            memcpy(at, &sum, sizeof sum);
        }
}
