/* kernels/omp/coda_plan.h - one write into a bounded memory (kernels/abi/coda.h): what the regions
 * of the kernel pass to each other in the call's scratch.
 *
 *   choose   which rows leave the ring, and which of them the banks judge      per segment
 *   score    cosines of candidates with what a bank holds                      per segment, KV head
 *            and bank
 *   decide   slots for them; everything of the state but its pages             per segment
 *   apply    keys or values of one head, as decided                            per segment, KV head
 *            and side
 * Work is divided among teams by positions in these lists alone and sums have a fixed order, so
 * bits do not depend on the number of teams. */
#pragma once
#include "kernels/abi/coda_choice.h"
#include "kernels/abi/minmax.h"
#include "kernels/omp/kv_encode.h"

#include <math.h>

enum { CODA_DIM_MAX = 512 };

/* The library's sort would need a stack on a GPU thread. */
#define WEIR_CODA_SORTED_nvptx 1
#if WEIR_PASTE3(WEIR_CODA_, SORTED, WEIR_ISA)
enum { FINDS_AS_LIBRARY = 0 };
#else
enum { FINDS_AS_LIBRARY = 1 };
#endif

/* What all units of a call share. */
typedef struct coda_call {
    const float *k, *v, *gates;
    const weir_coda_layer *layer;
    const weir_coda_segment *segments;
    char *scratch;
    int64_t n_segments, k_stride, v_stride, gate_stride;
} coda_call;

typedef struct coda_candidate {
    int32_t from; /* row of the pages; ~i: the segment's new row i */
    float gate;
    int64_t position;
} coda_candidate;

typedef struct coda_swap {
    int32_t a, b; /* rows */
} coda_swap;

/* Candidates that go to one row: `first` and those after it in the bank's chains. */
typedef struct coda_group {
    int32_t row, first;
    float total; /* of their gates */
    bool founds;
} coda_group;

typedef struct coda_plan {
    int32_t n_leaving, n_swaps;
    /* Slots of the ring that take new rows, and the first of those rows. */
    int32_t first_put, n_puts, put_from;
} coda_plan;

typedef struct coda_bank {
    int64_t first_slot, n_slots;
    int32_t most; /* maximum number of candidates; 0: no bank */
    int32_t *n, *n_groups; /* candidates of this write */
    /* [KV head][most][n_slots]; in the end, head 0 has the means over the heads. */
    float *scores;
    int32_t *slot_of, *next; /* [most] */
    bool *writes; /* [most] */
    int32_t *first; /* [n_slots] of the chain of candidates that have this slot; -1: none */
    coda_group *groups; /* [most] */
} coda_bank;

/* A segment: its state, and its part of the scratch. */
typedef struct coda_work {
    weir_coda_state state;
    coda_plan *plan;
    coda_candidate *candidates; /* the first of them are for the banks */
    weir_coda_choice *choices; /* [most of: rows, slots of the exact bank] */
    int32_t *order; /* [candidates] of the choices, the least */
    int32_t *owner; /* [slots, rounded up to vectors] slot of a row; -1 after the last */
    coda_swap *swaps;
    int32_t *ring; /* [window] rows by time, before the write; blocks only */
    float *ring_gates;
    coda_bank exact, summary;
    int32_t n_rows;
    int64_t first_row;
    bool is_step;
    size_t bytes;
} coda_work;

#pragma omp declare target
/* Steps always offer the row that leaves, whatever blocks do. */
WEIR_INLINE int32_t
coda_most_candidates(int64_t n_slots, int32_t of_block, int32_t n_rows, bool is_step)
{
    if (n_slots == 0) return 0;
    return is_step ? 1 : of_block < n_rows ? of_block : n_rows;
}

/* The parts of segment `s`; base NULL: only the size. */
WEIR_INLINE coda_work
coda_work_of(const weir_coda_layer *layer, const weir_coda_segment *segment, char *base)
{
    coda_work work = { .n_rows = segment->n_rows,
                       .first_row = segment->first_row,
                       .is_step = segment->is_step };
    size_t at = 0;
    const int64_t n_slots = weir_coda_slots(layer), n_ring = work.is_step ? 0 : layer->window;
    work.state = weir_coda_view(layer, segment->state);
    work.exact.first_slot = layer->window;
    work.exact.n_slots = layer->n_exact;
    work.exact.most =
        coda_most_candidates(layer->n_exact, layer->exact_candidates, work.n_rows, work.is_step);
    work.summary.first_slot = layer->window + layer->n_exact;
    work.summary.n_slots = layer->n_summary;
    work.summary.most = coda_most_candidates(
        layer->n_summary, layer->summary_candidates, work.n_rows, work.is_step
    );
    const int64_t n_candidates = weir_max(work.exact.most, work.summary.most);
#define PLACE(field, type, count)                                                                  \
    do {                                                                                           \
        (field) = base ? (type *)(base + at) : NULL;                                               \
        at = (at + (size_t)(count) * sizeof(type) + 63) / 64 * 64;                                 \
    } while (0)
#define PLACE_BANK(bank)                                                                           \
    do {                                                                                           \
        PLACE(bank.n, int32_t, 1);                                                                 \
        PLACE(bank.n_groups, int32_t, 1);                                                          \
        PLACE(bank.scores, float, layer->n_kv_heads *bank.most *bank.n_slots);                     \
        PLACE(bank.slot_of, int32_t, bank.most);                                                   \
        PLACE(bank.next, int32_t, bank.most);                                                      \
        PLACE(bank.writes, bool, bank.most);                                                       \
        PLACE(bank.first, int32_t, bank.n_slots);                                                  \
        PLACE(bank.groups, coda_group, bank.most);                                                 \
    } while (0)
    PLACE(work.plan, coda_plan, 1);
    PLACE(work.candidates, coda_candidate, n_candidates);
    PLACE(
        work.choices, weir_coda_choice,
        n_candidates == 0 ? 0 : weir_max(work.n_rows, layer->n_exact)
    );
    PLACE(work.order, int32_t, n_candidates);
    PLACE(work.owner, int32_t, (n_slots + LANE_WIDTH - 1) / LANE_WIDTH * LANE_WIDTH);
    PLACE(
        work.swaps, coda_swap, weir_min(work.exact.most + work.summary.most + work.n_rows, n_slots)
    );
    PLACE(work.ring, int32_t, n_ring);
    PLACE(work.ring_gates, float, n_ring);
    PLACE_BANK(work.exact);
    PLACE_BANK(work.summary);
#undef PLACE_BANK
#undef PLACE
    work.bytes = at;
    return work;
}

/* ---- elements -------------------------------------------------------------------------------- */
/* Keys or values of one head of a row: element d at base + d * step elements. */
typedef struct coda_row {
    char *base;
    int64_t step;
} coda_row;

WEIR_INLINE int64_t coda_element_bytes(const weir_kv_format format)
{
    return format == WEIR_KV_F32 ? 4 : 2;
}

WEIR_INLINE char *coda_part(
    const coda_call *call, const coda_work *work, const weir_kv_format format, weir_kv_side side,
    int64_t head, int64_t row
)
{
    return weir_coda_page(&work->state, head, row) +
           (side == WEIR_KV_V
                ? WEIR_PAGE_TOKENS * call->layer->head_dim * coda_element_bytes(format)
                : 0);
}

WEIR_INLINE coda_row coda_page_row(
    const coda_call *call, const coda_work *work, const weir_kv_format format, weir_kv_side side,
    int64_t head, int64_t row
)
{
    char *const part = coda_part(call, work, format, side, head, row);
    const int64_t dim = call->layer->head_dim, token = row % WEIR_PAGE_TOKENS;
    const int64_t first = side == WEIR_KV_K ? weir_page_k(token, 0, dim) : token * dim;
    return (coda_row){ part + first * coda_element_bytes(format),
                       side == WEIR_KV_K ? WEIR_TILE_TOKENS : 1 };
}

/* New row i of the segment. */
WEIR_INLINE const float *coda_new_row(
    const coda_call *call, const coda_work *work, weir_kv_side side, int64_t head, int64_t i
)
{
    const int64_t t = work->first_row + i;
    return (side == WEIR_KV_K ? call->k + t * call->k_stride : call->v + t * call->v_stride) +
           head * call->layer->head_dim;
}

WEIR_INLINE float coda_element(const weir_kv_format format, const char *base, int64_t index)
{
    if (format == WEIR_KV_F32) return ((const float *)base)[index];
    return format == WEIR_KV_F16 ? lane_half(base + index * 2)
                                 : weir_bf16_to_f32(((const uint16_t *)base)[index]);
}

/* Dimension i of the low band. */
WEIR_INLINE int64_t coda_low_dim(const weir_coda_layer *layer, int64_t i)
{
    const int64_t half = layer->head_dim / 2, of_half = half - half / 2;
    if (layer->band == WEIR_CODA_UPPER_HALF) return half + i;
    return i < of_half ? half / 2 + i : half + half / 2 + i - of_half;
}

/* Row i of those that leave together: first of the ring, by time, then new ones. */
WEIR_INLINE float coda_gate_of(const coda_call *call, const coda_work *work, int64_t i)
{
    const weir_coda_head *const head = work->state.head;
    if (i < head->n_recent)
        return work->state.gates[(head->first_recent + i) % call->layer->window];
    if (!call->layer->is_gated) return 1.0f;
    return weir_coda_gate(call->gates[(work->first_row + i - head->n_recent) * call->gate_stride]);
}

WEIR_INLINE bool coda_is_used(const coda_work *work, int64_t slot)
{
    return work->state.rows[slot] < work->state.head->n_rows;
}
#pragma omp end declare target
