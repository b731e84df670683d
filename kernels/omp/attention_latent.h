/* kernels/omp/attention_latent.h - tiles of 32 positions whose values alias their keys, multiplied
 * by AMX's tile registers, 16 query rows at a time (docs/kernels.md, docs/decisions/0082).
 *
 * An f32 is the sum of two bf16, its upper and lower part, to 2^-17; an f16 exactly. A product is
 * the sum of the products of parts, in f32. A word has the same part of two values, 16 dims (of
 * queries and keys) or 16 positions (of weights and values) apart. The order of summation is the
 * instruction's, for any number of rows. */
#pragma once
#include "kernels/omp/attention_tile.h"
#include "kernels/omp/lane_transpose.h"
#include "kernels/x86/tile_registers.h"

enum {
    SIDE = 16, /* rows of a tile, and words of its row */
    STEP = 2 * SIDE, /* dims of a product of keys, positions of one of values */
    ROW_GROUPS = (UNIT_ROWS + SIDE - 1) / SIDE,
    GROUP_BLOCKS = SIDE / LANE_ROWS,
    KEY_STEPS = (KEY_MAX + STEP - 1) / STEP,
    VALUE_BLOCKS = (VALUE_MAX + SIDE - 1) / SIDE,
    SIDE_VECTORS = SIDE / LANE_WIDTH,
};
_Static_assert(TILE == STEP && LANE_THREADS == 1 && SIDE % LANE_ROWS == 0, "tiles");
enum { UPPER, LOWER, PARTS };
typedef uint32_t tile_words[SIDE][SIDE]; /* of an operand */
typedef float tile_floats[SIDE][SIDE];

/* What a team has besides team_memory. */
typedef struct latent_memory {
    _Alignas(64) tile_words queries[ROW_GROUPS][KEY_STEPS][PARTS]; /* [row][pair of dims] */
    /* Of two steps, which take turns, and 16 positions: [pair of dims][position] */
    _Alignas(64) tile_words keys[2][PARTS][2];
    _Alignas(64) tile_words values[VALUE_BLOCKS][PARTS]; /* [dim][pair of positions] */
    _Alignas(64) tile_words weights[ROW_GROUPS][PARTS]; /* [pair of positions][row] */
    _Alignas(64) float scores[ROW_GROUPS][SIDE][TILE];
    _Alignas(64) tile_floats sums[ROW_GROUPS][VALUE_BLOCKS]; /* of a split: [dim][row] */
    _Alignas(64) float expanded[STEP * TILE];
} latent_memory;

/* All tiles have 16 rows of 64 bytes. */
static void use_tiles(void)
{
    tile_configuration c = { .palette = 1 };
    for (int i = 0; i < 8; i++) c.rows[i] = SIDE, c.row_bytes[i] = TILE_ROW_BYTES;
    TILE(loadconfig, &c);
}
#define LEAVE_TILES() RELEASE()
#ifdef WEIR_EMULATED
#define RUNS_TILES(caps) ((caps)->x86_v2)
#else
#define RUNS_TILES(caps) ((caps)->amx_bf16)
#endif

/* ---- parts ----------------------------------------------------------------------------------- */
WEIR_INLINE lane_uint bits_of(lane_float x)
{
    lane_uint y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

/* The upper halves of `first` and `second`. */
WEIR_INLINE lane_uint word_of(lane_uint first, lane_uint second)
{
    return first >> 16 | (second & 0xffff0000u);
}

/* The bits of x to nearest even bf16, with undefined lower halves. */
WEIR_INLINE lane_uint rounded_bits(lane_float x)
{
    const lane_uint bits = bits_of(x);
    return bits + 0x7fffu + (bits >> 16 & 1u);
}

/* Words of both parts, rounded: errors of weights and scores have no bias. */
WEIR_INLINE void store_rounded(
    uint32_t *upper, uint32_t *lower, lane_float first, lane_float second
)
{
    const lane_uint a = rounded_bits(first), b = rounded_bits(second);
    const lane_uint words = word_of(a, b),
                    rest = word_of(
                        rounded_bits(first - lane_from_bits(a & 0xffff0000u)),
                        rounded_bits(second - lane_from_bits(b & 0xffff0000u))
                    );
    __builtin_memcpy(upper, &words, sizeof words);
    __builtin_memcpy(lower, &rest, sizeof rest);
}

/* ---- queries --------------------------------------------------------------------------------- */
/* Row `row` of the unit, scaled; NULL: zeros. */
WEIR_INLINE void stage_latent_query(
    latent_memory *memory, int64_t row, const float *query, float scale, int64_t key_dim
)
{
    for (int64_t s = 0; s * STEP < key_dim; s++) {
        tile_words *const to = memory->queries[row / SIDE][s];
        for (int v = 0; v < SIDE_VECTORS; v++) {
            const int64_t at = s * STEP + v * LANE_WIDTH;
            lane_float first = (lane_float)0.0f, second = first;
            if (query) {
                first = lane_load_part(query + at, key_dim - at) * scale;
                second = lane_load_part(query + at + SIDE, key_dim - at - SIDE) * scale;
            }
            store_rounded(
                &to[UPPER][row % SIDE][v * LANE_WIDTH], &to[LOWER][row % SIDE][v * LANE_WIDTH],
                first, second
            );
        }
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */
/* Splits 32 dims [dim][32 positions] into operands, of which `values` has dims 0 .. 15 and 16 ..
 * 31. Parts of 16-bit formats are cut, which is exact, those of others are rounded. Prefetches
 * ahead_bytes for each pair of dims: more at a time would wait for the buffers of lines. */
WEIR_INLINE void split_dims(
    tile_words (*keys)[2], tile_words (*values)[PARTS], const char *codes, int64_t index,
    const weir_kv_format format, const bool is_exact, const char *ahead, int64_t ahead_bytes
)
{
    for (int64_t j = 0; j < SIDE; j++, ahead += ahead_bytes) {
        prefetch_range(ahead, ahead_bytes);
        UNROLL
        for (int v = 0; v < SIDE_VECTORS; v++) {
            lane_uint word[PARTS][2][2]; /* [part][dim j, j + 16][position t, t + 16] */
            UNROLL
            for (int d = 0; d < 2; d++) {
                UNROLL
                for (int t = 0; t < 2; t++) {
                    const lane_float x = kv_load_plain(
                        format, codes, index + (j + d * SIDE) * TILE + t * SIDE + v * LANE_WIDTH
                    );
                    const lane_uint upper = (is_exact ? bits_of(x) : rounded_bits(x)) & 0xffff0000u;
                    const lane_float lower = x - lane_from_bits(upper);
                    word[UPPER][d][t] = upper;
                    word[LOWER][d][t] = is_exact ? bits_of(lower) : rounded_bits(lower);
                }
            }
            UNROLL
            for (int part = 0; part < PARTS; part++) {
                UNROLL
                for (int i = 0; i < 2; i++) {
                    const lane_uint key = word_of(word[part][0][i], word[part][1][i]),
                                    value = word_of(word[part][i][0], word[part][i][1]);
                    __builtin_memcpy(&keys[part][i][j][v * LANE_WIDTH], &key, sizeof key);
                    __builtin_memcpy(&values[i][part][j][v * LANE_WIDTH], &value, sizeof value);
                }
            }
        }
    }
}

/* Step `step` of a K tile to memory->keys, and to memory->values. Dims past the last are zero. */
WEIR_NOINLINE void split_keys(
    latent_memory *memory, const char *part, weir_kv_format page_format, int64_t key_dim,
    int64_t tile, int64_t step, const char *ahead, int64_t ahead_bytes
)
{
    tile_words unused[2][PARTS];
    tile_words(*const values)[PARTS] = 2 * step < VALUE_BLOCKS ? &memory->values[2 * step] : unused;
    tile_words(*const keys)[2] = memory->keys[step % 2];
    const int64_t first = step * STEP;
#define KV_FORMAT_STATEMENT                                                                        \
    if (weir_kv_bits(format) == 16 && first + STEP <= key_dim) {                                   \
        const weir_kv_layout layout = weir_kv_layout_k(format, key_dim);                           \
        split_dims(                                                                                \
            keys, values, part + layout.codes + tile * layout.codes_step, first * TILE, format,    \
            true, ahead, ahead_bytes                                                               \
        );                                                                                         \
        return;                                                                                    \
    }                                                                                              \
    kv_expand_k(memory->expanded, part, format, key_dim, tile, first, 0);
    KV_FORMAT_SWITCH(page_format)
#undef KV_FORMAT_STATEMENT
    for (int64_t i = (key_dim - first) * TILE; i < STEP * TILE; i++) memory->expanded[i] = 0.0f;
    split_dims(
        keys, values, (const char *)memory->expanded, 0, WEIR_KV_F32, false, ahead, ahead_bytes
    );
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* Registers 0 to 3 are sums of [group][half of the positions]. All four products of parts: scores
 * are exponents, and the lower parts of keys that are cut have their sign. */
WEIR_INLINE void multiply_keys(latent_memory *memory, int64_t step)
{
    const tile_words(*const keys)[2] = memory->keys[step % 2], *const q = memory->queries[0][step];
    TILE(loadd, 4, q[UPPER], TILE_ROW_BYTES);
    TILE(loadd, 5, q[LOWER], TILE_ROW_BYTES);
    UNROLL
    for (int part = 0; part < PARTS; part++) {
        TILE(loadd, 6, keys[part][0], TILE_ROW_BYTES);
        TILE(loadd, 7, keys[part][1], TILE_ROW_BYTES);
        TILE(dpbf16ps, 0, 4, 6);
        TILE(dpbf16ps, 1, 4, 7);
        TILE(dpbf16ps, 0, 5, 6);
        TILE(dpbf16ps, 1, 5, 7);
    }
}

/* The same in the same order for two groups. */
WEIR_INLINE void multiply_keys_twice(latent_memory *memory, int64_t step)
{
    const tile_words(*const keys)[2] = memory->keys[step % 2];
    UNROLL
    for (int part = 0; part < PARTS; part++) {
        TILE(loadd, 6, keys[part][0], TILE_ROW_BYTES);
        TILE(loadd, 7, keys[part][1], TILE_ROW_BYTES);
        UNROLL
        for (int q = 0; q < PARTS; q++) {
            TILE(loadd, 4, memory->queries[0][step][q], TILE_ROW_BYTES);
            TILE(dpbf16ps, 0, 4, 6);
            TILE(dpbf16ps, 1, 4, 7);
            TILE(loadd, 5, memory->queries[ROW_GROUPS - 1][step][q], TILE_ROW_BYTES);
            TILE(dpbf16ps, 2, 5, 6);
            TILE(dpbf16ps, 3, 5, 7);
        }
    }
}

WEIR_INLINE void multiply_tile(
    latent_memory *memory, const tile_source *k, const tile_source *next, int64_t key_dim,
    const bool two
)
{
    const int64_t steps = (key_dim + STEP - 1) / STEP,
                  bytes = weir_kv_words(weir_kv_bits(next->format), STEP) * 4 * TILE;
    const char *const ahead = key_tile_of(next, next->format, key_dim).codes;
    TILE(zero, 0);
    TILE(zero, 1);
    if (two) TILE(zero, 2);
    if (two) TILE(zero, 3);
    for (int64_t s = 0; s <= steps; s++) { /* a step behind: its words have left for L1 */
        if (s < steps)
            split_keys(
                memory, k->part, k->format, key_dim, k->token / TILE, s, ahead + s * bytes,
                bytes / SIDE
            );
        if (s > 0 && two) multiply_keys_twice(memory, s - 1);
        if (s > 0 && !two) multiply_keys(memory, s - 1);
    }
    TILE(stored, 0, memory->scores[0][0], TILE * sizeof(float));
    TILE(stored, 1, &memory->scores[0][0][SIDE], TILE * sizeof(float));
    if (two) TILE(stored, 2, memory->scores[ROW_GROUPS - 1][0], TILE * sizeof(float));
    if (two) TILE(stored, 3, &memory->scores[ROW_GROUPS - 1][0][SIDE], TILE * sizeof(float));
}

/* score_tile for these tiles. */
WEIR_INLINE void score_latents(
    latent_memory *memory, row_block *blocks, const tile_source *k, const tile_source *next,
    int64_t key_dim, int n_blocks
)
{
    if (n_blocks > GROUP_BLOCKS)
        multiply_tile(memory, k, next, key_dim, true);
    else
        multiply_tile(memory, k, next, key_dim, false);
    for (int b = 0; b < n_blocks; b++) {
        float(*const from)[TILE] = memory->scores[b / GROUP_BLOCKS] + b % GROUP_BLOCKS * LANE_ROWS;
        for (int r = 0; r < LANE_ROWS; r++)
            for (int v = 0; v < TILE_VECTORS; v++)
                blocks[b].score[r][v] = lane_load(from[r] + v * LANE_WIDTH);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */
WEIR_INLINE void clear_sums(latent_memory *memory)
{
    __builtin_memset(memory->sums, 0, sizeof memory->sums);
}

/* Weights of a group's rows; of blocks that the unit does not have 0. */
WEIR_INLINE void stage_weights(
    latent_memory *memory, const team_memory *team, int group, int n_blocks
)
{
    _Alignas(64) tile_words rows[PARTS];
    for (int r = 0; r < SIDE; r++) {
        const int b = group * GROUP_BLOCKS + r / LANE_ROWS;
        for (int v = 0; v < SIDE_VECTORS; v++) {
            const float *const from =
                team->weights[b < n_blocks ? b : 0][r % LANE_ROWS] + v * LANE_WIDTH;
            const float keep = b < n_blocks ? 1.0f : 0.0f;
            store_rounded(
                &rows[UPPER][r][v * LANE_WIDTH], &rows[LOWER][r][v * LANE_WIDTH],
                lane_load(from) * keep, lane_load(from + SIDE) * keep
            );
        }
    }
    for (int part = 0; part < PARTS; part++)
        lane_transpose(
            (float *)memory->weights[group][part], SIDE, (const float *)rows[part], SIDE, 0
        );
}

/* sums *= the decay of each row; often all are 1. */
WEIR_INLINE void decay_sums(
    latent_memory *memory, const team_memory *team, int group, int n_blocks, int64_t value_dim
)
{
    float factors[SIDE];
    bool all_kept = true;
    for (int r = 0; r < SIDE; r++) {
        const int b = group * GROUP_BLOCKS + r / LANE_ROWS;
        factors[r] = b < n_blocks ? team->decay[b][r % LANE_ROWS] : 1.0f;
        all_kept = all_kept && factors[r] == 1.0f;
    }
    if (all_kept) return;
    for (int64_t block = 0; block * SIDE < value_dim; block++)
        for (int d = 0; d < SIDE; d++)
            for (int v = 0; v < SIDE_VECTORS; v++) {
                float *const at = &memory->sums[group][block][d][v * LANE_WIDTH];
                lane_store(at, lane_load(at) * lane_load(factors + v * LANE_WIDTH));
            }
}

/* Registers 4 to 7 have the weights of [group][part]. */
WEIR_INLINE void multiply_values(latent_memory *memory, int64_t value_dim, const bool two)
{
    const int last = ROW_GROUPS - 1;
    TILE(loadd, 4, memory->weights[0][UPPER], TILE_ROW_BYTES);
    TILE(loadd, 5, memory->weights[0][LOWER], TILE_ROW_BYTES);
    if (two) TILE(loadd, 6, memory->weights[last][UPPER], TILE_ROW_BYTES);
    if (two) TILE(loadd, 7, memory->weights[last][LOWER], TILE_ROW_BYTES);
    for (int64_t block = 0; block * SIDE < value_dim; block++) {
        TILE(loadd, 0, memory->sums[0][block], TILE_ROW_BYTES);
        TILE(loadd, 2, memory->values[block][UPPER], TILE_ROW_BYTES);
        TILE(loadd, 3, memory->values[block][LOWER], TILE_ROW_BYTES);
        if (two) TILE(loadd, 1, memory->sums[last][block], TILE_ROW_BYTES);
        TILE(dpbf16ps, 0, 2, 4);
        if (two) TILE(dpbf16ps, 1, 2, 6);
        TILE(dpbf16ps, 0, 2, 5);
        if (two) TILE(dpbf16ps, 1, 2, 7);
        TILE(dpbf16ps, 0, 3, 4);
        if (two) TILE(dpbf16ps, 1, 3, 6);
        TILE(stored, 0, memory->sums[0][block], TILE_ROW_BYTES);
        if (two) TILE(stored, 1, memory->sums[last][block], TILE_ROW_BYTES);
    }
}

/* value_tile for the tile that score_latents split. */
WEIR_INLINE void add_latents(
    latent_memory *memory, const team_memory *team, int64_t value_dim, int n_blocks
)
{
    const int groups = n_blocks > GROUP_BLOCKS ? 2 : 1;
    for (int g = 0; g < groups; g++) {
        stage_weights(memory, team, g, n_blocks);
        decay_sums(memory, team, g, n_blocks, value_dim);
    }
    if (groups == 2)
        multiply_values(memory, value_dim, true);
    else
        multiply_values(memory, value_dim, false);
}

/* The sums of a split to the blocks, with lanes of dims. */
WEIR_INLINE void take_sums(
    const latent_memory *memory, row_block *blocks, int64_t value_dim, int n_blocks
)
{
    _Alignas(64) tile_floats rows;
    for (int first = 0; first < n_blocks; first += GROUP_BLOCKS)
        for (int64_t n = 0; n * SIDE < value_dim; n++) {
            lane_transpose(rows[0], SIDE, memory->sums[first / GROUP_BLOCKS][n][0], SIDE, 0);
            for (int r = 0; r < SIDE && first + r / LANE_ROWS < n_blocks; r++)
                for (int v = 0; v < SIDE_VECTORS; v++)
                    blocks[first + r / LANE_ROWS].value[n * SIDE_VECTORS + v][r % LANE_ROWS] =
                        lane_load(rows[r] + v * LANE_WIDTH);
        }
}
