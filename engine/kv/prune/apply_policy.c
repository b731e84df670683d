#include "engine/kv/prune/apply_policy.h"

#include "engine/kv/policy/budget.h"
#include "engine/kv/prune/policy_run_internal.h"

typedef struct reading {
    const weir_policy_run *policy_run;
    const weir_kv_table *table;
    weir_kv_evictor *evictor;
    weir_error *error;
} reading;

static weir_status read_tile(void *context, const weir_policy_tile *tile)
{
    const reading *const r = context;
    weir_policy_tile stored = *tile;
    stored.layer = r->policy_run->layers[tile->layer];
    return weir_kv_read_rows(r->evictor, r->table, &stored, r->error);
}

static weir_status multiply(void *context, const weir_policy_products *products)
{
    const reading *const r = context;
    const weir_policy_shape *const shape = &r->policy_run->shape;
    const weir_rope_pairs pairs = { .n = shape->rotary_dim / 2,
                                    .is_interleaved = shape->is_interleaved };
    weir_policy_products stored = *products;
    stored.layer = r->policy_run->layers[products->layer];
    return weir_kv_multiply_rows(r->evictor, r->table, &stored, pairs, r->error);
}

static void count_rows(weir_policy_run *k, const weir_kv_table *table, int64_t *longest)
{
    *longest = 0;
    for (int64_t i = 0; i < policy_run_heads(k); i++) {
        k->n_rows[i] = policy_run_rows(k, table, i);
        if (k->n_rows[i] > *longest) *longest = k->n_rows[i];
    }
}

/* How the keys of the first rows are rotated. */
typedef struct rotation {
    const weir_policy_sequence *sequence;
    int64_t n_computed;
} rotation;

static void rotate(void *user, const weir_policy_tile *tile, int64_t n_keep)
{
    const rotation *const t = user;
    const weir_policy_run *const k = t->sequence->policy_run;
    weir_policy_tile own = *tile;
    own.layer = policy_run_layer(k, tile->layer);
    weir_policy_rotate_keys(k->policy, t->sequence->state, &own, t->n_computed - n_keep);
}

static weir_policy_phase phase_of(const weir_policy_sequence *sequence, int32_t n_computed)
{
    const int32_t prompt = weir_policy_run_prompt_end(sequence, n_computed - 1);
    if (n_computed < prompt) return WEIR_POLICY_IN_PROMPT;
    return sequence->n_applied < prompt ? WEIR_POLICY_PROMPT_END : WEIR_POLICY_DECODE;
}

static weir_status evict(
    weir_kv_sequence *sequence, weir_kv_evictor *evictor, const weir_kv_keep *keep,
    const weir_reclaim_hook *hook, weir_error *error
)
{
    weir_status status = weir_kv_evict(evictor, &sequence->table, keep, error);
    while (status == WEIR_EFULL && hook != NULL &&
           hook->reclaim(hook->user, sequence, weir_kv_evict_pages(evictor, &sequence->table, keep))
    )
        status = weir_kv_evict(evictor, &sequence->table, keep, error);
    return status;
}

weir_status weir_apply_policy(
    weir_kv_sequence *sequence, weir_kv_evictor *evictor, const weir_reclaim_hook *hook,
    weir_error *error
)
{
    weir_policy_sequence *const own = sequence->policy_run;
    weir_policy_run *const k = own->policy_run;
    const weir_policy_options *const options = weir_policy_options_of(k->policy);
    const weir_policy_phase phase = phase_of(own, sequence->n_computed);
    const int32_t prompt = policy_run_first_prompt(own);
    int64_t longest;
    if (sequence->n_computed == own->n_applied) return WEIR_OK;
    count_rows(k, &sequence->table, &longest);
    reading context = { k, &sequence->table, evictor, error };
    const weir_policy_rows rows = { .n_rows = k->n_rows,
                                    .next_position = sequence->n_computed,
                                    .n_new = sequence->n_computed - own->n_applied,
                                    .n_pinned = own->n_pinned,
                                    .n_prompt = prompt < sequence->n_computed
                                                    ? prompt
                                                    : sequence->n_computed,
                                    .read = read_tile,
                                    .multiply = multiply,
                                    .context = &context };
    const weir_policy_budget budget = { .rows = k->allowed,
                                        .is_shared = options->split == WEIR_SPLIT_ADAPTIVE,
                                        .floor = options->floor };
    weir_budget_fill(k->allowed, k->policy, k->budget, longest, k->whole);
    if (weir_policy_is_due(k->policy, own->state, &rows, &budget, phase)) {
        weir_policy_plan plan = { .keep = k->keep, .n_keep = k->n_keep };
        WEIR_TRY(
            weir_policy_plan_rows(k->policy, own->state, &rows, &budget, k->scratch, &plan, error)
        );
        WEIR_TRY(weir_policy_hold_keys(k->policy, own->state, &rows, error));
        rotation by = { own, sequence->n_computed };
        const weir_kv_keep keep = { .layers = k->layers,
                                    .n = k->shape.n_layers,
                                    .keep = k->keep,
                                    .stride = k->shape.max_rows,
                                    .n_keep = k->n_keep,
                                    .n_rotated = weir_policy_n_held(own->state),
                                    .rotate = rotate,
                                    .user = &by };
        WEIR_TRY(evict(sequence, evictor, &keep, hook, error));
        weir_policy_follow(k->policy, own->state, &plan);
    }
    own->n_applied = sequence->n_computed;
    return WEIR_OK;
}
