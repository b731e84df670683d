#include "engine/kv/prune/apply_policy.h"

#include "engine/kv/policy/budget.h"
#include "engine/kv/prune/policy_run_internal.h"

static weir_status read_tile(void *context, const weir_policy_tile *tile)
{
    const weir_application *const a = context;
    weir_policy_tile stored = *tile;
    stored.layer = a->own->policy_run->layers[tile->layer];
    return weir_kv_read_rows(a->evictor, a->table, &stored, a->error);
}

static weir_status multiply(void *context, const weir_policy_products *products)
{
    const weir_application *const a = context;
    const weir_policy_run *const k = a->own->policy_run;
    const weir_rope_pairs pairs = { .n = k->shape.rotary_dim / 2,
                                    .is_interleaved = k->shape.is_interleaved };
    weir_policy_products stored = *products;
    stored.layer = k->layers[products->layer];
    return weir_kv_multiply_rows(a->evictor, a->table, &stored, pairs, a->error);
}

/* Returns the rows of the longest head. */
static int64_t count_rows(weir_policy_run *k, const weir_kv_table *table)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < policy_run_heads(k); i++) {
        k->n_rows[i] = policy_run_rows(k, table, i);
        if (k->n_rows[i] > longest) longest = k->n_rows[i];
    }
    return longest;
}

/* How the keys of the first rows are rotated. */
static void rotate(void *user, const weir_policy_tile *tile, int64_t n_keep)
{
    const weir_application *const a = user;
    const weir_policy_run *const k = a->own->policy_run;
    weir_policy_tile own = *tile;
    own.layer = policy_run_layer(k, tile->layer);
    weir_policy_rotate_keys(k->policy, a->own->state, &own, a->n_computed - n_keep);
}

static weir_policy_phase phase_of(const weir_policy_sequence *sequence, int32_t n_computed)
{
    const int32_t prompt = weir_policy_run_prompt_end(sequence, n_computed - 1);
    if (n_computed < prompt) return WEIR_POLICY_IN_PROMPT;
    return sequence->n_applied < prompt ? WEIR_POLICY_PROMPT_END : WEIR_POLICY_DECODE;
}

bool weir_policy_is_applied(const weir_kv_sequence *sequence)
{
    return sequence->policy_run == NULL || sequence->policy_run->n_applied == sequence->n_computed;
}

bool weir_application_begin(weir_application *a, const weir_kv_sequence *sequence)
{
    weir_policy_sequence *const own = sequence->policy_run;
    if (weir_policy_is_applied(sequence)) return false;
    weir_policy_run *const k = own->policy_run;
    const weir_policy_options *const options = weir_policy_options_of(k->policy);
    const weir_policy_phase phase = phase_of(own, sequence->n_computed);
    const int32_t prompt = policy_run_first_prompt(own), n = sequence->n_computed;
    *a = (weir_application){ .own = own,
                             .n_computed = n,
                             .rows = { .n_rows = k->n_rows,
                                       .next_position = n,
                                       .n_new = n - own->n_applied,
                                       .n_pinned = own->n_pinned,
                                       .n_prompt = prompt < n ? prompt : n,
                                       .read = read_tile,
                                       .multiply = multiply,
                                       .context = a },
                             .budget = { .rows = k->allowed,
                                         .is_shared = options->split == WEIR_SPLIT_ADAPTIVE,
                                         .floor = options->floor },
                             .plan = { .keep = k->keep, .n_keep = k->n_keep } };
    weir_budget_fill(k->allowed, k->policy, k->budget, count_rows(k, &sequence->table), k->whole);
    if (weir_policy_is_due(k->policy, own->state, &a->rows, &a->budget, phase)) return true;
    own->n_applied = n;
    return false;
}

weir_status weir_application_plan(
    weir_application *a, weir_kv_evictor *evictor, const weir_kv_table *table, weir_error *error
)
{
    const weir_policy_run *const k = a->own->policy_run;
    a->table = table;
    a->evictor = evictor;
    a->error = error;
    WEIR_TRY(weir_policy_plan_rows(
        k->policy, a->own->state, &a->rows, &a->budget, k->scratch, &a->plan, error
    ));
    WEIR_TRY(weir_policy_hold_keys(k->policy, a->own->state, &a->rows, error));
    a->keep = (weir_kv_keep){ .layers = k->layers,
                              .n = k->shape.n_layers,
                              .keep = k->keep,
                              .stride = k->shape.max_rows,
                              .n_keep = k->n_keep,
                              .n_rotated = weir_policy_n_held(a->own->state),
                              .rotate = rotate,
                              .user = a };
    return WEIR_OK;
}

void weir_application_end(weir_application *a)
{
    weir_policy_follow(a->own->policy_run->policy, a->own->state, &a->plan);
    a->own->n_applied = a->n_computed;
}

weir_status weir_apply_policy(
    weir_kv_sequence *sequence, weir_kv_evictor *evictor, const weir_reclaim_hook *hook,
    weir_error *error
)
{
    weir_kv_table *const table = &sequence->table;
    weir_application a;
    if (!weir_application_begin(&a, sequence)) return WEIR_OK;
    WEIR_TRY(weir_application_plan(&a, evictor, table, error));
    weir_status status = weir_kv_evict(evictor, table, &a.keep, error);
    while (status == WEIR_EFULL && hook != NULL &&
           hook->reclaim(hook->user, sequence, weir_kv_evict_pages(evictor, table, &a.keep)))
        status = weir_kv_evict(evictor, table, &a.keep, error);
    if (status == WEIR_OK) weir_application_end(&a);
    return status;
}
