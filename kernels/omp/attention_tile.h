/* kernels/omp/attention_tile.h - register blocks of query rows for one tile of 32 positions: their
 * state and weights. Scores are in attention_scores.h, values in attention_values.h.
 *
 * The innermost part of attention.c, which defines units and the order of tiles. The format is
 * switched per tile (K) and per 32 dims of a tile (V), outside the loops that multiply: one
 * predicted branch per thousands of products. */
#pragma once
#include "kernels/omp/attention_formats.h"
#include "kernels/omp/tanh.h"

/* The builds that multiply with tile registers, and compute values that alias keys only. */
#define WEIR_HAS_TILES_amx 1
#define WEIR_HAS_TILES_amx_emulated 1
#if WEIR_PASTE3(WEIR_HAS_, TILES, WEIR_ISA)
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

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
#if READS_CODED
    /* Weights of one block times the scales of V's groups. */
    _Alignas(64) float scaled[LANE_ROWS][TILE][VALUE_GROUPS];
#endif
    float maxima[LANE_ROWS][POSITION_THREADS], sums[LANE_ROWS][POSITION_THREADS];
    float decay[UNIT_BLOCKS][LANE_ROWS], maximum[LANE_ROWS];
#if READS_CODED
    /* attention_rotate.h; 32 dims of K that alias values, which no rotated formats do */
    _Alignas(64) float rotated[TILE * WEIR_KV_TURBO_DIM_MAX];
#endif
#if HAS_TILES
    struct latent_memory *latents;
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

/* Caps scores; cap: in their units. */
WEIR_INLINE void cap_scores(row_block *blocks, float cap, int n_blocks, const int rows)
{
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++) {
        UNROLL
        for (int r = 0; r < rows / ROW_THREADS; r++) {
            UNROLL
            for (int v = 0; v < TILE_VECTORS; v++)
                blocks[b].score[r][v] = lane_tanh(blocks[b].score[r][v] / cap) * cap;
        }
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

#pragma omp end declare target
