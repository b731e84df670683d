/* kernels/ref/coda_summary.c - the summary bank of CoDA-GQA-L: prototypes that rows are blended
 * into, by the low band of their keys, whose phases hardly differ between positions. Unused
 * prototypes take part in routing with what they hold. */
#include "kernels/ref/coda_bank.h"

static int64_t route(const coda_bank *bank, const float *k)
{
    float best = -INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < bank->state.head->n_open_summary; i++) {
        weir_coda_read(
            bank->layer, &bank->state, WEIR_KV_K, bank->state.rows[coda_summary_slot(bank, i)],
            bank->old_k
        );
        const float score = coda_cosine(bank->layer, k, bank->old_k, true);
        if (score > best) best = score, at = i;
    }
    return at;
}

/* Blends K and V [n_values] into a prototype; `pace` multiplies the rates of the heads, 1 for a new
 * one. */
static void blend(coda_bank *bank, int64_t i, const float *k, const float *v, float pace)
{
    const weir_coda_layer *const layer = bank->layer;
    const int64_t slot = coda_summary_slot(bank, i);
    const bool founds = layer->founds && !weir_coda_is_used(&bank->state, slot);
    const float energy = weir_coda_energy(layer);
    coda_count(bank, WEIR_CODA_FOUNDED, founds);
    weir_coda_use(layer, &bank->state, slot);
    const int32_t row = bank->state.rows[slot];
    weir_coda_read(layer, &bank->state, WEIR_KV_K, row, bank->old_k);
    weir_coda_read(layer, &bank->state, WEIR_KV_V, row, bank->old_v);
    for (int64_t x = 0; x < bank->n_values; x++) {
        const float rate = founds ? 1.0f : layer->rates[x / layer->head_dim] * pace;
        if (weir_coda_is_low(layer, x % layer->head_dim))
            bank->old_k[x] = weir_coda_blend(bank->old_k[x], k[x], energy, rate);
        bank->old_v[x] = weir_coda_blend(bank->old_v[x], v[x], 1.0f, rate);
    }
    weir_coda_put(layer, &bank->state, WEIR_KV_K, row, bank->old_k);
    weir_coda_put(layer, &bank->state, WEIR_KV_V, row, bank->old_v);
}

/* Opens prototypes if all are used and rows come in. */
static void grow(coda_bank *bank)
{
    weir_coda_head *const head = bank->state.head;
    for (int64_t i = 0; i < head->n_open_summary; i++)
        if (!weir_coda_is_used(&bank->state, coda_summary_slot(bank, i))) return;
    coda_count(bank, WEIR_CODA_SUMMARY_FRUSTRATED, 1);
    coda_count(
        bank, WEIR_CODA_SUMMARY_OPENED,
        weir_coda_open_slots(
            bank->layer, &head->n_open_summary, bank->layer->least_summary, bank->layer->n_summary,
            head->position, 1
        )
    );
}

void coda_summary_step(coda_bank *bank)
{
    const float gate = bank->summary.gates[0];
    if (!coda_passes(bank, gate, bank->layer->summary_gate)) return;
    coda_count(bank, WEIR_CODA_UPDATES, 1);
    blend(
        bank, route(bank, bank->summary.k), bank->summary.k, bank->summary.v,
        bank->layer->is_gated ? gate : 1.0f
    );
    grow(bank);
}

/* Each prototype moves once, towards the mean of what was routed to it, weighted by gates. */
void coda_summary_block(coda_bank *bank)
{
    const coda_candidates *const in = &bank->summary;
    bool any = false;
    for (int64_t c = 0; c < in->n; c++)
        bank->slot_of[c] = (int32_t)route(bank, in->k + c * bank->n_values);
    for (int64_t i = 0; i < bank->layer->n_summary; i++) {
        float total = 0.0f;
        for (int64_t x = 0; x < bank->n_values; x++) bank->mean_k[x] = bank->mean_v[x] = 0.0;
        for (int64_t c = 0; c < in->n; c++) {
            if (bank->slot_of[c] != i ||
                !coda_passes(bank, in->gates[c], bank->layer->summary_gate))
                continue;
            total += in->gates[c];
            for (int64_t x = 0; x < bank->n_values; x++) {
                bank->mean_k[x] += (double)in->gates[c] * (double)in->k[c * bank->n_values + x];
                bank->mean_v[x] += (double)in->gates[c] * (double)in->v[c * bank->n_values + x];
            }
        }
        if (!(total > 0.0f)) continue;
        any = true;
        for (int64_t x = 0; x < bank->n_values; x++) {
            bank->sum_k[x] = (float)(bank->mean_k[x] / (double)fmaxf(total, 1e-6f));
            bank->sum_v[x] = (float)(bank->mean_v[x] / (double)fmaxf(total, 1e-6f));
        }
        coda_count(bank, WEIR_CODA_UPDATES, 1);
        blend(bank, i, bank->sum_k, bank->sum_v, 1.0f);
    }
    if (any) grow(bank);
}
