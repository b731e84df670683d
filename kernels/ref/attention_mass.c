/* kernels/ref/attention_mass.c - the attention mass of each slot: a slot and a query head at a
 * time, over rows in ascending order. A key is decoded once for rows of its page and once for
 * later ones. */
#include <math.h>

#include "kernels/ref/kv_rows.h"
#include "kernels/ref/row.h"

enum { DIM_MAX = WEIR_KV_DIM_MAX };

/* K of a slot as read by rows of its own page (is_own) or by later ones. */
static void load_key(
    const weir_attention_mass_args *args, const weir_kv_segment *rows, int64_t table, int64_t slot,
    bool is_own, float *key
)
{
    const ref_pages pages = REF_KEY_PAGES(args);
    const weir_kv_part part = ref_part(pages, rows, table, slot / WEIR_PAGE_TOKENS, WEIR_KV_K);
    ref_read_row(&part, slot % WEIR_PAGE_TOKENS, is_own, key);
}

static double logit(const weir_attention_mass_args *args, const float *q, const float *key)
{
    double sum = 0.0;
    for (int64_t d = 0; d < args->key_dim; d++) sum += (double)q[d] * (double)key[d];
    sum *= (double)args->scale;
    const double cap = (double)args->softcap;
    return cap > 0.0 ? cap * tanh(sum / cap) : sum;
}

static void observe(
    const weir_attention_mass_args *args, const weir_attention_mass_segment *segment, int64_t head,
    int64_t slot
)
{
    const weir_kv_segment *const rows = &segment->rows;
    const int64_t group = args->n_heads / args->n_kv_heads,
                  own_head = head - rows->first_head * group,
                  at = own_head * segment->stride + slot;
    const bool kept = weir_attention_mass_from_logits(segment);
    double mass = 0.0, below = 0.0, last = 0.0;
    float keys[2][DIM_MAX];
    bool is_done[2] = { false, false };
    for (int64_t t = slot > rows->n_past ? slot - rows->n_past : 0; t < rows->n_rows; t++) {
        const int64_t row = rows->first_row + t, own = rows->n_past + t;
        const bool is_own = own / WEIR_PAGE_TOKENS == slot / WEIR_PAGE_TOKENS;
        if (!kept && !is_done[is_own])
            load_key(args, rows, own_head / group, slot, is_own, keys[is_own]);
        is_done[is_own] = true;
        const double score =
            kept ? (double)rows->logits[own_head * rows->logits_stride + slot]
                 : logit(
                       args, args->q + row * args->q_stride + head * args->q_head_stride,
                       keys[is_own]
                   );
        last = exp(score - (double)args->lse[row * args->n_heads + head]);
        mass += last;
        if (own > 0 && last * (double)(own + 1) < 1.0) below += 1.0;
    }
    if (segment->mass) segment->mass[at] = (float)mass;
    if (segment->below) segment->below[at] = (float)below;
    if (segment->last) segment->last[at] = (float)last;
}

static weir_status weir_k_ref_attention_mass(
    const weir_kernel_context *context, const void *op_args
)
{
    const weir_attention_mass_args *const args = op_args;
    (void)context;
    if (!weir_attention_mass_is_sound(args)) return WEIR_EINVAL;
    if (weir_kv_keys_reject(args->k_format, args->sinks, args->key_dim)) return WEIR_EUNSUPPORTED;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_attention_mass_segment *const segment = args->segments + s;
        const int64_t group = args->n_heads / args->n_kv_heads,
                      first = segment->rows.first_head * group;
        const int64_t end = first + weir_kv_segment_heads(&segment->rows, args->n_kv_heads) * group;
        if (segment->rows.n_rows <= 0) continue;
        for (int64_t head = first; head < end; head++)
            for (int64_t slot = segment->first_slot; slot < weir_attention_mass_end(segment);
                 slot++)
                observe(args, segment, head, slot);
    }
    return WEIR_OK;
}

WEIR_REF_ROW(attention_mass, WEIR_OP_ATTENTION_MASS)
