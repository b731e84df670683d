/* kernels/ref/coda_exact.c - the exact bank of CoDA-GQA-L: unmodified rows whose values are unlike
 * those in it. The least recently matched row is replaced. All scores are with the bank before the
 * write: candidates of a block are not compared with each other. */
#include "kernels/ref/coda_bank.h"

typedef struct verdict {
    bool passes, is_novel, is_hit;
    int64_t best; /* slot of the bank */
} verdict;

/* `n_looked`: number of slots checked for being in use. */
static verdict judge(const coda_bank *bank, const float *v, float gate, int64_t n_looked)
{
    const weir_coda_layer *const layer = bank->layer;
    float best = -INFINITY;
    bool any = false;
    verdict out = { .passes = coda_passes(bank, gate, layer->exact_gate) };
    for (int64_t i = 0; i < layer->n_exact; i++) {
        const int64_t slot = coda_exact_slot(bank, i);
        const bool is_used = weir_coda_is_used(&bank->state, slot),
                   is_open = i < bank->state.head->n_open_exact;
        any = any || (is_used && i < n_looked);
        if (!is_used || !is_open) continue;
        weir_coda_read(layer, &bank->state, WEIR_KV_V, bank->state.rows[slot], bank->old_v);
        const float score = coda_cosine(layer, v, bank->old_v, false);
        if (score > best) best = score, out.best = i;
    }
    out.is_novel = !any || best < layer->novelty;
    out.is_hit = any && best >= layer->hit;
    return out;
}

/* old + (new - old): the result of a write, in the published code and here; several writes to one
 * slot add up. */
static void blend_in(coda_bank *bank, int64_t i)
{
    const weir_coda_layer *const layer = bank->layer;
    const int64_t slot = coda_exact_slot(bank, i);
    weir_coda_use(layer, &bank->state, slot);
    const int32_t row = bank->state.rows[slot];
    weir_coda_read(layer, &bank->state, WEIR_KV_K, row, bank->old_k);
    weir_coda_read(layer, &bank->state, WEIR_KV_V, row, bank->old_v);
    for (int64_t x = 0; x < bank->n_values; x++) {
        float k = 0.0f, v = 0.0f;
        for (int64_t c = 0; c < bank->exact.n; c++) {
            if (!bank->writes[c] || bank->slot_of[c] != i) continue;
            k += bank->exact.k[c * bank->n_values + x] - bank->old_k[x];
            v += bank->exact.v[c * bank->n_values + x] - bank->old_v[x];
        }
        bank->sum_k[x] = bank->old_k[x] + k;
        bank->sum_v[x] = bank->old_v[x] + v;
    }
    weir_coda_put(layer, &bank->state, WEIR_KV_K, row, bank->sum_k);
    weir_coda_put(layer, &bank->state, WEIR_KV_V, row, bank->sum_v);
}

static void open_slots(coda_bank *bank, int32_t n)
{
    weir_coda_head *const head = bank->state.head;
    coda_count(
        bank, WEIR_CODA_EXACT_OPENED,
        weir_coda_open_slots(
            bank->layer, &head->n_open_exact, bank->layer->least_exact, bank->layer->n_exact,
            head->position, n
        )
    );
}

/* ---- one row --------------------------------------------------------------------------------- */
/* The first free open slot; if there is none, the least recently matched open slot, and
 * *is_full. */
static int64_t slot_for_new(const coda_bank *bank, bool *is_full)
{
    int64_t oldest = 0;
    for (int64_t i = 0; i < bank->state.head->n_open_exact; i++) {
        if (!weir_coda_is_used(&bank->state, coda_exact_slot(bank, i))) return i;
        if (bank->state.used_at[i] < bank->state.used_at[oldest]) oldest = i;
    }
    *is_full = true;
    return oldest;
}

void coda_exact_step(coda_bank *bank)
{
    const verdict is =
        judge(bank, bank->exact.v, bank->exact.gates[0], bank->state.head->n_open_exact);
    bool is_full = false;
    const int64_t slot = is.is_novel ? slot_for_new(bank, &is_full) : is.best;
    const bool writes = is.passes && (is.is_novel || (bank->layer->refreshes && is.is_hit));
    coda_count(bank, WEIR_CODA_GATED_OUT, !is.passes);
    coda_count(bank, WEIR_CODA_HITS, is.is_hit);
    coda_count(bank, WEIR_CODA_INSERTS, is.is_novel && is.passes);
    coda_count(bank, WEIR_CODA_OVERWRITES, writes);
    bank->slot_of[0] = (int32_t)slot;
    bank->writes[0] = writes;
    if (writes) blend_in(bank, slot);
    if (is.passes) bank->state.used_at[slot] = bank->exact.positions[0];
    if (is.is_novel && is.passes && is_full) open_slots(bank, 1);
}

/* ---- a block --------------------------------------------------------------------------------- */
/* Free slots first, then by time. Slots that are not open come first in the published package, and
 * last here. */
static int64_t order_slots(coda_bank *bank, int64_t n)
{
    const weir_coda_layer *const layer = bank->layer;
    const int64_t n_open = bank->state.head->n_open_exact, first = -((int64_t)1 << 62);
    for (int64_t i = 0; i < layer->n_exact; i++) {
        const bool is_used = weir_coda_is_used(&bank->state, coda_exact_slot(bank, i));
        const int64_t closed = layer->is_compat ? first : -first;
        bank->choices[i] = (weir_coda_choice){ i >= n_open ? closed
                                               : is_used   ? bank->state.used_at[i]
                                                           : first,
                                               (int32_t)i };
    }
    n = n < n_open ? n : n_open;
    if (layer->is_compat)
        weir_coda_find(bank->choices, layer->n_exact, n, true);
    else
        weir_coda_choose(bank->choices, layer->n_exact, n);
    return n;
}

/* For a slot that was matched or filled: its latest position in this write counts. */
static void touch(coda_bank *bank, bool *is_touched, int64_t slot, int64_t position)
{
    int64_t *const at = &bank->state.used_at[slot];
    *at = *is_touched && *at > position ? *at : position;
    *is_touched = true;
}

void coda_exact_block(coda_bank *bank)
{
    const int64_t n_open = bank->state.head->n_open_exact,
                  n_ordered = order_slots(bank, bank->exact.n);
    int64_t n_novel = 0;
    for (int64_t c = 0; c < bank->exact.n; c++) {
        const verdict is = judge(
            bank, bank->exact.v + c * bank->n_values, bank->exact.gates[c], bank->layer->n_exact
        );
        const bool inserts = is.passes && is.is_novel && n_novel < n_open && n_ordered > 0;
        const int64_t rank = n_novel < n_ordered ? n_novel : n_ordered - 1;
        n_novel += is.passes && is.is_novel;
        bank->slot_of[c] = (int32_t)(inserts ? bank->choices[rank].index : is.best);
        bank->writes[c] = inserts || (is.passes && is.is_hit && bank->layer->refreshes);
        bank->exact.positions[c] =
            is.passes && (!is.is_novel || inserts) ? bank->exact.positions[c] : -1; /* that touch */
        coda_count(bank, WEIR_CODA_GATED_OUT, !is.passes);
        coda_count(bank, WEIR_CODA_HITS, is.is_hit && is.passes);
        coda_count(bank, WEIR_CODA_INSERTS, inserts);
        coda_count(bank, WEIR_CODA_OVERWRITES, bank->writes[c]);
    }
    for (int64_t i = 0; i < bank->layer->n_exact; i++) {
        bool is_touched = false, is_written = false;
        for (int64_t c = 0; c < bank->exact.n; c++) {
            if (bank->slot_of[c] != i) continue;
            if (bank->exact.positions[c] >= 0)
                touch(bank, &is_touched, i, bank->exact.positions[c]);
            is_written = is_written || bank->writes[c];
        }
        if (is_written) blend_in(bank, i);
    }
    const int64_t n_dropped = n_novel > n_open ? n_novel - n_open : 0;
    coda_count(bank, WEIR_CODA_EXACT_FRUSTRATED, n_dropped);
    if (n_dropped > 0) open_slots(bank, (int32_t)n_dropped);
}
