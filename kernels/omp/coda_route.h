/* kernels/omp/coda_route.h - chooses the candidates among rows that leave the ring, and computes
 * their similarity to the contents of the banks. A cosine is one chain per lane in ascending order:
 * a slot's row and the other candidates of the call do not change its bits. Cost: docs/kernels.md,
 * coda_write. */
#pragma once
#include "kernels/omp/coda_plan.h"

/* Memory that the lanes of a team share. */
typedef struct route_memory {
    /* Candidates: values [rows][dims, rounded up], keys [dims][rows]. */
    _Alignas(64) float asked[LANE_ROWS * CODA_DIM_MAX];
    float inverse[LANE_ROWS]; /* of their lengths */
} route_memory;

#pragma omp declare target

/* ---- choose ---------------------------------------------------------------------------------- */
/* Writes the n_selected smallest of the choices to `order`. One thread uses a heap; many threads
 * each count how many come before theirs. */
WEIR_INLINE void choose(
    const coda_call *call, const coda_work *work, int64_t n, int64_t n_selected, bool is_sorted,
    int tid
)
{
    weir_coda_choice *const all = work->choices;
    const bool finds = FINDS_AS_LIBRARY && call->layer->is_compat;
    TEAM_BARRIER
    if (LANE_THREADS > 1 && !finds) {
        for (int64_t i = tid; i < n; i += LANE_THREADS) {
            int64_t rank = 0;
            for (int64_t j = 0; j < n && rank < n_selected; j++)
                rank += weir_coda_is_before(all + j, all + i);
            if (rank < n_selected) work->order[rank] = all[i].index;
        }
    } else if (tid == 0) {
        if (finds)
            weir_coda_find(all, n, n_selected, is_sorted);
        else
            weir_coda_choose(all, n, n_selected);
        for (int64_t i = 0; i < n_selected; i++) work->order[i] = all[i].index;
    }
    TEAM_BARRIER
}

WEIR_INLINE void take_candidates(const coda_call *call, const coda_work *work, int64_t n, int tid)
{
    const weir_coda_head *const head = work->state.head;
    for (int64_t c = tid; c < n; c += LANE_THREADS) {
        const int32_t i = work->order[c];
        const int64_t slot = ((int64_t)head->first_recent + i) % call->layer->window;
        work->candidates[c] = (coda_candidate){ .from = i < head->n_recent ? work->state.rows[slot]
                                                                           : ~(i - head->n_recent),
                                                .gate = coda_gate_of(call, work, i),
                                                .position = head->position - head->n_recent + i };
    }
}

WEIR_INLINE void choose_candidates(const coda_call *call, const coda_work *work, int tid)
{
    const weir_coda_head *const head = work->state.head;
    const int64_t total = head->n_recent + work->n_rows,
                  n_leaving = total > call->layer->window ? total - call->layer->window : 0;
    const int64_t n_exact = weir_min(work->exact.most, n_leaving),
                  n_summary = weir_min(work->summary.most, n_leaving);
    const int64_t n_selected = weir_max(n_exact, n_summary), n_slots = work->state.n_slots;
    for (int64_t slot = tid; slot < n_slots; slot += LANE_THREADS)
        work->owner[work->state.rows[slot]] = (int32_t)slot;
    for (int64_t row = n_slots + tid; row % LANE_WIDTH != 0; row += LANE_THREADS)
        work->owner[row] = -1;
    if (tid == 0) {
        work->plan->n_leaving = (int32_t)n_leaving;
        *work->exact.n = (int32_t)n_exact;
        *work->summary.n = (int32_t)n_summary;
        if (n_selected > 0) work->order[0] = 0;
    }
    if (n_leaving > 1 && n_selected > 0) {
        for (int64_t i = tid; i < n_leaving; i += LANE_THREADS)
            work->choices[i] =
                (weir_coda_choice){ weir_coda_gate_key(coda_gate_of(call, work, i)), (int32_t)i };
        choose(call, work, n_leaving, n_selected, false, tid);
    } else {
        TEAM_BARRIER
    }
    take_candidates(call, work, n_selected, tid);
}

/* ---- score ----------------------------------------------------------------------------------- */
WEIR_INLINE float inverse_length(float squares)
{
    return 1.0f / (squares > 1e-12f ? sqrtf(squares) : 1e-6f);
}

/* Loads candidates [first, first + rows) of one head; those past n, and dims past the last of a
 * vector, are zero. */
WEIR_INLINE void stage_candidates(
    route_memory *team, const coda_call *call, const coda_work *work, weir_kv_side side,
    int64_t head, int64_t first, int64_t n, const weir_kv_format format, const int rows, int tid
)
{
    const weir_coda_layer *const layer = call->layer;
    const int64_t dims = side == WEIR_KV_K
                             ? weir_coda_low_dims(layer)
                             : (layer->head_dim + LANE_WIDTH - 1) / LANE_WIDTH * LANE_WIDTH;
    const int64_t row_step = side == WEIR_KV_K ? 1 : dims, dim_step = side == WEIR_KV_K ? rows : 1;
    TEAM_BARRIER /* the last block has been read */
        for (int r = 0; r < rows; r++)
    {
        const int32_t from = first + r < n ? work->candidates[first + r].from : -1;
        const bool is_there = first + r < n;
        const float *const fresh =
            coda_new_row(call, work, side, head, from < 0 && is_there ? ~from : 0);
        const coda_row old = coda_page_row(call, work, format, side, head, from < 0 ? 0 : from);
        for (int64_t i = tid; i < dims; i += LANE_THREADS) {
            const int64_t d = side == WEIR_KV_K ? coda_low_dim(layer, i) : i;
            float x = 0.0f;
            if (is_there && d < layer->head_dim)
                x = from < 0 ? fresh[d] : coda_element(format, old.base, d * old.step);
            team->asked[r * row_step + i * dim_step] = x;
        }
    }
    TEAM_BARRIER
    for (int r = tid; r < rows; r += LANE_THREADS) {
        float squares = 0.0f;
        LANES_SUM(squares)
        for (int64_t i = 0; i < dims; i++) {
            const float x = team->asked[r * row_step + i * dim_step];
            squares += x * x;
        }
        team->inverse[r] = inverse_length(squares);
    }
    TEAM_BARRIER
}

/* Dims [d, d + n) of a row of pages whose dims are contiguous; lanes past n are zero. */
WEIR_INLINE lane_float
load_dims(const weir_kv_format format, const char *base, int64_t d, int64_t n)
{
    if (n >= LANE_WIDTH) return kv_load_plain(format, base, d);
    float part[LANE_WIDTH] = { 0 };
    for (int64_t i = 0; i < n; i++) part[i] = coda_element(format, base, d + i);
    return lane_load(part);
}

WEIR_INLINE void score_values(
    route_memory *team, const coda_call *call, const coda_work *work, int64_t head, int64_t first,
    int64_t n, const weir_kv_format format, const int rows, int tid
)
{
    const coda_bank *const bank = &work->exact;
    const int64_t dim = call->layer->head_dim,
                  dims = (dim + LANE_WIDTH - 1) / LANE_WIDTH * LANE_WIDTH;
    stage_candidates(team, call, work, WEIR_KV_V, head, first, n, format, rows, tid);
    for (int64_t slot = tid; slot < work->state.head->n_open_exact; slot += LANE_THREADS) {
        lane_float sum[LANE_ROWS], squares = (lane_float)0.0f;
        if (!coda_is_used(work, bank->first_slot + slot)) continue;
        const coda_row held = coda_page_row(
            call, work, format, WEIR_KV_V, head, work->state.rows[bank->first_slot + slot]
        );
        UNROLL
        for (int r = 0; r < rows; r++) sum[r] = (lane_float)0.0f;
        for (int64_t d = 0; d < dim; d += LANE_WIDTH) {
            const lane_float x = load_dims(format, held.base, d, dim - d);
            squares = lane_fma(x, x, squares);
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r] = lane_fma(lane_load(team->asked + r * dims + d), x, sum[r]);
        }
        const float inverse = inverse_length(lane_sum_of(squares));
        UNROLL
        for (int r = 0; r < rows; r++)
            if (first + r < n)
                bank->scores[(head * bank->most + first + r) * bank->n_slots + slot] =
                    lane_sum_of(sum[r]) * inverse * team->inverse[r];
    }
}

/* Rows [row, row + LANE_WIDTH) of the pages with all staged candidates. */
WEIR_INLINE void score_key_rows(
    const route_memory *team, const coda_call *call, const coda_work *work, int64_t head,
    int64_t row, int64_t first, int64_t n, const weir_kv_format format, const int rows
)
{
    const coda_bank *const bank = &work->summary;
    const int64_t dims = weir_coda_low_dims(call->layer), n_open = work->state.head->n_open_summary;
    const coda_row held = coda_page_row(call, work, format, WEIR_KV_K, head, row);
    lane_float sum[LANE_ROWS], squares = (lane_float)0.0f;
    float inverse[LANE_WIDTH], score[LANE_WIDTH];
    UNROLL
    for (int r = 0; r < rows; r++) sum[r] = (lane_float)0.0f;
    for (int64_t i = 0; i < dims; i++) {
        const lane_float x =
            kv_load_plain(format, held.base, coda_low_dim(call->layer, i) * held.step);
        squares = lane_fma(x, x, squares);
        UNROLL
        for (int r = 0; r < rows; r++)
            sum[r] = lane_fma((lane_float)team->asked[i * rows + r], x, sum[r]);
    }
    lane_store(inverse, squares);
    for (int i = 0; i < LANE_WIDTH; i++) inverse[i] = inverse_length(inverse[i]);
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (first + r >= n) continue;
        lane_store(score, sum[r] * lane_load(inverse) * team->inverse[r]);
        for (int i = 0; i < LANE_WIDTH; i++) {
            const int64_t slot = work->owner[row + i] - bank->first_slot;
            if (slot >= 0 && slot < n_open)
                bank->scores[(head * bank->most + first + r) * bank->n_slots + slot] = score[i];
        }
    }
}

WEIR_INLINE void score_keys(
    route_memory *team, const coda_call *call, const coda_work *work, int64_t head, int64_t first,
    int64_t n, const weir_kv_format format, const int rows, int tid
)
{
    stage_candidates(team, call, work, WEIR_KV_K, head, first, n, format, rows, tid);
    for (int64_t row = tid * LANE_WIDTH; row < work->state.n_slots;
         row += LANE_THREADS * LANE_WIDTH) {
        int any = 0;
        for (int i = 0; i < LANE_WIDTH; i++)
            any |= work->owner[row + i] >= work->summary.first_slot;
        if (any) score_key_rows(team, call, work, head, row, first, n, format, rows);
    }
}

/* One bank, of one head. */
WEIR_INLINE void score_bank(
    route_memory *team, const coda_call *call, const coda_work *work, weir_kv_side side,
    int64_t head, const weir_kv_format format, int tid
)
{
    const int64_t n = side == WEIR_KV_V ? *work->exact.n : *work->summary.n;
    for (int64_t first = 0; first < n; first += LANE_ROWS) {
        if (side == WEIR_KV_V && n == 1)
            score_values(team, call, work, head, first, n, format, 1, tid);
        else if (side == WEIR_KV_V)
            score_values(team, call, work, head, first, n, format, LANE_ROWS, tid);
        else if (n == 1)
            score_keys(team, call, work, head, first, n, format, 1, tid);
        else
            score_keys(team, call, work, head, first, n, format, LANE_ROWS, tid);
    }
}

/* scores of head 0 = means over the heads, in ascending order of heads. */
WEIR_INLINE void average_scores(const coda_call *call, const coda_bank *bank, int tid)
{
    const int64_t n = *bank->n * bank->n_slots, n_heads = call->layer->n_kv_heads;
    float *const mean = bank->scores;
    for (int64_t h = 1; h < n_heads; h++) {
        const float *const of_head = bank->scores + h * bank->most * bank->n_slots;
        LANES
        for (int64_t i = tid; i < n; i += LANE_THREADS) mean[i] += of_head[i];
    }
    LANES
    for (int64_t i = tid; i < n; i += LANE_THREADS) mean[i] /= (float)n_heads;
    TEAM_BARRIER
}
#pragma omp end declare target
