/* kernels/x86/matmul_tiles_pass.h - the inner loop of the product on tiles, for the instruction set
 * that the including file is compiled for. Include once per set, then define the kernel row.
 *
 * Per output, row and scale, in ascending order of inputs, and nothing else:
 *   sum = -zero * sum(x codes) + sum(code * x code)                exact, int32: |sum| < 2^20
 *   acc = fma((float)sum, weight scale * x scale, acc);  with minima then  acc = fma(minimum, x
 *   scale * sum(x codes), acc) */
#pragma once
#include "kernels/x86/activations.h"
#include "kernels/x86/lanes16.h"
#include "kernels/x86/matmul_tiles.h"

/* Into L2: with several blocks of rows, the next panel would evict the current one from L1 (8 rows
 * of 3584 x 1024: 108 us instead of 156); for one block both are the same. */
#define PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define UNROLL _Pragma("clang loop unroll(full)")

LANES_INLINE lanes_codes tile_codes(const uint8_t *record, int tile, int quad, weir_tile_codes kind)
{
    const uint8_t *at = record + tile * 64;
    const int bits = weir_tile_index_bits(kind);
    lanes_codes codes;
    if (bits == 8) {
        codes = lanes_codes_load(at + quad * 128);
    } else if (bits == 4) {
        const lanes_codes both = lanes_codes_load(at + quad % 4 * 128);
        codes = quad < 4 ? lanes_codes_low(both) : lanes_codes_high(both);
    } else if (bits == 1) {
        codes = lanes_codes_bits(lanes_codes_load(at), quad - 1, 2);
    } else {
        codes = lanes_codes_bits(lanes_codes_load(at + quad % 2 * 128), quad / 2 * 2, 3);
        if (bits == 3)
            codes = lanes_codes_or(
                codes, lanes_codes_bits(lanes_codes_load(at + 2 * 128), quad - 2, 4)
            );
    }
    return weir_tile_has_values(kind) ? lanes_codes_table(codes, weir_tile_values[kind]) : codes;
}

typedef lanes_float tile_pair[WEIR_PANEL_TILES];

/* What the compiler knows of a pass: rows, and the format's part of the loop. */
typedef struct pass_shape {
    int rows;
    weir_tile_codes kind;
    int bits;
    bool minimum;
    int splits;
} pass_shape;

LANES_INLINE lanes_int start_of(const weir_tiles_pass *pass, int64_t side, pass_shape s)
{
    return s.minimum ? lanes_int_all(0) : lanes_start(((const int32_t *)pass->sides)[side], s.bits);
}

/* sums [rows][n_tiles]: the integer sums of one split of one record, for n_tiles tiles from
 * `first` on. All arguments but the pointers and `group` are constants of the loop that is
 * compiled. */
LANES_INLINE void sum_split(
    lanes_int sums[][WEIR_PANEL_TILES], const weir_tiles_pass *pass, const uint8_t *record,
    const char *ahead, int64_t group, int split, int first, int n_tiles, pass_shape s
)
{
    const int quads = 8 / s.splits, most = LANES_QUADS(s.bits);
    const int8_t *x = pass->codes + group * s.rows * WEIR_TILE_GROUP;
    const int64_t sides = (group * s.splits + split) * s.rows;
    lanes_part parts[WEIR_TILES_MAX_ROWS][WEIR_PANEL_TILES];
    UNROLL
    for (int i = 0; i < quads; i++) {
        const int quad = s.splits == 2            ? split * 4 + i
                         : s.kind == WEIR_TILE_U8 ? i
                                                  : i % 2 * 4 + i / 2;
        lanes_weights weights[WEIR_PANEL_TILES];
        UNROLL
        for (int t = 0; t < n_tiles; t++) {
            weights[t] = lanes_weights_of(tile_codes(record, first + t, quad, s.kind), s.bits);
            if (s.rows <= WEIR_TILES_STREAM_ROWS && quad < weir_tile_index_bits(s.kind))
                PREFETCH(ahead + quad * 128 + (first + t) * 64);
        }
        UNROLL
        for (int r = 0; r < s.rows; r++) {
            const lanes_input input = lanes_input_load(x + r * WEIR_TILE_GROUP + quad * 4);
            UNROLL
            for (int t = 0; t < n_tiles; t++) {
                if (i % most == 0)
                    parts[r][t] = lanes_begin(i ? sums[r][t] : start_of(pass, sides + r, s));
                parts[r][t] = lanes_dot(parts[r][t], weights[t], input, s.bits);
                if (i % most == most - 1 || i == quads - 1)
                    sums[r][t] = lanes_end(
                        i < most ? start_of(pass, sides + r, s) : sums[r][t], parts[r][t]
                    );
            }
        }
    }
    UNROLL
    for (int r = 0; r < s.rows; r++) {
        UNROLL
        for (int t = 0; t < n_tiles; t++) lanes_pin(&sums[r][t]);
    }
}

/* acc [rows] += one split of one record, n_tiles tiles from `first` on. */
LANES_INLINE void add_split(
    tile_pair acc[], const weir_tiles_pass *pass, const uint8_t *record, const char *ahead,
    int64_t group, int split, int first, int n_tiles, pass_shape s
)
{
    const int scales_at = weir_tile_index_bits(s.kind) * 128 + split * 64,
              minima_at = scales_at + s.splits * 64;
    const int64_t sides = (group * s.splits + split) * s.rows;
    lanes_int sums[WEIR_TILES_MAX_ROWS][WEIR_PANEL_TILES];
    sum_split(sums, pass, record, ahead, group, split, first, n_tiles, s);
    if (s.rows <= WEIR_TILES_STREAM_ROWS && first == 0) {
        PREFETCH(ahead + scales_at);
        if (s.minimum) PREFETCH(ahead + minima_at);
    }
    UNROLL
    for (int i = 0; i < n_tiles; i++) {
        const int t = first + i;
        const lanes_float scale = lanes_from_half(record + scales_at + t * 32);
        UNROLL
        for (int r = 0; r < s.rows; r++) {
            const lanes_float product =
                lanes_mul(scale, lanes_all(pass->scales[group * s.rows + r]));
            acc[r][t] = lanes_fma(lanes_from_int(sums[r][i]), product, acc[r][t]);
        }
        if (!s.minimum) continue;
        const lanes_float low = lanes_from_half(record + minima_at + t * 32);
        UNROLL
        for (int r = 0; r < s.rows; r++)
            acc[r][t] =
                lanes_fma(low, lanes_all(((const float *)pass->sides)[sides + r]), acc[r][t]);
    }
}

LANES_INLINE void store_lanes(float *dst, lanes_float product, const float *bias, bool accumulate)
{
    if (bias) product = lanes_add(product, lanes_load(bias));
    if (accumulate) product = lanes_add(lanes_load(dst), product);
    lanes_store(dst, product);
}

LANES_INLINE void store_row(
    const weir_tiles_pass *pass, int row, const lanes_float acc[WEIR_PANEL_TILES]
)
{
    float *const dst = pass->dst + row * pass->dst_stride;
    const lanes_float unit = lanes_all(pass->unit);
    if (__builtin_expect(pass->n == WEIR_PANEL_ROWS, 1)) {
        UNROLL
        for (int t = 0; t < WEIR_PANEL_TILES; t++) {
            const int at = t * WEIR_TILE_LANES;
            store_lanes(
                dst + at, lanes_mul(acc[t], unit), pass->bias ? pass->bias + at : NULL,
                pass->accumulate
            );
        }
        return;
    }
    float sums[WEIR_PANEL_ROWS];
    UNROLL
    for (int t = 0; t < WEIR_PANEL_TILES; t++)
        lanes_store(sums + t * WEIR_TILE_LANES, lanes_mul(acc[t], unit));
    for (int64_t i = 0; i < pass->n; i++) {
        const float biased = pass->bias ? sums[i] + pass->bias[i] : sums[i];
        dst[i] = pass->accumulate ? dst[i] + biased : biased;
    }
}

LANES_INLINE void multiply_pass(const weir_tiles_pass *job, pass_shape s)
{
    const weir_tiles_pass pass = *job;
    const int64_t record_bytes =
        weir_tile_index_bits(s.kind) * 128 + s.splits * 64 * (s.minimum ? 2 : 1);
    const int n_tiles = s.rows == 1 ? WEIR_PANEL_TILES : LANES_TILES;
    const uint8_t *record = pass.panel;
    const char *ahead = pass.ahead;
    tile_pair acc[WEIR_TILES_MAX_ROWS];
    UNROLL
    for (int r = 0; r < s.rows; r++) {
        UNROLL
        for (int t = 0; t < WEIR_PANEL_TILES; t++) acc[r][t] = lanes_zero();
    }
    for (int64_t group = 0; group < pass.n_groups;
         group++, record += record_bytes, ahead += pass.ahead_stride) {
        UNROLL
        for (int split = 0; split < s.splits; split++) {
            UNROLL
            for (int t = 0; t < WEIR_PANEL_TILES; t += n_tiles) {
                add_split(acc, &pass, record, ahead, group, split, t, n_tiles, s);
                /* Accumulators in memory: the compiler would keep them and spill the sums. */
                if (n_tiles < WEIR_PANEL_TILES) __asm__ volatile("" : : "r"(acc) : "memory");
            }
        }
    }
    UNROLL
    for (int r = 0; r < s.rows; r++) store_row(&pass, r, acc[r]);
}

static void quantise_groups(
    const weir_tiles_row *row, const float *x, int64_t n_groups, int32_t *sums
)
{
    for (int64_t g = 0; g < n_groups; g++) {
        int8_t *const codes = row->codes + g * row->stride * WEIR_TILE_GROUP;
        const weir_activation_group group =
            weir_activation_quantise(codes, x + g * WEIR_TILE_GROUP);
        row->scales[g * row->stride] = group.scale;
        sums[2 * g] = group.sums[0];
        sums[2 * g + 1] = group.sums[1];
    }
}

/* ...: kind, bits, minimum, splits */
#define PASS(index, rows, ...)                                                                     \
    static void pass_##index##_##rows(const weir_tiles_pass *job)                                  \
    {                                                                                              \
        multiply_pass(job, (pass_shape){ rows, __VA_ARGS__ });                                     \
    }
