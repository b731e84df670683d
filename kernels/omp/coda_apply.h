/* kernels/omp/coda_apply.h - writes keys or values of one head to their rows, as decided: first
 * rows that newly used slots take over, then the banks' updates, then the new rows of the ring,
 * which overwrite the rows that left.
 *
 * A thread has the same dims of every row, so only the low band needs barriers. V is contiguous, K
 * has an element in each of many lines, as in kv_write. Arithmetic is that of kernels/abi/coda.h
 * and of ref, to the bit: see weir_coda_blend. */
#pragma once
#include "kernels/omp/coda_plan.h"

#pragma omp declare target
#if defined(WEIR_GPU_LANES) || defined(WEIR_EMULATE_LANES)
typedef double lane_double;
#define WIDEN(x) ((double)(x))
#define NARROW(x) ((float)(x))
#else /* no functions: what would pass a vector wider than the target's registers depends on the   \
         ABI */
typedef double lane_double __attribute__((ext_vector_type(LANE_WIDTH)));
#define WIDEN(x) __builtin_convertvector(x, lane_double)
#define NARROW(x) __builtin_convertvector(x, lane_float)
#endif

/* One side of one head. Dims to write: all, or the low band. */
typedef struct apply_side {
    const coda_call *call;
    const coda_work *work;
    int64_t head, n_dims;
    weir_kv_side side;
    bool is_low;
} apply_side;

WEIR_INLINE int64_t dim_of(const apply_side *on, int64_t i)
{
    return on->is_low ? coda_low_dim(on->call->layer, i) : i;
}

/* Elements [i, i + LANE_WIDTH) of the dims to write; zero past the last. */
WEIR_INLINE lane_float
load_lanes(const apply_side *on, const weir_kv_format format, coda_row row, int64_t i)
{
    const int64_t n = on->n_dims - i;
    if (row.step == 1 && !on->is_low && n >= LANE_WIDTH) return kv_load_plain(format, row.base, i);
    float part[LANE_WIDTH] = { 0 };
    for (int64_t lane = 0; lane < LANE_WIDTH && lane < n; lane++)
        part[lane] = coda_element(format, row.base, dim_of(on, i + lane) * row.step);
    return lane_load(part);
}

WEIR_INLINE void store_lanes(
    const apply_side *on, const weir_kv_format format, coda_row row, int64_t i, lane_float x
)
{
    float part[LANE_WIDTH];
    lane_store(part, x);
    for (int64_t lane = 0; lane < LANE_WIDTH && i + lane < on->n_dims; lane++)
        weir_coda_store(format, row.base, dim_of(on, i + lane) * row.step, part[lane]);
}

WEIR_INLINE lane_float
load_candidate(const apply_side *on, const weir_kv_format format, int32_t c, int64_t i)
{
    const int32_t from = on->work->candidates[c].from;
    if (from >= 0)
        return load_lanes(
            on, format, coda_page_row(on->call, on->work, format, on->side, on->head, from), i
        );
    const coda_row fresh = { (char *)coda_new_row(on->call, on->work, on->side, on->head, ~from),
                             1 };
    return load_lanes(on, WEIR_KV_F32, fresh, i);
}

WEIR_INLINE void swap_rows(
    const apply_side *on, const weir_kv_format format, coda_swap swap, int tid
)
{
    const coda_row a = coda_page_row(on->call, on->work, format, on->side, on->head, swap.a);
    const coda_row b = coda_page_row(on->call, on->work, format, on->side, on->head, swap.b);
    for (int64_t i = tid * LANE_WIDTH; i < on->n_dims; i += LANE_THREADS * LANE_WIDTH) {
        const lane_float x = load_lanes(on, format, a, i), y = load_lanes(on, format, b, i);
        store_lanes(on, format, a, i, y);
        store_lanes(on, format, b, i, x);
    }
}

/* old + the sum of (new - old). */
WEIR_INLINE void write_exact(
    const apply_side *on, const weir_kv_format format, const coda_group *group, int tid
)
{
    const coda_bank *const bank = &on->work->exact;
    const coda_row row = coda_page_row(on->call, on->work, format, on->side, on->head, group->row);
    for (int64_t i = tid * LANE_WIDTH; i < on->n_dims; i += LANE_THREADS * LANE_WIDTH) {
        const lane_float old = load_lanes(on, format, row, i);
        lane_float sum = (lane_float)0.0f;
        for (int32_t c = group->first; c >= 0; c = bank->next[c])
            if (bank->writes[c]) sum += load_candidate(on, format, c, i) - old;
        store_lanes(on, format, row, i, old + sum);
    }
}

/* Blends towards the candidate of a step, or the gate-weighted mean of a block's. */
WEIR_INLINE void write_summary(
    const apply_side *on, const weir_kv_format format, const coda_group *group, int tid
)
{
    const weir_coda_layer *const layer = on->call->layer;
    const coda_row row = coda_page_row(on->call, on->work, format, on->side, on->head, group->row);
    const bool is_step = on->work->is_step;
    const float rate =
        group->founds ? 1.0f
                      : layer->rates[on->head] * (is_step && layer->is_gated ? group->total : 1.0f);
    const double scale = on->side == WEIR_KV_K ? (double)weir_coda_energy(layer) : 1.0,
                 total = group->total > 1e-6f ? group->total : 1e-6f;
    for (int64_t i = tid * LANE_WIDTH; i < on->n_dims; i += LANE_THREADS * LANE_WIDTH) {
        const lane_double old = WIDEN(load_lanes(on, format, row, i));
        lane_double sum = (lane_double)0.0;
        lane_float in = load_candidate(on, format, group->first, i);
        if (!is_step) {
            for (int32_t c = group->first; c >= 0; c = on->work->summary.next[c])
                sum += (lane_double)(double)on->work->candidates[c].gate *
                       WIDEN(load_candidate(on, format, c, i));
            in = NARROW(sum / (lane_double)total);
        }
        const lane_float step = NARROW((lane_double)scale * WIDEN(in) - old);
        store_lanes(on, format, row, i, NARROW(old + (lane_double)(double)rate * WIDEN(step)));
    }
}

WEIR_INLINE void put_rows(const apply_side *on, const weir_kv_format format, int tid)
{
    const coda_plan *const plan = on->work->plan;
    for (int64_t i = 0; i < plan->n_puts; i++) {
        const int32_t row = on->work->state.rows[plan->first_put + i];
        const kv_target to = { .coded =
                                   coda_part(on->call, on->work, format, on->side, on->head, row),
                               .dim = on->call->layer->head_dim,
                               .side = on->side };
        kv_write_plain(
            &to, format, coda_new_row(on->call, on->work, on->side, on->head, plan->put_from + i),
            row % WEIR_PAGE_TOKENS, tid
        );
    }
}

WEIR_INLINE void apply(
    const coda_call *call, const coda_work *work, weir_kv_side side, int64_t head,
    const weir_kv_format format, int tid
)
{
    const bool is_key = side == WEIR_KV_K;
    const apply_side all = { call, work, head, call->layer->head_dim, side, false };
    const apply_side of_summary = {
        call, work,  head, is_key ? weir_coda_low_dims(call->layer) : call->layer->head_dim,
        side, is_key
    };
    for (int32_t s = 0; s < work->plan->n_swaps; s++) swap_rows(&all, format, work->swaps[s], tid);
    for (int32_t g = 0; g < *work->exact.n_groups; g++)
        write_exact(&all, format, work->exact.groups + g, tid);
    // clang-format off
    TEAM_BARRIER /* the low band is divided among threads differently */
    for (int32_t g = 0; g < *work->summary.n_groups; g++)
        write_summary(&of_summary, format, work->summary.groups + g, tid);
    // clang-format on
    TEAM_BARRIER
    put_rows(&all, format, tid);
}
#pragma omp end declare target
