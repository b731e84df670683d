/* kernels/omp/attention_merge.h - joins splits in ascending order: in registers, from
 * split_partials in the scratch, and across calls.
 *
 * A partial, and the partials of a row, is maximum, sum, value[value_dim] over the positions that
 * it covers: sum of 2^(score - maximum), with and without V. All joins use the same expressions in
 * the same order: a row has the same bits whether its splits were walked by one unit, by separate
 * units, or in several calls. */
#pragma once
#include "kernels/omp/attention_tile.h"

#pragma omp declare target
WEIR_INLINE float exp2_of(float x) { return lane_first(lane_exp2((lane_float)x)); }

/* Natural log-sum-exp of (maximum, sum). */
WEIR_INLINE float lse_of(float maximum, float sum) { return maximum * 0.69314718f + lane_log(sum); }

/* a * x + b * y, fused in the same way wherever it is inlined: the two places that merge must agree
 * to the bit. */
WEIR_INLINE lane_float weighted(lane_float a, float x, lane_float b, float y)
{
    return lane_fma(a, (lane_float)x, b * y);
}

/* The weights of the two sides when (maximum, sum) of the next split joins the total. Returns false
 * if there is nothing to join. */
WEIR_INLINE bool merge_weights(
    float *total_maximum, float *total_sum, float maximum, float sum, float *keep, float *add
)
{
    if (maximum == NOTHING) return false;
    const float highest = *total_maximum > maximum ? *total_maximum : maximum;
    *keep = exp2_of(*total_maximum - highest); /* 0 if the total is empty */
    *add = exp2_of(maximum - highest);
    *total_sum = lane_first(weighted((lane_float)*total_sum, *keep, (lane_float)sum, *add));
    *total_maximum = highest;
    return true;
}

/* Sum of each row over the lanes of the tile, in team memory: sums[row][0 .. POSITION_THREADS), and
 * maximum[row]. */
WEIR_INLINE void publish_block(team_memory *team, const row_block *block, const int rows, int tid)
{
    const int thread_rows = rows / ROW_THREADS;
    UNROLL
    for (int r = 0; r < thread_rows; r++) {
        lane_float sum = block->sum[r][0];
        UNROLL
        for (int v = 1; v < TILE_VECTORS; v++) sum += block->sum[r][v];
        team->sums[row_of(r, tid)][tid % POSITION_THREADS] = lane_sum_of(sum);
        if (tid % POSITION_THREADS == 0) team->maximum[row_of(r, tid)] = block->maximum[r];
    }
    TEAM_BARRIER
}

WEIR_INLINE float block_sum(const team_memory *team, int row)
{
    float sum = 0.0f;
    for (int t = 0; t < POSITION_THREADS; t++) sum += team->sums[row][t];
    return sum;
}

WEIR_INLINE int64_t partial_floats(int64_t value_dim) { return PARTIAL_HEAD + value_dim; }

WEIR_INLINE void store_partial(
    const team_memory *team, const row_block *block, float *const *partial, int64_t value_dim,
    const int width, const int rows, int tid
)
{
    UNROLL_DEVICE
    for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
        const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
        if (first >= value_dim) break;
        UNROLL
        for (int r = 0; r < rows; r++)
            if (partial[r])
                lane_store_part(
                    partial[r] + PARTIAL_HEAD + first, block->value[n][r], value_dim - first
                );
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (tid != 0 || !partial[r]) continue;
        partial[r][0] = team->maximum[r];
        partial[r][1] = block_sum(team, r);
    }
}

WEIR_INLINE void merge_block(
    const team_memory *team, const row_block *block, row_total *total, int64_t value_dim,
    const int width, const int rows
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        float keep, add;
        if (!merge_weights(
                &total->maximum[r], &total->sum[r], team->maximum[r], block_sum(team, r), &keep,
                &add
            ))
            continue;
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
            if (n * LANE_THREADS * LANE_WIDTH >= value_dim) break;
            total->value[n][r] = total->started[r]
                                     ? weighted(total->value[n][r], keep, block->value[n][r], add)
                                     : block->value[n][r];
        }
        total->started[r] = true;
    }
}

/* ---- across calls ---------------------------------------------------------------------------- */
/* Loads the totals of a block from the partials of its rows; NULL: empty. */
WEIR_INLINE void load_totals(
    row_total *total, float *const *partials, int64_t value_dim, const int width, const int rows,
    int tid
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        total->maximum[r] = partials[r] ? partials[r][0] : NOTHING;
        total->sum[r] = partials[r] ? partials[r][1] : 0.0f;
        total->started[r] = partials[r] && partials[r][0] != NOTHING;
        if (!partials[r]) continue;
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= value_dim) break;
            total->value[n][r] =
                lane_load_part(partials[r] + PARTIAL_HEAD + first, value_dim - first);
        }
    }
}

/* Call after all threads have read the partials. Values of empty totals are zero. */
WEIR_INLINE void store_totals(
    const row_total *total, float *const *partials, int64_t value_dim, const int width,
    const int rows, int tid
)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (!partials[r]) continue;
        if (tid == 0) partials[r][0] = total->maximum[r], partials[r][1] = total->sum[r];
        UNROLL_DEVICE
        for (int n = 0; n < width / (LANE_THREADS * LANE_WIDTH); n++) {
            const int64_t first = (n * LANE_THREADS + tid) * LANE_WIDTH;
            if (first >= value_dim) break;
            lane_store_part(
                partials[r] + PARTIAL_HEAD + first,
                total->started[r] ? total->value[n][r] : (lane_float)0.0f, value_dim - first
            );
        }
    }
}

/* Rotates out[t,h,:] back for turbo's V: D H out, in place. */
WEIR_INLINE void rotate_back(float *out, int64_t value_dim, int tid)
{
    TEAM_BARRIER
    kv_hadamard(out, value_dim, 1, tid);
    for (int64_t d = tid; d < value_dim; d += LANE_THREADS) out[d] *= weir_kv_sign(WEIR_KV_V, d);
}
#pragma omp end declare target
