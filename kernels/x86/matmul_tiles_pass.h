/* kernels/x86/matmul_tiles_pass.h - the inner loop of the product on tiles, for the instruction set that the including file is compiled
 * for. Include once per set, then define the kernel row.
 *
 * Per output, row and scale, in ascending order of inputs, and nothing else:
 *   sum = -zero * sum(x codes) + sum(code * x code)                exact, int32: |sum| < 2^20
 *   acc = fma((float)sum, weight scale * x scale, acc);  with minima then  acc = fma(minimum, x scale * sum(x codes), acc) */
#pragma once
#include "kernels/x86/activations.h"
#include "kernels/x86/lanes16.h"
#include "kernels/x86/matmul_tiles.h"

#define UNROLL _Pragma("clang loop unroll(full)")

LANES_INLINE lanes_codes tile_codes(const uint8_t *tile, int quad, weir_tile_codes kind)
{
    if (kind == WEIR_TILE_U8) return lanes_codes_load(tile + quad * 64);
    const lanes_codes both = lanes_codes_load(tile + quad % 4 * 64), codes = quad < 4 ? lanes_codes_low(both) : lanes_codes_high(both);
    return kind == WEIR_TILE_U4_TABLE ? lanes_codes_table(codes, weir_tile_table) : codes;
}

/* LANES_PAIR tiles from tile `first`, one split of one group: adds to acc. All arguments but the pointers are constants. */
LANES_INLINE void add_split(lanes_float acc[][WEIR_PANEL_TILES], const weir_tiles_pass *pass, const uint8_t *record, int64_t group,
                            int first, int split, int rows, weir_tile_codes kind, bool minimum, int splits)
{
    const int     tile_bytes = kind == WEIR_TILE_U8 ? 512 : 256, quads = 8 / splits;
    const int8_t *x = pass->codes + group * rows * WEIR_TILE_GROUP;
    const int64_t sides = (group * splits + split) * rows;
    lanes_int     sums[WEIR_TILES_MAX_ROWS][LANES_PAIR];
    UNROLL
    for (int r = 0; r < rows; r++) {
        const lanes_int start = lanes_int_all(minimum ? 0 : ((const int32_t *)pass->sides)[sides + r]);
        UNROLL
        for (int t = 0; t < LANES_PAIR; t++) sums[r][t] = start;
    }
    UNROLL
    for (int i = 0; i < quads; i++) {
        const int   quad = splits == 2 ? split * 4 + i : kind == WEIR_TILE_U8 ? i : i % 2 * 4 + i / 2;
        lanes_codes codes[LANES_PAIR];
        UNROLL
        for (int t = 0; t < LANES_PAIR; t++) codes[t] = tile_codes(record + (first + t) * tile_bytes, quad, kind);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const lanes_input input = lanes_input_load(x + r * WEIR_TILE_GROUP + quad * 4);
            UNROLL
            for (int t = 0; t < LANES_PAIR; t++) sums[r][t] = lanes_dot(sums[r][t], codes[t], input);
        }
    }
    const uint8_t *scales = record + WEIR_PANEL_TILES * tile_bytes + (split * WEIR_PANEL_ROWS + first * WEIR_TILE_LANES) * 2;
    const uint8_t *minima = scales + splits * WEIR_PANEL_ROWS * 2;
    UNROLL
    for (int t = 0; t < LANES_PAIR; t++) {
        const lanes_float scale = lanes_from_half(scales + t * WEIR_TILE_LANES * 2);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const lanes_float product = lanes_mul(scale, lanes_all(pass->scales[group * rows + r]));
            acc[r][first + t] = lanes_fma(lanes_from_int(sums[r][t]), product, acc[r][first + t]);
        }
        if (!minimum) continue;
        const lanes_float low = lanes_from_half(minima + t * WEIR_TILE_LANES * 2);
        UNROLL
        for (int r = 0; r < rows; r++)
            acc[r][first + t] = lanes_fma(low, lanes_all(((const float *)pass->sides)[sides + r]), acc[r][first + t]);
    }
}

LANES_INLINE void multiply_pass(const weir_tiles_pass *job, int rows, weir_tile_codes kind, bool minimum, int splits)
{
    const weir_tiles_pass pass = *job;
    const int64_t         record_bytes = (kind == WEIR_TILE_U8 ? 2048 : 1024) + splits * WEIR_PANEL_ROWS * 2 * (minimum ? 2 : 1);
    const uint8_t        *record = pass.panel;
    const char           *prefetch = pass.prefetch;
    lanes_float           acc[WEIR_TILES_MAX_ROWS][WEIR_PANEL_TILES];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int t = 0; t < WEIR_PANEL_TILES; t++) acc[r][t] = lanes_zero();
    }
    for (int64_t group = 0; group < pass.n_groups; group++, record += record_bytes) {
        for (int64_t l = 0; l < pass.prefetch_lines; l++, prefetch += 64) __builtin_prefetch(prefetch, 0, 3);
        UNROLL
        for (int first = 0; first < WEIR_PANEL_TILES; first += LANES_PAIR) {
            UNROLL
            for (int split = 0; split < splits; split++) add_split(acc, &pass, record, group, first, split, rows, kind, minimum, splits);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int t = 0; t < WEIR_PANEL_TILES; t++) lanes_store(pass.sums + r * WEIR_PANEL_ROWS + t * WEIR_TILE_LANES, acc[r][t]);
    }
}

static void quantise_groups(const weir_tiles_row *row, const float *x, int64_t n_groups, int32_t *sums)
{
    for (int64_t g = 0; g < n_groups; g++) {
        const weir_activation_group group = weir_activation_quantise(row->codes + g * row->stride * WEIR_TILE_GROUP, x + g * WEIR_TILE_GROUP);
        row->scales[g * row->stride] = group.scale;
        sums[2 * g] = group.sums[0];
        sums[2 * g + 1] = group.sums[1];
    }
}

#define PASS(index, kind, minimum, splits, rows) \
    static void pass_##index##_##rows(const weir_tiles_pass *job) { multiply_pass(job, rows, kind, minimum, splits); }
