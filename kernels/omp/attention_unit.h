/* kernels/omp/attention_unit.h - one unit of attention.c: its queries, the parts of pages that its
 * rows read, the tiles of a split, and the destinations of its results. */
#pragma once
#include "kernels/omp/attention_merge.h"
#include "kernels/omp/attention_plan.h"
#include "kernels/omp/attention_rotate.h"
#include "kernels/omp/attention_scores.h"
#include "kernels/omp/attention_values.h"
#if HAS_TILES
#include "kernels/omp/attention_latent.h"
#endif

#pragma omp declare target
typedef struct attention_unit {
    const weir_kv_segment *segment;
    void *const *pages, *const *unsealed_pages; /* of this KV head                            */
    int64_t head, table; /* KV head, of the op and of the segment      */
    int64_t n_query_heads; /* of the segment                             */
    int64_t first_row, n_rows; /* query rows of this unit     */
    int32_t first_split, n_splits; /* to walk                     */
    float *split_partials; /* of this segment; NULL: merges and writes the output */
    int32_t plan_first_split, plan_n_splits;
    /* Of this KV head's first query head; NULL if the unit has none of the segment's last rows,
     * or logits are not needed. */
    float *logits;
} attention_unit;

/* Returns NULL past the end of the unit. */
WEIR_INLINE const float *query_of(
    const attention_call *call, const attention_unit *unit, int64_t row
)
{
    const int64_t token = unit->segment->first_row + row / call->group,
                  head = unit->head * call->group + row % call->group;
    return row < unit->first_row + unit->n_rows
               ? call->q + token * call->q_stride + head * call->q_head_stride
               : NULL;
}

/* Copies a block's query rows to team memory, [key_dim][rows], scaled, and rotated for turbo's
 * K; rows past the end are zero. */
WEIR_INLINE void stage_queries(
    float *q, const attention_call *call, const attention_unit *unit, int64_t first, const int rows,
    int tid
)
{
    const bool turbo = is_rotated(call, WEIR_KV_K);
    for (int r = 0; r < rows; r++) {
        const float *const query = query_of(call, unit, first + r);
        for (int64_t d = tid; d < call->key_dim; d += LANE_THREADS)
            q[d * rows + r] =
                query ? query[d] * (turbo ? weir_kv_sign(WEIR_KV_K, d) * call->scale : call->scale)
                      : 0.0f;
    }
    if (!turbo) return;
    TEAM_BARRIER
    kv_hadamard(q, call->key_dim, rows, tid);
}

WEIR_INLINE void reset_block(
    row_block *block, const attention_call *call, const attention_unit *unit, int64_t first,
    const int width, const int rows, int tid
)
{
    UNROLL
    for (int r = 0; r < rows / ROW_THREADS; r++) {
        block->last[r] = unit->segment->n_past + (int32_t)((first + row_of(r, tid)) / call->group);
        block->maximum[r] = NOTHING;
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) block->sum[r][v] = (lane_float)0.0f;
    }
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
        if (n * LANE_THREADS * LANE_WIDTH >= call->value_dim) break;
        UNROLL
        for (int r = 0; r < rows; r++) block->value[n][r] = (lane_float)0.0f;
    }
}

/* The K or V part that rows of this unit read at `position`; for values that alias keys K's. */
WEIR_INLINE tile_source source_of(
    const attention_call *call, const attention_unit *unit, int32_t position, weir_kv_side side
)
{
    const int32_t page = position / WEIR_PAGE_TOKENS,
                  first_unsealed = unit->segment->n_past / WEIR_PAGE_TOKENS;
    const weir_kv_pair pair = pair_of(call, page);
    const bool is_key = side == WEIR_KV_K || has_aliases(call);
    const weir_kv_format format = is_key ? pair.k : pair.v;
    const int32_t own =
        (unit->segment->n_past + (int32_t)(unit->first_row / call->group)) / WEIR_PAGE_TOKENS;
    const bool unsealed = READS_CODED && page == own && weir_kv_seals_pages(format);
    const int64_t v_part = unsealed ? weir_kv_unsealed_v_part(pair.k, call->key_dim)
                                    : weir_kv_v_part(pair.k, call->key_dim);
    const char *const base =
        unsealed ? unit->unsealed_pages[page - first_unsealed] : unit->pages[page];
    return (tile_source){ .part = base && !is_key ? base + v_part : base,
                          .token = position % WEIR_PAGE_TOKENS,
                          .format = unsealed ? WEIR_KV_F16 : format };
}

/* The first position of a split that any row of the unit sees, rounded down to a tile. */
WEIR_INLINE int32_t begin_of(const attention_call *call, const attention_unit *unit, int32_t split)
{
    const int32_t first_own = unit->segment->n_past + (int32_t)(unit->first_row / call->group);
    const int32_t first_seen = first_own >= call->window ? first_own - call->window + 1 : 0;
    return first_seen > split * SPLIT ? first_seen / TILE * TILE : split * SPLIT;
}

/* What to prefetch during the two halves of the work on a tile. */
typedef struct tiles_ahead {
    tile_source k, v; /* while scores are computed; while values are added */
} tiles_ahead;

/* Plain K and V of equal widths: a page is four runs of equal length, prefetched in memory
 * order, one to three ahead: hardware read-ahead joins them (84 % of read bandwidth; 78 % in
 * order of use). Coded pages are bound by decoding: prefetches the next tiles. */
WEIR_INLINE tiles_ahead ahead_of(
    const attention_call *call, const tile_source *k, const tile_source *v,
    const attention_unit *unit, int32_t position
)
{
    const tile_source next_k = source_of(call, unit, position, WEIR_KV_K);
    const bool is_even = call->k_format == call->v_format && call->key_dim == call->value_dim &&
                         !has_aliases(call) && weir_kv_scheme_of(call->k_format) == WEIR_KV_PLAIN;
    if (!next_k.part)
        return (tiles_ahead){ *k, *v }; /* A page that another call reads is not prefetched. */
    if (!is_even) return (tiles_ahead){ next_k, source_of(call, unit, position, WEIR_KV_V) };
    const tile_source run =
        v->token < TILE
            ? *v
            : next_k; /* first tile: the V of its page; second: the K of the next page */
    return (tiles_ahead){ { run.part, 0, run.format }, { run.part, TILE, run.format } };
}

/* Stores scores of the block's rows 0 .. n_heads - 1 from `first_row` on as logits in natural
 * units; n: of the tile's positions. Not inlined: without logits the cost is a branch per tile. */
WEIR_NOINLINE void keep_logits(
    float *logits, int64_t stride, const row_block *block, int64_t first_row, int64_t n_heads,
    int64_t n, int rows, int tid
)
{
    for (int r = 0; r < rows / ROW_THREADS; r++) {
        const int64_t head = row_of(r, tid) - first_row;
        if (head < 0 || head >= n_heads) continue;
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int64_t at = token_of(v, tid);
            if (at < n)
                lane_store_part(
                    logits + head * stride + at, block->score[r][v] * 0.69314718f, n - at
                );
        }
    }
}

/* Stores logits of the segment's last token, for its rows that belong to the unit. */
WEIR_INLINE void keep_unit_logits(
    const attention_call *call, const attention_unit *unit, const row_block *blocks,
    int32_t position, int n_blocks, const int rows, int tid
)
{
    const int64_t last = (int64_t)(unit->segment->n_rows - 1) * call->group -
                         unit->first_row; /* Among the unit's rows, if not before them. */
    const int64_t n = unit->segment->n_past + unit->segment->n_rows - position;
    for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
        keep_logits(
            unit->logits + position, unit->segment->logits_stride, blocks + b, last - b * rows,
            call->group, n, rows, tid
        );
}

/* All blocks of a unit over the tiles of one split that any of its rows sees. The last tile
 * prefetches the first one of what comes next; otherwise every split would start by waiting for
 * memory. */
WEIR_INLINE void walk_split(
    team_memory *team, row_block *blocks, const attention_call *call, const attention_unit *unit,
    int32_t split, const attention_unit *next, int n_blocks, const int width, const int rows,
    int tid
)
{
    const int32_t last_own =
        unit->segment->n_past + (int32_t)((unit->first_row + unit->n_rows - 1) / call->group);
    const int32_t end = last_own < split * SPLIT + SPLIT - 1 ? last_own + 1 : split * SPLIT + SPLIT;
    const bool goes_on = split + 1 < unit->first_split + unit->n_splits;
    (void)width;
    for (int32_t position = begin_of(call, unit, split); position < end; position += TILE) {
        const bool stays = position + TILE < end || goes_on;
        tile_source k = source_of(call, unit, position, WEIR_KV_K),
                    v = source_of(call, unit, position, WEIR_KV_V);
        const tiles_ahead ahead = ahead_of(
            call, &k, &v, stays ? unit : next,
            stays ? position + TILE : begin_of(call, next, next->first_split)
        );
        if (is_rotated(call, WEIR_KV_K)) use_rotated_keys(team, &k, call->key_dim, tid);
#if HAS_TILES
        score_latents(team->latents, blocks, &k, &ahead.k, call->key_dim, n_blocks);
#else
        score_tile(team, blocks, &k, &ahead.k, call->key_dim, n_blocks, rows, tid);
#endif
        if (call->softcap > 0.0f) cap_scores(blocks, call->softcap, n_blocks, rows);
        if (READS_CODED && unit->logits)
            keep_unit_logits(call, unit, blocks, position, n_blocks, rows, tid);
        for (int b = 0; b < UNIT_BLOCKS && b < n_blocks; b++)
            weigh_tile(
                team, blocks + b, b, has_aliases(call) ? NULL : weight_scales(&v, call->value_dim),
                position, call->window, rows, tid
            );
        if (is_rotated(call, WEIR_KV_V)) use_rotated_values(team, &v, call->value_dim, tid);
#if HAS_TILES
        add_latents(team->latents, team, call->value_dim, n_blocks);
#else
        value_tile(
            team, blocks, &v, &ahead.v, has_aliases(call) ? call->key_dim : 0, call->value_dim,
            n_blocks, width, rows, tid
        );
#endif
    }
}

/* Where the split_partials of a block's rows are; NULL for rows past the end. */
WEIR_INLINE void partial_rows(
    float **partial, const attention_call *call, const attention_unit *unit, int64_t first,
    int32_t split, const int rows
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t row = first + r, token = row / call->group,
                      head = unit->table * call->group + row % call->group;
        const int64_t index = (token * unit->n_query_heads + head) * unit->plan_n_splits + split -
                              unit->plan_first_split;
        partial[r] = row < unit->first_row + unit->n_rows
                         ? unit->split_partials + index * partial_floats(call->value_dim)
                         : NULL;
    }
}

/* The partials of a block's rows; NULL for rows past the end. */
WEIR_INLINE void partials_of_rows(
    float **partials, const attention_call *call, const attention_unit *unit, int64_t first,
    const int rows
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t row = first + r, token = unit->segment->first_row + row / call->group,
                      head = unit->head * call->group + row % call->group;
        partials[r] =
            row < unit->first_row + unit->n_rows
                ? call->partials + (token * call->n_heads + head) * partial_floats(call->value_dim)
                : NULL;
    }
}

/* The sink logit of a query head joins maximum and sum of a row. Returns the factor of its
 * values. */
WEIR_INLINE float close_row(const attention_call *call, int64_t head, float *maximum, float *sum)
{
    float keep = 1.0f, add;
    if (call->sink_logits)
        (void)merge_weights(maximum, sum, call->sink_logits[head] * 1.44269504f, 1.0f, &keep, &add);
    return keep / *sum;
}

WEIR_INLINE void write_block(
    const attention_call *call, const attention_unit *unit, row_total *total, int64_t first_row,
    const int width, const int rows, int tid
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        const int64_t row = first_row + r;
        if (row >= unit->first_row + unit->n_rows) break;
        const int64_t token = unit->segment->first_row + row / call->group,
                      head = unit->head * call->group + row % call->group;
        float *const out = call->out + token * call->out_stride + head * call->value_dim;
        const float factor = close_row(call, head, &total->maximum[r], &total->sum[r]);
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= call->value_dim) break;
            lane_store_part(out + first, total->value[n][r] * factor, call->value_dim - first);
        }
        if (call->lse && tid == 0)
            call->lse[token * call->n_heads + head] = lse_of(total->maximum[r], total->sum[r]);
        if (is_rotated(call, WEIR_KV_V)) rotate_back(out, call->value_dim, tid);
    }
}
#pragma omp end declare target
