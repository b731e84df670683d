/* kernels/omp/attention_tile.h - a register block of query rows against one tile of 32 positions: scores, weights, values.
 *
 * The innermost part of attention.c, which says what a unit is and in which order tiles are visited. */
#pragma once
#include "kernels/omp/lanes.h"

enum {
    TILE = WEIR_TILE_TOKENS,
    SPLIT = WEIR_ATTENTION_SPLIT,
    KEY_MAX = 576,
    VALUE_MAX = 512,                                   /* what staging and registers are sized for (MLA's latent rows fit)   */
    SPLIT_ROWS = 64, /* up to so many query rows per KV head, splits are units of their own */
    UNIT_BLOCKS = LANE_WIDTH == 1 ? 1 : 32 / LANE_ROWS, /* register blocks of LANE_ROWS query rows in a unit                   */
    UNIT_ROWS = UNIT_BLOCKS * LANE_ROWS,
    DEVICE_UNIT_ROWS = 4, /* the host pass of a GPU build plans for the device              */
    POSITION_THREADS = LANE_THREADS < TILE ? LANE_THREADS : TILE,
    ROW_THREADS = LANE_THREADS / POSITION_THREADS,
    THREAD_ROWS = LANE_ROWS / ROW_THREADS,
    TILE_VECTORS = TILE / (POSITION_THREADS * LANE_WIDTH), /* vectors of positions per thread and row                             */
    VALUE_VECTORS = VALUE_MAX / (LANE_THREADS * LANE_WIDTH), /* vectors of value_dim per thread and row                             */
    PARTIAL_HEAD = 2, /* a partial is maximum, sum, value[value_dim]                         */
};
_Static_assert(ROW_THREADS *POSITION_THREADS == LANE_THREADS && ROW_THREADS <= LANE_ROWS, "lane mapping");
_Static_assert(TILE_VECTORS % LANE_VECTORS == 0 && VALUE_VECTORS % LANE_VECTORS == 0, "register blocks");
#define NOTHING (-FLT_MAX) /* the maximum of no score */

/* One thread's share of a register block within a split. */
typedef struct row_block {
    int32_t    last[THREAD_ROWS]; /* the row's own position: the last it sees */
    float      maximum[THREAD_ROWS];
    lane_float sum[THREAD_ROWS][TILE_VECTORS];
    lane_float value[VALUE_VECTORS][LANE_ROWS];
} row_block;

/* Splits merged so far. */
typedef struct row_total {
    float      maximum[LANE_ROWS], sum[LANE_ROWS];
    bool       started[LANE_ROWS]; /* not read back from `maximum`: see merge_row */
    lane_float value[VALUE_VECTORS][LANE_ROWS];
} row_total;

/* Memory that the lanes of a team share. */
typedef struct team_memory {
    float q[UNIT_BLOCKS * KEY_MAX * LANE_ROWS]; /* [block][key_dim][rows] */
    float weights[LANE_ROWS][TILE];
    float maxima[LANE_ROWS][POSITION_THREADS], sums[LANE_ROWS][POSITION_THREADS];
    float decay[LANE_ROWS], maximum[LANE_ROWS];
} team_memory;

#pragma omp declare target
/* ---- a tile -------------------------------------------------------------------------------------------------------- */
WEIR_INLINE lane_float load_element(const void *base, int64_t index, const bool half)
{
    return half ? lane_load_half((const _Float16 *)base + index) : lane_load((const float *)base + index);
}

WEIR_INLINE const char *element(const void *base, int64_t index, const bool half) { return (const char *)base + index * (half ? 2 : 4); }

/* The row of the block that this thread's r-th share is; blocks have at least ROW_THREADS rows. */
WEIR_INLINE int row_of(int r, int tid) { return r * ROW_THREADS + tid / POSITION_THREADS; }

/* score[r][v] = sum over d of q[d][row] * k[d][position]    q [key_dim][rows], k [key_dim][32] */
WEIR_INLINE void score_tile(lane_float (*restrict score)[TILE_VECTORS], const float *restrict q, const void *restrict k, const void *next_k,
                            int64_t key_dim, const int rows, const bool half, int tid)
{
    const int thread_rows = rows / ROW_THREADS;
    UNROLL
    for (int v0 = 0; v0 < TILE_VECTORS; v0 += LANE_VECTORS) {
        lane_float sum[THREAD_ROWS][LANE_VECTORS];
        UNROLL
        for (int r = 0; r < thread_rows; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) sum[r][v] = (lane_float)0.0f;
        }
        WEIR_PRAGMA(nounroll) /* the accumulators fill the registers: unrolled by 4, some are spilled */
        for (int64_t d = 0; d < key_dim; d++) {
            lane_float key[LANE_VECTORS];
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                key[v] = load_element(k, d * TILE + ((v0 + v) * POSITION_THREADS + tid % POSITION_THREADS) * LANE_WIDTH, half);
            if (v0 == 0) {
                PREFETCH(element(next_k, d * TILE, half));
                if (!half) PREFETCH(element(next_k, d * TILE + TILE / 2, half));
            }
            UNROLL
            for (int r = 0; r < thread_rows; r++) {
                const lane_float query = (lane_float)q[d * rows + row_of(r, tid)];
                UNROLL
                for (int v = 0; v < LANE_VECTORS; v++) sum[r][v] = lane_fma(query, key[v], sum[r][v]);
            }
        }
        UNROLL
        for (int r = 0; r < thread_rows; r++) {
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++) score[r][v0 + v] = sum[r][v];
        }
    }
}

/* Scores of the tile at `position` to weights and decays in team memory; maximum and sum of the block move on. Positions outside
 * (last - window, last] weigh 0, and a row for which the whole tile is outside keeps its maximum: decay 1. */
WEIR_INLINE void weigh_tile(team_memory *team, row_block *block, lane_float (*restrict score)[TILE_VECTORS], int32_t position,
                            int32_t window, const int rows, int tid)
{
    const int thread_rows = rows / ROW_THREADS, lane = tid % POSITION_THREADS;
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        lane_float highest = (lane_float)NOTHING;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const lane_int at = lane_iota() + (position + (v * POSITION_THREADS + lane) * LANE_WIDTH);
            const lane_int seen = (at <= block->last[r]) & (at > block->last[r] - window);
            score[r][v] = lane_select(seen, score[r][v], (lane_float)NOTHING);
            highest = lane_max(score[r][v], highest);
        }
        team->maxima[row_of(r, tid)][lane] = lane_max_of(highest);
    }
    TEAM_BARRIER
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        const int row = row_of(r, tid);
        float     maximum = block->maximum[r];
        for (int t = 0; t < POSITION_THREADS; t++) maximum = team->maxima[row][t] > maximum ? team->maxima[row][t] : maximum;
        const lane_float decay = lane_exp2((lane_float)(block->maximum[r] - maximum));
        block->maximum[r] = maximum;
        if (lane == 0) team->decay[row] = lane_first(decay); /* the same in all lanes of the row */
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int        first = (v * POSITION_THREADS + lane) * LANE_WIDTH;
            const lane_int   at = lane_iota() + (position + first);
            const lane_int   seen = (at <= block->last[r]) & (at > block->last[r] - window);
            const lane_float weight = lane_select(seen, lane_exp2(score[r][v] - maximum), (lane_float)0.0f);
            block->sum[r][v] = lane_fma(block->sum[r][v], decay, weight);
            lane_store(&team->weights[row][first], weight);
        }
    }
    TEAM_BARRIER
}

/* `vectors` vectors of value_dim from dimension `first` on, of which `count` dimensions exist: value = value * decay + weights . V */
WEIR_INLINE void add_values(team_memory *team, lane_float (*restrict value)[LANE_ROWS], const void *restrict v_tile, const void *next_v,
                            int64_t value_dim, int64_t first, int count, const int vectors, const bool whole, const int rows,
                            const bool half)
{
    lane_float sum[LANE_ROWS][LANE_VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) sum[r][v] = value[v][r] * team->decay[r];
    }
    WEIR_PRAGMA(unroll 4)
    for (int t = 0; t < TILE; t++) {
        lane_float x[LANE_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            const int64_t at = t * value_dim + first + v * LANE_THREADS * LANE_WIDTH;
            if (whole) {
                x[v] = load_element(v_tile, at, half);
            } else {
                float part[LANE_WIDTH] = { 0 };
                for (int i = 0; i < count; i++)
                    part[i] = half ? (float)((const _Float16 *)v_tile)[at + i] : ((const float *)v_tile)[at + i];
                x[v] = lane_load(part);
            }
        }
        PREFETCH(element(next_v, t * value_dim + first, half));
        if (!half) PREFETCH(element(next_v, t * value_dim + first + LANE_WIDTH, half));
        UNROLL
        for (int r = 0; r < rows; r++) {
            const lane_float weight = (lane_float)team->weights[r][t];
            UNROLL
            for (int v = 0; v < vectors; v++) sum[r][v] = lane_fma(weight, x[v], sum[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) value[v][r] = sum[r][v];
    }
}

/* `width`: value_dim rounded up to what the registers of this variant hold. */
WEIR_INLINE void value_tile(team_memory *team, row_block *block, const void *v_tile, const void *next_v, int64_t value_dim, const int width,
                            const int rows, const bool half, int tid)
{
    const int step = LANE_THREADS * LANE_WIDTH;
    UNROLL_DEVICE
    for (int n = 0; n < width / step; n += LANE_VECTORS) {
        const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH, left = value_dim - first;
        if (left >= LANE_VECTORS * LANE_WIDTH) {
            add_values(team, block->value + n, v_tile, next_v, value_dim, first, 0, LANE_VECTORS, true, rows, half);
        } else if (LANE_WIDTH > 1) {
            for (int v = 0; v < LANE_VECTORS && left > v * LANE_WIDTH; v++) {
                const int64_t rest = left - v * LANE_WIDTH, at = first + v * LANE_WIDTH;
                if (rest >= LANE_WIDTH)
                    add_values(team, block->value + n + v, v_tile, next_v, value_dim, at, 0, 1, true, rows, half);
                else
                    add_values(team, block->value + n + v, v_tile, next_v, value_dim, at, (int)rest, 1, false, rows, half);
            }
            break;
        }
    }
}
#pragma omp end declare target
