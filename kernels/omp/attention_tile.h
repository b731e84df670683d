/* kernels/omp/attention_tile.h - register blocks of query rows against one tile of 32 positions:
 * scores, weights, values.
 *
 * The innermost part of attention.c, which defines units and the order of tiles. The format is
 * switched per tile (K) and per 32 dims of a tile (V), outside the loops that multiply: one
 * predicted branch per thousands of products. */
#pragma once
#include "kernels/omp/attention_formats.h"

enum {
    SPLIT = WEIR_ATTENTION_SPLIT,
    KEY_MAX = 576,
    /* Sizes of staging and registers (MLA's latent rows fit). */
    VALUE_MAX = 512,
    /* Up to this many query rows per KV head, splits are separate units. */
    SPLIT_ROWS = 64,
    UNIT_BLOCKS = LANE_WIDTH == 1
                      ? 1
                      : 32 / LANE_ROWS, /* register blocks of LANE_ROWS query rows in a unit */
    UNIT_ROWS = UNIT_BLOCKS * LANE_ROWS,
    DEVICE_UNIT_ROWS = 4, /* the host pass of a GPU build plans for the device              */
    POSITION_THREADS = LANE_THREADS < TILE ? LANE_THREADS : TILE,
    ROW_THREADS = LANE_THREADS / POSITION_THREADS,
    THREAD_ROWS = LANE_ROWS / ROW_THREADS,
    TILE_VECTORS =
        TILE / (POSITION_THREADS * LANE_WIDTH), /* vectors of positions per thread and row */
    VALUE_VECTORS =
        VALUE_MAX / (LANE_THREADS * LANE_WIDTH), /* vectors of value_dim per thread and row */
    VALUE_GROUPS = VALUE_MAX / KV_GROUP,
    MORE_CHAINS = LANE_WIDTH == 1 ? 1 : 4, /* see chains_of */
    SUM_DIMS = 16, /* dimensions of a key that are summed before they join the score */
    PARTIAL_HEAD = 2, /* a partial is maximum, sum, value[value_dim]                         */
};
_Static_assert(
    ROW_THREADS *POSITION_THREADS == LANE_THREADS && ROW_THREADS <= LANE_ROWS, "lane mapping"
);
_Static_assert(
    TILE_VECTORS % LANE_VECTORS == 0 && VALUE_VECTORS % LANE_VECTORS == 0, "register blocks"
);
_Static_assert(
    CHUNK % VECTORS_DIMS == 0 && CHUNK % KV_GROUP == 0 && KV_GROUP % SUM_DIMS == 0, "chunks"
);
#define NOTHING (-FLT_MAX) /* the maximum of an empty set of scores */

/* One thread's share of a register block within a split. */
typedef struct row_block {
    int32_t last[THREAD_ROWS]; /* the row's own position: the last it sees */
    float maximum[THREAD_ROWS];
    lane_float sum[THREAD_ROWS][TILE_VECTORS],
        score[THREAD_ROWS][TILE_VECTORS]; /* of the current tile */
    lane_float value[VALUE_VECTORS][LANE_ROWS];
} row_block;

/* Splits merged so far. */
typedef struct row_total {
    float maximum[LANE_ROWS], sum[LANE_ROWS];
    bool started[LANE_ROWS]; /* not derived from `maximum`: see merge_row */
    lane_float value[VALUE_VECTORS][LANE_ROWS];
} row_total;

/* Memory that the lanes of a team share. */
typedef struct team_memory {
    _Alignas(64) float expanded[TILE * CHUNK]; /* K [32 dims][32 tokens], V [32 tokens][CHUNK] */
    float q[UNIT_BLOCKS * KEY_MAX * LANE_ROWS]; /* [block][key_dim][rows]               */
    float weights[UNIT_BLOCKS][LANE_ROWS][TILE];
#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
    /* Weights of one block times the scales of V's groups. */
    _Alignas(64) float scaled[LANE_ROWS][TILE][VALUE_GROUPS];
#endif
    float maxima[LANE_ROWS][POSITION_THREADS], sums[LANE_ROWS][POSITION_THREADS];
    float decay[UNIT_BLOCKS][LANE_ROWS], maximum[LANE_ROWS];
#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
    _Alignas(64) float turned[TILE * WEIR_KV_TURBO_DIM_MAX]; /* attention_turn.h */
#endif
} team_memory;

#pragma omp declare target
/* The row of the block that this thread's r-th share is; blocks have at least ROW_THREADS rows. */
WEIR_INLINE int row_of(int r, int tid) { return r * ROW_THREADS + tid / POSITION_THREADS; }

/* ---- scores ---------------------------------------------------------------------------------- */
/* Loops over registers are spelled out: an array passed to a function inside a loop is an
 * allocation on the device, inlined or not. */

/* The token of the tile at which a thread's vector begins. */
WEIR_INLINE int64_t token_of(int v, int tid)
{
    return (v * POSITION_THREADS + tid % POSITION_THREADS) * LANE_WIDTH;
}

/* Additional independent sums for blocks of few rows: products of a row wait for each other, so as
 * many chains are needed as a full block has. */
WEIR_INLINE int chains_of(const int rows)
{
    return LANE_WIDTH == 1 ? 1 : LANE_ROWS / rows < MORE_CHAINS ? LANE_ROWS / rows : MORE_CHAINS;
}

/* The next n sums of SUM_DIMS dimensions, from `first` on, side by side; they join the score one
 * after the other. */
WEIR_INLINE void add_plain_sums(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t first, int64_t n_dims, const int n, const int v0,
    const weir_kv_format format, const int rows, int tid
)
{
    const int dim_bytes = TILE * weir_kv_bits(format) / 8;
    lane_float sum[MORE_CHAINS][THREAD_ROWS][LANE_VECTORS];
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) sum[i][r][v] = (lane_float)0.0f;
        }
    }
    /* the accumulators fill the registers: unrolled by 4, some would be spilled */
    WEIR_PRAGMA(nounroll)
    for (int64_t d = 0; d < n_dims; d++) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t at = first + i * SUM_DIMS + d;
            lane_float key[LANE_VECTORS];
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                key[v] = kv_load_plain(format, k.codes, at * TILE + token_of(v0 + v, tid));
            if (v0 == 0) {
                UNROLL
                for (int line = 0; line < dim_bytes; line += 64)
                    PREFETCH(next_k.codes + (first + d * n + i) * dim_bytes + line);
            }
            UNROLL
            for (int r = 0; r < rows / ROW_THREADS; r++) {
                const lane_float query = (lane_float)q[at * rows + row_of(r, tid)];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++)
                    sum[i][r][v] = lane_fma(query, key[v], sum[i][r][v]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) score[r][v0 + v] += sum[i][r][v];
        }
    }
}

/* score[r][v] += sum over d of q[d][row] * k[d][position]    q [n_dims][rows], k [n_dims][32]
 * Sums of SUM_DIMS dimensions are added to the score: one long sum would lose up to twice the error
 * that steep logits (hundreds) allow. */
WEIR_INLINE void score_plain(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t n_dims, const weir_kv_format format, const int rows, int tid
)
{
    const int n = chains_of(rows);
    UNROLL
    for (int v0 = 0; v0 < TILE_VECTORS; v0 += LANE_VECTORS) {
        int64_t first = 0;
        WEIR_PRAGMA(nounroll)
        for (; n > 1 && first + n * SUM_DIMS <= n_dims; first += n * SUM_DIMS)
            add_plain_sums(score, q, k, next_k, first, SUM_DIMS, n, v0, format, rows, tid);
        WEIR_PRAGMA(nounroll)
        for (; first < n_dims; first += SUM_DIMS)
            add_plain_sums(
                score, q, k, next_k, first, n_dims - first < SUM_DIMS ? n_dims - first : SUM_DIMS,
                1, v0, format, rows, tid
            );
    }
}

/* The same over words of codes, whose scales apply to the sums: q8_0's to 32 dims of a token,
 * turbo's to the whole token. */
WEIR_INLINE void add_code_sums(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t first, const int n, const int v0, const weir_kv_format format,
    const int rows, int tid
)
{
    const int per = 32 / weir_kv_bits(format); /* dims of a word */
    lane_float sum[MORE_CHAINS][THREAD_ROWS][LANE_VECTORS];
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) sum[i][r][v] = (lane_float)0.0f;
        }
    }
    WEIR_PRAGMA(nounroll)
    for (int64_t step = 0; step < SUM_DIMS / per; step++) {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t w = (first + i * SUM_DIMS) / per + step;
            lane_uint word[LANE_VECTORS];
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                word[v] =
                    lane_load_words((const uint32_t *)k.codes + w * TILE + token_of(v0 + v, tid));
            if (v0 == 0) {
                PREFETCH(next_k.codes + (first / per + step * n + i) * TILE * 4);
                PREFETCH(next_k.codes + (first / per + step * n + i) * TILE * 4 + 64);
            }
            UNROLL
            for (int j = 0; j < per; j++) {
                lane_float key[LANE_VECTORS];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++) key[v] = key_of_word(format, word[v], j);
                UNROLL
                for (int r = 0; r < rows / ROW_THREADS; r++) {
                    const lane_float query = (lane_float)q[(w * per + j) * rows + row_of(r, tid)];
                    UNROLL
                    for (int v = 0; v < LANE_VECTORS; v++)
                        sum[i][r][v] = lane_fma(query, key[v], sum[i][r][v]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        lane_float scale[LANE_VECTORS];
        const int64_t group = (first + i * SUM_DIMS) / KV_GROUP;
        UNROLL
        for (int v = 0; v < LANE_VECTORS; v++)
            scale[v] = kv_k_scale(format, k.scales, group * KV_GROUP, token_of(v0 + v, tid));
        if (v0 == 0 && format == WEIR_KV_Q8_0) PREFETCH(next_k.scales + group * TILE * 2);
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                score[r][v0 + v] = lane_fma(sum[i][r][v], scale[v], score[r][v0 + v]);
        }
    }
}

WEIR_INLINE void score_codes(
    lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const key_tile k,
    const key_tile next_k, int64_t key_dim, const weir_kv_format format, const int rows, int tid
)
{
    const int n = chains_of(rows);
    UNROLL
    for (int v0 = 0; v0 < TILE_VECTORS; v0 += LANE_VECTORS) {
        int64_t first = 0;
        WEIR_PRAGMA(nounroll)
        for (; n > 1 && first + n * SUM_DIMS <= key_dim; first += n * SUM_DIMS)
            add_code_sums(score, q, k, next_k, first, n, v0, format, rows, tid);
        WEIR_PRAGMA(nounroll)
        for (; first < key_dim; first += SUM_DIMS)
            add_code_sums(score, q, k, next_k, first, 1, v0, format, rows, tid);
    }
}

/* Scores of all blocks; q [block][key_dim][rows]. */
WEIR_INLINE void score_tile(
    team_memory *team, row_block *blocks, const tile_source *k, const tile_source *next,
    int64_t key_dim, int n_blocks, const int rows, int tid
)
{
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++) blocks[b].score[r][v] = (lane_float)0.0f;
        }
    }
#define SCORE_DIRECT(name, score_rows)                                                             \
    case WEIR_KV_##name: {                                                                         \
        const key_tile at = key_tile_of(k, WEIR_KV_##name, key_dim),                               \
                       ahead = key_tile_of(next, WEIR_KV_##name, key_dim);                         \
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)                                      \
            score_rows(                                                                            \
                blocks[b].score, team->q + b * key_dim * rows, at, ahead, key_dim, WEIR_KV_##name, \
                rows, tid                                                                          \
            );                                                                                     \
        return;                                                                                    \
    }
    switch (k->format) {
        SCORE_DIRECT(F16, score_plain)
        SCORE_DIRECT(BF16, score_plain)
#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
        SCORE_DIRECT(Q8_0, score_codes)
        SCORE_DIRECT(TURBO4, score_codes)
#endif
    default: break;
    }
#undef SCORE_DIRECT
    /* f32, in the page or expanded */
    const bool lies = !READS_CODED || k->format == WEIR_KV_F32;
    const int64_t step = lies ? key_dim : KV_GROUP;
    for (int64_t first = 0; first < key_dim; first += step) {
        const int64_t n = key_dim - first < step ? key_dim - first : step;
        if (!lies) {
            const int64_t bytes = weir_kv_words(weir_kv_bits(k->format), KV_GROUP) * 4 * TILE;
            prefetch_range(
                key_tile_of(next, k->format, key_dim).codes + first / KV_GROUP * bytes, bytes
            );
            expand_keys(team->expanded, k->part, k->format, key_dim, k->token / TILE, first, tid);
            TEAM_BARRIER
        }
        const key_tile at = lies ? key_tile_of(k, WEIR_KV_F32, key_dim)
                                 : (key_tile){ .codes = (const char *)team->expanded };
        const key_tile ahead = lies ? key_tile_of(next, WEIR_KV_F32, key_dim) : at;
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            score_plain(
                blocks[b].score, team->q + (b * key_dim + first) * rows, at, ahead, n, WEIR_KV_F32,
                rows, tid
            );
        TEAM_BARRIER
    }
}

/* ---- weights --------------------------------------------------------------------------------- */
/* Every row of the block sees the whole tile. */
WEIR_INLINE bool sees_all(const row_block *block, int32_t position, int32_t window, const int rows)
{
    return block->last[0] >= position + TILE - 1 &&
           block->last[rows / ROW_THREADS - 1] - window < position;
}

/* See weigh_tile; without a mask the whole tile is seen. */
WEIR_INLINE void weigh_block(
    team_memory *team, row_block *block, int b, const _Float16 *scales, int32_t position,
    int32_t window, const bool has_mask, const int rows, int tid
)
{
    lane_float(*const score)[TILE_VECTORS] = block->score;
    const int thread_rows = rows / ROW_THREADS, lane = tid % POSITION_THREADS;
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        lane_float highest = (lane_float)NOTHING;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_int at =
                lane_iota() + (position + (v * POSITION_THREADS + lane) * LANE_WIDTH);
            const lane_int seen = (at <= block->last[r]) & (at > block->last[r] - window);
            if (has_mask) score[r][v] = lane_select(seen, score[r][v], (lane_float)NOTHING);
            highest = lane_max(score[r][v], highest);
        }
        team->maxima[row_of(r, tid)][lane] = lane_max_of(highest);
    }
    TEAM_BARRIER
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        const int row = row_of(r, tid);
        float maximum = block->maximum[r];
        for (int t = 0; t < POSITION_THREADS; t++)
            maximum = team->maxima[row][t] > maximum ? team->maxima[row][t] : maximum;
        const lane_float decay = lane_exp2((lane_float)(block->maximum[r] - maximum));
        block->maximum[r] = maximum;
        if (lane == 0)
            team->decay[b][row] = lane_first(decay); /* the same in all lanes of the row */
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int first = (v * POSITION_THREADS + lane) * LANE_WIDTH;
            const lane_int at = lane_iota() + (position + first);
            const lane_int seen = (at <= block->last[r]) & (at > block->last[r] - window);
            const lane_float full = lane_exp2(score[r][v] - maximum),
                             weight = has_mask ? lane_select(seen, full, (lane_float)0.0f) : full;
            block->sum[r][v] = lane_fma(block->sum[r][v], decay, weight);
            lane_store(
                &team->weights[b][row][first],
                scales ? weight * lane_load_half(scales + first) : weight
            );
        }
    }
    TEAM_BARRIER
}

/* Replaces scores of the tile at `position` by weights and decays of block b in team memory.
 * Positions outside (last - window, last] weigh 0; a row that sees none keeps its maximum: decay 1.
 * `scales`: see weight_scales. On the host, tiles seen whole use no mask. */
WEIR_INLINE void weigh_tile(
    team_memory *team, row_block *block, int b, const _Float16 *scales, int32_t position,
    int32_t window, const int rows, int tid
)
{
    if (LANE_THREADS == 1 && sees_all(block, position, window, rows))
        weigh_block(team, block, b, scales, position, window, false, rows, tid);
    else
        weigh_block(team, block, b, scales, position, window, true, rows, tid);
}

/* ---- values ---------------------------------------------------------------------------------- */
/* n * LANE_VECTORS vectors of value_dim from dim `first` on: value = value * decay + weights . V
 * weights [rows][32][step], the first of each step for LANE_VECTORS vectors, the one after it for
 * those that follow */
WEIR_INLINE void add_values(
    const float *restrict weights, const int step, const float *restrict decay,
    lane_float (*restrict value)[LANE_ROWS], const value_tile_rows *tile, int64_t first,
    const int n, const weir_kv_format format, const int rows
)
{
    /* Of codes, for 4 tokens. */
    const int bytes = 4 * n * VECTORS_DIMS * weir_kv_bits(format) / 8;
    lane_float sum[LANE_ROWS][MORE_CHAINS * LANE_VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < n * LANE_VECTORS; v++) sum[r][v] = value[v][r] * decay[r];
    }
    if (format == WEIR_KV_Q8_0) {
        UNROLL
        for (int i = 0; i < n; i++) PREFETCH(tile->next_scales + (first / KV_GROUP + i) * 64);
    }
    WEIR_PRAGMA(nounroll)
    for (int t0 = 0; t0 < TILE; t0 += 4) {
        /* The next tile's codes in memory order. */
        UNROLL
        for (int line = 0; line < bytes; line += 64)
            PREFETCH(
                tile->next_codes + first * TILE * weir_kv_bits(format) / 8 + t0 / 4 * bytes + line
            );
        UNROLL
        for (int t = t0; t < t0 + 4; t++) {
            UNROLL
            for (int i = 0; i < n; i++) {
                lane_float x[LANE_VECTORS];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++)
                    x[v] = value_lanes(tile, format, t, first + i * VECTORS_DIMS, v);
                UNROLL
                for (int r = 0; r < rows; r++) {
                    const lane_float weight =
                        (lane_float)weights[(r * TILE + t) * step + (step > 1 ? i : 0)];
                    UNROLL
                    for (int v = 0; v < LANE_VECTORS; v++)
                        sum[r][i * LANE_VECTORS + v] =
                            lane_fma(weight, x[v], sum[r][i * LANE_VECTORS + v]);
                }
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < n * LANE_VECTORS; v++) value[v][r] = sum[r][v];
    }
}

#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
/* scaled[row][token][group] = weight * scale: once per tile and block, instead of once per dim.
 * Groups past the last are undefined. */
WEIR_INLINE void scale_weights(
    team_memory *team, int b, const value_tile_rows *tile, int64_t value_dim, const int rows,
    int tid
)
{
    TEAM_BARRIER
    for (int64_t t = tid; t < TILE; t += LANE_THREADS) {
        const _Float16 *const scales = (const _Float16 *)(tile->scales + t * tile->scales_step);
        for (int64_t g = 0; g < value_dim / KV_GROUP; g += LANE_WIDTH) {
            const lane_float scale = lane_load_half(scales + g);
            UNROLL
            for (int r = 0; r < rows; r++)
                lane_store(&team->scaled[r][t][g], team->weights[b][r][t] * scale);
        }
    }
    TEAM_BARRIER
}

/* value_tile for q8_0, whose scales are per 32 dims of a token. */
WEIR_INLINE void value_tile_q8_0(
    team_memory *team, row_block *blocks, const value_tile_rows *tile, int64_t value_dim,
    int n_blocks, const int width, const int rows, int tid
)
{
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        scale_weights(team, b, tile, value_dim, rows, tid);
        const int more = chains_of(rows);
        int n = 0;
        if (more > 1 && VECTORS_DIMS == KV_GROUP)
            for (; (n + more * LANE_VECTORS) * LANE_WIDTH <= value_dim; n += more * LANE_VECTORS)
                add_values(
                    &team->scaled[0][0][n * LANE_WIDTH / KV_GROUP], VALUE_GROUPS, team->decay[b],
                    blocks[b].value + n, tile, n * LANE_WIDTH, more, WEIR_KV_Q8_0, rows
                );
        UNROLL_DEVICE
        for (; n < width / (LANE_THREADS * LANE_WIDTH); n += LANE_VECTORS) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= value_dim) break;
            add_values(
                &team->scaled[0][0][first / KV_GROUP], VALUE_GROUPS, team->decay[b],
                blocks[b].value + n, tile, first, 1, WEIR_KV_Q8_0, rows
            );
        }
    }
}
#endif

/* Values of all blocks. `width`: value_dim rounded up to what the registers of this variant hold.
 * Lanes past value_dim sum undefined elements and are never stored. */
WEIR_INLINE void value_tile(
    team_memory *team, row_block *blocks, const tile_source *v, const tile_source *next,
    int64_t value_dim, int n_blocks, const int width, const int rows, int tid
)
{
    const value_tile_rows lying = value_rows_of(v, next, value_dim);
    const bool direct = !READS_CODED || is_direct_v(v->format, value_dim);
#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
    if (v->format == WEIR_KV_Q8_0) {
        value_tile_q8_0(team, blocks, &lying, value_dim, n_blocks, width, rows, tid);
        return;
    }
#endif
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n += LANE_VECTORS) {
        const int64_t chunk = n * LANE_THREADS * LANE_WIDTH / CHUNK * CHUNK,
                      first = (n * LANE_THREADS + tid) * LANE_WIDTH;
        const bool lies = direct && (LANE_WIDTH == 1 || value_dim - chunk >= CHUNK);
        if (n * LANE_THREADS * LANE_WIDTH >= value_dim) break;
        if (!lies && n * LANE_THREADS * LANE_WIDTH == chunk) {
            const int64_t bits = weir_kv_bits(v->format);
            prefetch_range(lying.next_codes + chunk * TILE * bits / 8, TILE * CHUNK * bits / 8);
            TEAM_BARRIER
            expand_values(team->expanded, v->part, v->format, value_dim, v->token, chunk, tid);
            TEAM_BARRIER
        }
        if (LANE_WIDTH == 1 && first >= value_dim) {
            if (!READS_CODED) break;
            continue; /* goes to the barriers */
        }
        const value_tile_rows expanded = { .codes = (const char *)team->expanded,
                                           .next_codes = (const char *)team->expanded,
                                           .codes_step = CHUNK * 4 };
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
            lane_float(*const value)[LANE_ROWS] = blocks[b].value + n;
#define ADD_DIRECT(name)                                                                           \
    case WEIR_KV_##name:                                                                           \
        add_values(                                                                                \
            team->weights[b][0], 1, team->decay[b], value, &lying, first, 1, WEIR_KV_##name, rows  \
        );                                                                                         \
        break;
            switch (lies ? v->format : WEIR_KV_FORMAT_COUNT) {
                ADD_DIRECT(F16)
                ADD_DIRECT(BF16)
#if !WEIR_PASTE3(WEIR_PLAIN_, ONLY, WEIR_ISA)
                ADD_DIRECT(TURBO4)
#endif
            default:
                add_values(
                    team->weights[b][0], 1, team->decay[b], value, lies ? &lying : &expanded,
                    lies ? first : first - chunk, 1, WEIR_KV_F32, rows
                );
            }
#undef ADD_DIRECT
        }
    }
}
#pragma omp end declare target
