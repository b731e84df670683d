/* kernels/omp/coda_decide.h - decides the slots of candidates and new rows: everything of a state
 * but its pages. kernels/ref/coda_exact.c and coda_summary.c specify the decisions; here candidates
 * of a slot are chained, so that a decision takes as many steps as there are candidates and slots.
 * One thread decides, as each decision depends on earlier ones; all threads make the lists. */
#pragma once
#include "kernels/omp/coda_route.h"

#pragma omp declare target
WEIR_INLINE void coda_count(const coda_work *work, weir_coda_count what, int64_t n)
{
    work->state.head->counts[what] += n;
}

WEIR_INLINE bool coda_passes(const coda_call *call, float gate, float least)
{
    return !call->layer->is_gated || gate >= least;
}

/* As weir_coda_use, but the contents change rows later. */
WEIR_INLINE int32_t use_slot(const coda_work *work, int64_t slot)
{
    int32_t *const rows = work->state.rows;
    const int32_t from = rows[slot];
    if (coda_is_used(work, slot)) return from;
    const int32_t to = work->state.head->n_rows++, other = work->owner[to];
    if (from == to) return to;
    rows[other] = from;
    rows[slot] = to;
    work->owner[from] = other;
    work->owner[to] = (int32_t)slot;
    work->swaps[work->plan->n_swaps++] = (coda_swap){ from, to };
    return to;
}

/* ---- exact bank ------------------------------------------------------------------------------ */
typedef struct coda_verdict {
    bool passes, is_novel, is_hit;
    int32_t best;
} coda_verdict;

WEIR_INLINE bool any_in_use(const coda_work *work, int64_t n_looked)
{
    for (int64_t i = 0; i < n_looked; i++)
        if (coda_is_used(work, work->exact.first_slot + i)) return true;
    return false;
}

WEIR_INLINE coda_verdict judge(const coda_call *call, const coda_work *work, int32_t c, bool any)
{
    const coda_bank *const bank = &work->exact;
    const float *const scores = bank->scores + c * bank->n_slots;
    float best = -INFINITY;
    coda_verdict is = { .passes =
                            coda_passes(call, work->candidates[c].gate, call->layer->exact_gate) };
    for (int32_t i = 0; i < work->state.head->n_open_exact; i++)
        if (coda_is_used(work, bank->first_slot + i) && scores[i] > best)
            best = scores[i], is.best = i;
    is.is_novel = !any || best < call->layer->novelty;
    is.is_hit = any && best >= call->layer->hit;
    return is;
}

WEIR_INLINE void open_exact(const coda_call *call, const coda_work *work, int32_t n)
{
    const weir_coda_layer *const layer = call->layer;
    weir_coda_head *const head = work->state.head;
    coda_count(
        work, WEIR_CODA_EXACT_OPENED,
        weir_coda_open_slots(
            layer, &head->n_open_exact, layer->least_exact, layer->n_exact, head->position, n
        )
    );
}

/* The first free open slot; if there is none, the least recently matched open slot, and
 * *is_full. */
WEIR_INLINE int32_t slot_for_new(const coda_work *work, bool *is_full)
{
    const int64_t *const used_at = work->state.used_at;
    int32_t oldest = 0;
    for (int32_t i = 0; i < work->state.head->n_open_exact; i++) {
        if (!coda_is_used(work, work->exact.first_slot + i)) return i;
        if (used_at[i] < used_at[oldest]) oldest = i;
    }
    *is_full = true;
    return oldest;
}

WEIR_INLINE void decide_exact_step(const coda_call *call, const coda_work *work)
{
    const coda_bank *const bank = &work->exact;
    const coda_verdict is = judge(call, work, 0, any_in_use(work, work->state.head->n_open_exact));
    bool is_full = false;
    const int32_t slot = is.is_novel ? slot_for_new(work, &is_full) : is.best;
    const bool writes = is.passes && (is.is_novel || (call->layer->refreshes && is.is_hit));
    coda_count(work, WEIR_CODA_GATED_OUT, !is.passes);
    coda_count(work, WEIR_CODA_HITS, is.is_hit);
    coda_count(work, WEIR_CODA_INSERTS, is.is_novel && is.passes);
    coda_count(work, WEIR_CODA_OVERWRITES, writes);
    bank->writes[0] = writes;
    bank->next[0] = -1;
    if (writes)
        bank->groups[(*bank->n_groups)++] =
            (coda_group){ .row = use_slot(work, bank->first_slot + slot) };
    if (is.passes) work->state.used_at[slot] = work->candidates[0].position;
    if (is.is_novel && is.passes && is_full) open_exact(call, work, 1);
}

/* Writes the slots of the bank that rows may be inserted in to `order`: free ones first, then by
 * time. Slots that are not open come first in the published package, and last here. */
WEIR_INLINE int64_t order_slots(const coda_call *call, const coda_work *work, int tid)
{
    const weir_coda_layer *const layer = call->layer;
    const int64_t n_open = work->state.head->n_open_exact, first = -((int64_t)1 << 62);
    const int64_t n = weir_min(*work->exact.n, n_open);
    for (int64_t i = tid; i < layer->n_exact; i += LANE_THREADS) {
        const int64_t closed = layer->is_compat ? first : -first;
        const int64_t open =
            coda_is_used(work, work->exact.first_slot + i) ? work->state.used_at[i] : first;
        work->choices[i] = (weir_coda_choice){ i >= n_open ? closed : open, (int32_t)i };
    }
    choose(call, work, layer->n_exact, n, true, tid);
    return n;
}

/* Decides where candidates go and which of them write; positions of those that do not count for
 * their slot become -1. */
WEIR_INLINE void judge_block(const coda_call *call, const coda_work *work, int64_t n_ordered)
{
    const coda_bank *const bank = &work->exact;
    const int64_t n_open = work->state.head->n_open_exact;
    const bool any = any_in_use(work, bank->n_slots);
    int64_t n_novel = 0;
    for (int32_t c = 0; c < *bank->n; c++) {
        const coda_verdict is = judge(call, work, c, any);
        const bool inserts = is.passes && is.is_novel && n_novel < n_open && n_ordered > 0;
        bank->slot_of[c] = inserts ? work->order[weir_min(n_novel, n_ordered - 1)] : is.best;
        bank->writes[c] = inserts || (is.passes && is.is_hit && call->layer->refreshes);
        n_novel += is.passes && is.is_novel;
        if (!is.passes || (is.is_novel && !inserts)) work->candidates[c].position = -1;
        coda_count(work, WEIR_CODA_GATED_OUT, !is.passes);
        coda_count(work, WEIR_CODA_HITS, is.is_hit && is.passes);
        coda_count(work, WEIR_CODA_INSERTS, inserts);
        coda_count(work, WEIR_CODA_OVERWRITES, bank->writes[c]);
    }
    const int64_t n_dropped = n_novel > n_open ? n_novel - n_open : 0;
    coda_count(work, WEIR_CODA_EXACT_FRUSTRATED, n_dropped);
    if (n_dropped > 0) open_exact(call, work, (int32_t)n_dropped);
}

/* Chains in ascending order of candidates, where slot_of is not negative. */
WEIR_INLINE void chain_candidates(const coda_bank *bank)
{
    for (int64_t i = 0; i < bank->n_slots; i++) bank->first[i] = -1;
    for (int32_t c = *bank->n - 1; c >= 0; c--) {
        const int32_t slot = bank->slot_of[c];
        if (slot < 0) continue;
        bank->next[c] = bank->first[slot];
        bank->first[slot] = c;
    }
}

/* A slot that was matched or filled gets the latest position of this write. */
WEIR_INLINE void settle_exact(const coda_work *work)
{
    const coda_bank *const bank = &work->exact;
    chain_candidates(bank);
    for (int64_t i = 0; i < bank->n_slots; i++) {
        int64_t latest = -1;
        bool is_written = false;
        for (int32_t c = bank->first[i]; c >= 0; c = bank->next[c]) {
            latest = weir_max(latest, work->candidates[c].position);
            is_written = is_written || bank->writes[c];
        }
        if (latest >= 0) work->state.used_at[i] = latest;
        if (is_written)
            bank->groups[(*bank->n_groups)++] = (coda_group
            ){ .row = use_slot(work, bank->first_slot + i), .first = bank->first[i] };
    }
}

/* ---- summary bank ---------------------------------------------------------------------------- */
WEIR_INLINE int32_t route(const coda_work *work, int32_t c)
{
    const float *const scores = work->summary.scores + c * work->summary.n_slots;
    float best = -INFINITY;
    int32_t at = 0;
    for (int32_t i = 0; i < work->state.head->n_open_summary; i++)
        if (scores[i] > best) best = scores[i], at = i;
    return at;
}

WEIR_INLINE void update_prototype(
    const coda_call *call, const coda_work *work, int64_t i, int32_t first, float total
)
{
    const coda_bank *const bank = &work->summary;
    const bool founds = call->layer->founds && !coda_is_used(work, bank->first_slot + i);
    coda_count(work, WEIR_CODA_UPDATES, 1);
    coda_count(work, WEIR_CODA_FOUNDED, founds);
    bank->groups[(*bank->n_groups)++] = (coda_group){ .row = use_slot(work, bank->first_slot + i),
                                                      .first = first,
                                                      .total = total,
                                                      .founds = founds };
}

/* Opens prototypes if all are used and rows come in. */
WEIR_INLINE void grow_summary(const coda_call *call, const coda_work *work)
{
    const weir_coda_layer *const layer = call->layer;
    weir_coda_head *const head = work->state.head;
    for (int64_t i = 0; i < head->n_open_summary; i++)
        if (!coda_is_used(work, work->summary.first_slot + i)) return;
    coda_count(work, WEIR_CODA_SUMMARY_FRUSTRATED, 1);
    coda_count(
        work, WEIR_CODA_SUMMARY_OPENED,
        weir_coda_open_slots(
            layer, &head->n_open_summary, layer->least_summary, layer->n_summary, head->position, 1
        )
    );
}

WEIR_INLINE void decide_summary(const coda_call *call, const coda_work *work)
{
    const coda_bank *const bank = &work->summary;
    for (int32_t c = 0; c < *bank->n; c++)
        bank->slot_of[c] = coda_passes(call, work->candidates[c].gate, call->layer->summary_gate)
                               ? route(work, c)
                               : -1;
    chain_candidates(bank);
    for (int64_t i = 0; i < bank->n_slots; i++) {
        float total = 0.0f;
        for (int32_t c = bank->first[i]; c >= 0; c = bank->next[c])
            total += work->candidates[c].gate;
        if (bank->first[i] >= 0 && (total > 0.0f || work->is_step))
            update_prototype(call, work, i, bank->first[i], total);
    }
    if (*bank->n_groups > 0) grow_summary(call, work);
}

/* ---- the ring -------------------------------------------------------------------------------- */
WEIR_INLINE void put_step(const coda_call *call, const coda_work *work, float gate)
{
    weir_coda_head *const head = work->state.head;
    int32_t slot = head->n_recent;
    if (work->plan->n_leaving == 0) {
        (void)use_slot(work, head->n_recent++);
    } else {
        slot = head->first_recent;
        head->first_recent = (int32_t)((slot + 1) % call->layer->window);
    }
    work->state.gates[slot] = gate;
    work->plan->first_put = slot;
    work->plan->n_puts = 1;
    work->plan->put_from = 0;
    head->position++;
}

/* The ring becomes the last rows of old and new, the oldest in slot 0. Rows that stay keep their
 * place in the pages; new rows take the places of those that left. */
WEIR_INLINE void refill(const coda_call *call, const coda_work *work, int tid)
{
    weir_coda_head *const head = work->state.head;
    int32_t *const rows = work->state.rows;
    const int64_t n_old = head->n_recent, n_leaving = work->plan->n_leaving,
                  n_kept = n_old + work->n_rows - n_leaving;
    const int64_t first_put = n_old > n_leaving ? n_old - n_leaving : 0;
    for (int64_t i = tid; i < n_old; i += LANE_THREADS) {
        const int64_t slot = (head->first_recent + i) % call->layer->window;
        work->ring[i] = rows[slot];
        work->ring_gates[i] = work->state.gates[slot];
    }
    if (tid == 0)
        for (int64_t slot = n_old; slot < n_kept; slot++) (void)use_slot(work, slot);
    TEAM_BARRIER
    for (int64_t slot = tid; slot < n_kept; slot += LANE_THREADS) {
        const int64_t i = n_leaving + slot; /* of old and new */
        if (i < n_old)
            rows[slot] = work->ring[i];
        else if (slot - first_put < weir_min(n_leaving, n_old))
            rows[slot] = work->ring[slot - first_put];
        work->state.gates[slot] = i < n_old ? work->ring_gates[i] : coda_gate_of(call, work, i);
    }
    TEAM_BARRIER
    if (tid != 0) return;
    *work->plan = (coda_plan){ .n_leaving = (int32_t)n_leaving,
                               .n_swaps = work->plan->n_swaps,
                               .first_put = (int32_t)first_put,
                               .n_puts = (int32_t)(n_kept - first_put),
                               .put_from = (int32_t)(n_leaving + first_put - n_old) };
    head->n_recent = (int32_t)n_kept;
    head->first_recent = 0;
    head->position += work->n_rows;
}

/* ---- a segment ------------------------------------------------------------------------------- */
WEIR_INLINE void decide_step(const coda_call *call, const coda_work *work)
{
    const float gate = call->layer->is_gated
                           ? weir_coda_gate(call->gates[work->first_row * call->gate_stride])
                           : 1.0f;
    coda_count(work, WEIR_CODA_EVICTIONS, work->plan->n_leaving);
    if (*work->exact.n > 0) decide_exact_step(call, work);
    if (*work->summary.n > 0) decide_summary(call, work);
    put_step(call, work, gate);
}

WEIR_INLINE void decide_block(const coda_call *call, const coda_work *work, int tid)
{
    const int64_t n_ordered = *work->exact.n > 0 ? order_slots(call, work, tid) : 0;
    if (tid == 0) {
        coda_count(work, WEIR_CODA_EVICTIONS, work->plan->n_leaving);
        if (*work->exact.n > 0) {
            judge_block(call, work, n_ordered);
            settle_exact(work);
        }
        if (*work->summary.n > 0) decide_summary(call, work);
    }
    TEAM_BARRIER
    refill(call, work, tid);
}

WEIR_INLINE void decide(const coda_call *call, const coda_work *work, int tid)
{
    if (*work->exact.n > 0) average_scores(call, &work->exact, tid);
    if (*work->summary.n > 0) average_scores(call, &work->summary, tid);
    if (tid == 0)
        work->plan->n_swaps = work->plan->n_puts = *work->exact.n_groups = *work->summary.n_groups =
            0;
    TEAM_BARRIER
    if (!work->is_step) {
        if (work->n_rows > 0) decide_block(call, work, tid);
    } else if (tid == 0) {
        decide_step(call, work);
    }
}
#pragma omp end declare target
