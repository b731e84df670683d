/* engine/kv/prune/policy_run.c - a policy's memory for a request, and what it observes of steps.
 * apply_policy.c applies its decisions. */
#include "engine/kv/prune/policy_run_internal.h"

#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/base/memory.h"
#include "engine/kv/policy/budget.h"

/* ---- opening --------------------------------------------------------------------------------- */
enum { ATTENTION = WEIR_POLICY_MASS | WEIR_POLICY_BELOW | WEIR_POLICY_LAST };

static bool lay_out(weir_policy_run *k, char *base, size_t *bytes)
{
    const weir_policy_shape *const s = &k->shape;
    weir_arrays l = { .base = base };
    (void)weir_arrays_place3(&l, sizeof *k, 1, 1, 1);
    k->n_rows = weir_arrays_place3(&l, sizeof(int64_t), s->n_layers, s->n_kv_heads, 1);
    k->allowed = weir_arrays_place3(&l, sizeof(int64_t), s->n_layers, s->n_kv_heads, 1);
    k->n_keep = weir_arrays_place3(&l, sizeof(int64_t), s->n_layers, s->n_kv_heads, 1);
    k->whole = weir_arrays_place3(&l, sizeof(bool), s->n_layers, s->n_kv_heads, 1);
    k->keep = weir_arrays_place3(&l, sizeof(int32_t), s->n_layers, s->n_kv_heads, s->max_rows);
    k->scratch = weir_arrays_place3(&l, 1, (int64_t)weir_policy_scratch_bytes(k->policy), 1, 1);
    k->mass = weir_arrays_place3(
        &l, sizeof(float), (k->needs & ATTENTION) != 0 ? s->n_heads : 0, s->max_rows, 1
    );
    k->below = weir_arrays_place3(
        &l, sizeof(float), (k->needs & WEIR_POLICY_BELOW) != 0 ? s->n_heads : 0, s->max_rows, 1
    );
    k->last = weir_arrays_place3(
        &l, sizeof(float), (k->needs & WEIR_POLICY_LAST) != 0 ? s->n_heads : 0, s->max_rows, 1
    );
    k->text = weir_arrays_place3(&l, 1, (int64_t)k->print.size + 1, 1, 1);
    k->sequences = weir_arrays_place3(&l, sizeof *k->sequences, k->n_sequences, 1, 1);
    for (int32_t i = 0; i < k->n_sequences; i++) {
        void *const state =
            weir_arrays_place3(&l, 1, (int64_t)weir_policy_state_bytes(k->policy), 1, 1);
        float *const logits = weir_arrays_place3(
            &l, sizeof(float), (k->needs & ATTENTION) != 0 ? s->n_heads : 0, s->max_rows, 1
        );
        float *const plain = weir_arrays_place3(
            &l, sizeof(float), (k->needs & WEIR_POLICY_PLAIN_QUERIES) != 0 ? k->n_new : 0,
            s->n_heads, s->key_dim
        );
        if (base != NULL)
            k->sequences[i] = (weir_policy_sequence
            ){ .policy_run = k, .state = state, .logits = logits, .plain = plain };
    }
    *bytes = l.bytes;
    return l.bytes != SIZE_MAX;
}

/* A prompt is held whole, plus the rows until the policy's next multiple of `every`, unless rows
 * are evicted during the prompt. Steps after it have one row. */
static int64_t peak_rows(const weir_policy *policy, const weir_policy_run_options *options)
{
    const weir_policy_options *const own = weir_policy_options_of(policy);
    const bool as_it_comes = own->in_prompt || options->n_prompt == 0;
    const int64_t prompt = own->pin_prompt ? options->n_prompt : 0,
                  first = prompt > options->n_pinned ? prompt : options->n_pinned;
    const int64_t after =
        weir_policy_peak_rows(policy, options->budget, first, as_it_comes ? options->n_new : 1);
    const int64_t whole = as_it_comes ? 0 : options->n_prompt + own->every + 1,
                  peak = after > whole ? after : whole;
    return peak < options->shape.max_rows ? peak : options->shape.max_rows;
}

/* Opens the policy with max_rows reduced to what it will see. */
static weir_status open_tight(
    weir_policy **out, const weir_policy_run_options *options, weir_error *error
)
{
    weir_policy_shape shape = options->shape;
    shape.n_pinned = options->n_pinned;
    WEIR_TRY(weir_policy_open(out, options->policy, &shape, options->calibration, error));
    weir_policy_tighten(*out, peak_rows(*out, options));
    return WEIR_OK;
}

/* Prints the policy's options without the path of the statistics, which does not affect how the
 * sequence is continued. */
static weir_status print_policy(weir_policy_run *plan, weir_error *error)
{
    weir_policy_options options = *weir_policy_options_of(plan->policy);
    memset(options.calibration, 0, sizeof options.calibration);
    if (weir_policy_options_print(&plan->print, &options) == WEIR_OK) return WEIR_OK;
    return weir_error_set(error, WEIR_ENOMEM, "KV policy: no memory to open it");
}

/* A policy is charged separately: the calling thread's tracker may be destroyed first. */
static weir_status open_policy(
    weir_policy_run *plan, const weir_policy_run_options *options, weir_error *error
)
{
    *plan = (weir_policy_run){ .budget = options->budget,
                               .shape = options->shape,
                               .layers = options->layers,
                               .n_sequences = options->n_sequences,
                               .n_new = options->n_new };
    weir_memory_tracker *const before = weir_memory_tracker_set(NULL);
    const weir_status status = open_tight(&plan->policy, options, error);
    (void)weir_memory_tracker_set(before);
    WEIR_TRY(status);
    WEIR_TRY(weir_policy_check_budget(plan->policy, options->budget, error));
    plan->needs = weir_policy_needs(plan->policy);
    plan->shape.max_rows = peak_rows(plan->policy, options);
    plan->policy_bytes = weir_policy_bytes(plan->policy);
    WEIR_TRY(print_policy(plan, error));
    if (lay_out(plan, NULL, &plan->bytes)) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "KV policy: its memory for %lld rows is too large",
        (long long)plan->shape.max_rows
    );
}

weir_status weir_policy_run_measure(
    weir_policy_run_size *size, const weir_policy_run_options *options, weir_error *error
)
{
    /* Bytes of a saved state in addition to the state's contents. */
    enum { FRAME = 64 };
    weir_policy_run plan;
    const weir_status status = open_policy(&plan, options, error);
    *size = (weir_policy_run_size){ .bytes = plan.bytes + plan.policy_bytes,
                                    .peak = plan.shape.max_rows };
    weir_buffer_free(&plan.print);
    if (status == WEIR_OK) size->saved_bytes = weir_policy_state_bytes(plan.policy) + FRAME;
    weir_policy_close(plan.policy);
    return status;
}

static weir_status settle(weir_policy_run **out, weir_policy_run *plan, weir_error *error)
{
    void *memory;
    WEIR_TRY(weir_ledger_reserve(
        plan->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, plan->policy_bytes, error
    ));
    const weir_status status =
        weir_ledger_alloc(plan->ledger, &memory, WEIR_ACCOUNT_HTTP, plan->bytes, error);
    if (status != WEIR_OK) {
        weir_ledger_return(plan->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, plan->policy_bytes);
        return status;
    }
    *out = memory;
    **out = *plan;
    atomic_init(&(*out)->n_holders, 1);
    (void)lay_out(*out, memory, &plan->bytes);
    memcpy((*out)->text, plan->print.data, plan->print.size + 1);
    (*out)->print = (weir_buffer){ 0 };
    /* Checked before. */
    return weir_budget_parse_heads(
        (*out)->whole, plan->shape.n_layers, plan->shape.n_kv_heads,
        weir_policy_options_of(plan->policy)->heads, error
    );
}

weir_status weir_policy_run_open(
    weir_policy_run **out, const weir_policy_run_options *options, weir_ledger *ledger,
    weir_error *error
)
{
    weir_policy_run plan;
    weir_status status = open_policy(&plan, options, error);
    plan.ledger = ledger;
    if (status == WEIR_OK) status = settle(out, &plan, error);
    weir_buffer_free(&plan.print);
    if (status != WEIR_OK) weir_policy_close(plan.policy);
    return status;
}

void weir_policy_run_close(weir_policy_run *policy_run)
{
    if (policy_run == NULL || atomic_fetch_sub(&policy_run->n_holders, 1) > 1) return;
    weir_ledger *const ledger = policy_run->ledger;
    const size_t bytes = policy_run->bytes;
    weir_policy_close(policy_run->policy);
    weir_ledger_return(ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP, policy_run->policy_bytes);
    weir_ledger_free(ledger, policy_run, WEIR_ACCOUNT_HTTP, bytes);
}

void weir_policy_run_hold(weir_policy_run *policy_run)
{
    atomic_fetch_add(&policy_run->n_holders, 1);
}

const weir_policy *weir_policy_run_policy(const weir_policy_run *policy_run)
{
    return policy_run->policy;
}
size_t weir_policy_run_bytes(const weir_policy_run *policy_run)
{
    return policy_run->bytes + policy_run->policy_bytes;
}
int64_t weir_policy_run_peak(const weir_policy_run *policy_run)
{
    return policy_run->shape.max_rows;
}

/* ---- a sequence ------------------------------------------------------------------------------ */
void weir_policy_run_restart(weir_policy_sequence *sequence)
{
    weir_policy_reset(sequence->policy_run->policy, sequence->state);
    sequence->n_applied = 0;
}

weir_policy_sequence *weir_policy_run_begin(
    weir_policy_run *policy_run, int32_t i, int32_t n_prompt, int32_t n_pinned
)
{
    WEIR_ASSERT(i >= 0 && i < policy_run->n_sequences);
    weir_policy_sequence *const sequence = &policy_run->sequences[i];
    sequence->n_prompt = n_prompt;
    sequence->n_pinned = n_pinned;
    sequence->n_turns = 0;
    weir_policy_run_restart(sequence);
    return sequence;
}

bool weir_policy_run_turn(weir_policy_sequence *sequence, int32_t n_computed, int32_t n_prompt)
{
    if (sequence->n_turns == WEIR_TURNS) return false;
    sequence->turns[sequence->n_turns++] =
        (weir_turn){ .prompt = sequence->n_prompt < n_computed ? sequence->n_prompt : n_computed,
                     .end = n_computed };
    sequence->n_prompt = n_prompt;
    return true;
}

int32_t weir_policy_run_prompt_end(const weir_policy_sequence *sequence, int32_t at)
{
    for (int32_t i = 0; i < sequence->n_turns; i++)
        if (at < sequence->turns[i].end) return sequence->turns[i].prompt;
    return sequence->n_prompt;
}

int32_t weir_policy_run_turn_end(const weir_policy_sequence *sequence)
{
    return sequence->n_turns > 0 ? sequence->turns[sequence->n_turns - 1].end : 0;
}

void weir_policy_run_fork(weir_policy_sequence *dst, const weir_policy_sequence *src)
{
    WEIR_ASSERT(
        weir_policy_state_bytes(dst->policy_run->policy) ==
        weir_policy_state_bytes(src->policy_run->policy)
    );
    memcpy(dst->state, src->state, weir_policy_state_bytes(src->policy_run->policy));
    dst->n_prompt = src->n_prompt;
    dst->n_pinned = src->n_pinned;
    dst->n_applied = src->n_applied;
    dst->n_turns = src->n_turns;
    memcpy(dst->turns, src->turns, (size_t)src->n_turns * sizeof *src->turns);
}

/* Sums over all queries. */
enum { SUMS = WEIR_POLICY_MASS | WEIR_POLICY_BELOW | WEIR_POLICY_PLAIN_QUERIES };

bool weir_policy_run_is_alike(const weir_policy_sequence *a, const weir_policy_sequence *b)
{
    weir_policy_history of_a, of_b;
    if (b == NULL) return false;
    weir_policy_history_of(&of_a, a);
    weir_policy_history_of(&of_b, b);
    return memcmp(of_a.policy, of_b.policy, sizeof of_a.policy) == 0 &&
           of_a.budget == of_b.budget && of_a.n_pinned == of_b.n_pinned;
}

bool weir_policy_run_observes_all(const weir_policy_sequence *sequence)
{
    const weir_policy_options *const options = weir_policy_options_of(sequence->policy_run->policy);
    const bool counts_steps = options->trigger == WEIR_TRIGGER_FORWARDS && options->every > 1;
    return (sequence->policy_run->needs & SUMS) != 0 || options->in_prompt || counts_steps;
}

int32_t weir_policy_run_unobserved(const weir_policy_sequence *sequence)
{
    const int64_t window = weir_policy_window(sequence->policy_run->policy),
                  n_prompt = policy_run_first_prompt(sequence);
    if (weir_policy_run_observes_all(sequence)) return 0;
    return n_prompt > window ? (int32_t)(n_prompt - window) : 0;
}

bool weir_policy_run_needs_turns(const weir_policy_sequence *sequence)
{
    return weir_policy_run_observes_all(sequence) ||
           weir_policy_options_of(sequence->policy_run->policy)->pin_prompt;
}

bool weir_policy_run_fits(
    const weir_policy_sequence *sequence, const weir_kv_table *table, int32_t n_rows
)
{
    const weir_policy_run *const k = sequence->policy_run;
    bool has_room = true;
    for (int64_t i = 0; has_room && i < policy_run_heads(k); i++)
        has_room = policy_run_rows(k, table, i) + n_rows <= k->shape.max_rows;
    return has_room;
}

/* ---- seeing ---------------------------------------------------------------------------------- */
/* With one query the mass serves for all three. */
weir_policy_run_view weir_policy_run_view_of(
    const weir_policy_sequence *sequence, int32_t n_queries
)
{
    const weir_policy_run *const k = sequence->policy_run;
    const bool wants_mass =
        n_queries == 1 ? (k->needs & ATTENTION) != 0 : (k->needs & WEIR_POLICY_MASS) != 0;
    return (weir_policy_run_view){ .logits = sequence->logits,
                                   .mass = wants_mass ? k->mass : NULL,
                                   .below = n_queries == 1 ? NULL : k->below,
                                   .last = n_queries == 1 ? NULL : k->last,
                                   .stride = k->shape.max_rows,
                                   .plain = sequence->plain };
}

int64_t policy_run_layer(const weir_policy_run *k, int64_t layer)
{
    int64_t i = 0;
    while (i < k->shape.n_layers && k->layers[i] < layer) i++;
    WEIR_ASSERT(i < k->shape.n_layers && k->layers[i] == layer);
    return i;
}

void weir_policy_run_observe(
    weir_policy_sequence *sequence, const weir_kv_table *table, int64_t layer,
    int32_t first_position, const weir_policy_queries *queries
)
{
    weir_policy_run *const k = sequence->policy_run;
    const weir_policy_shape *const s = &k->shape;
    int64_t *const n_rows = k->n_rows; /* of this layer */
    for (int64_t h = 0; h < s->n_kv_heads; h++)
        n_rows[h] = weir_kv_rows_at(table, table->geometry[layer].first_head + h) + queries->n;
    const weir_policy_observation seen = { .layer = policy_run_layer(k, layer),
                                           .n_queries = queries->n,
                                           .first_position = first_position,
                                           .n_rows = n_rows,
                                           .mass = k->mass,
                                           .below = queries->n == 1 ? k->mass : k->below,
                                           .last = queries->n == 1 ? k->mass : k->last,
                                           .stride = s->max_rows,
                                           .queries = *queries,
                                           .plain = { .data = sequence->plain,
                                                      .n = queries->n,
                                                      .head_stride = s->key_dim,
                                                      .row_stride = s->n_heads * s->key_dim } };
    weir_policy_observe(k->policy, sequence->state, &seen);
}

void weir_policy_run_advance(weir_policy_sequence *sequence, int32_t n_new, int32_t next_position)
{
    weir_policy_advance(sequence->policy_run->policy, sequence->state, n_new, next_position);
}

weir_policy_run_count weir_policy_run_count_of(
    const weir_policy_sequence *sequence, const weir_kv_table *table, int32_t n_computed
)
{
    const weir_policy_run *const k = sequence->policy_run;
    const int64_t n = policy_run_heads(k);
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) live += policy_run_rows(k, table, i);
    live = (live + n / 2) / n;
    return (weir_policy_run_count){ .live = live, .evicted = n_computed - live };
}

/* ---- between turns --------------------------------------------------------------------------- */
void weir_policy_history_of(weir_policy_history *past, const weir_policy_sequence *sequence)
{
    *past = (weir_policy_history){ .budget = sequence->policy_run->budget,
                                   .n_pinned = sequence->n_pinned,
                                   .n_turns = sequence->n_turns };
    weir_policy_digest(sequence->policy_run->policy, past->policy);
    memcpy(past->turns, sequence->turns, (size_t)sequence->n_turns * sizeof *sequence->turns);
}

const char *weir_policy_run_policy_text(const weir_policy_sequence *sequence)
{
    return sequence->policy_run->text;
}

size_t weir_policy_run_saved_bytes(const weir_policy_sequence *sequence)
{
    return weir_policy_saved_bytes(sequence->policy_run->policy, sequence->state);
}

void weir_policy_run_save(const weir_policy_sequence *sequence, void *state)
{
    weir_policy_write(sequence->policy_run->policy, sequence->state, state);
}

weir_status weir_policy_run_load(
    weir_policy_sequence *sequence, const weir_policy_history *past, int32_t n_computed,
    const weir_kv_table *table, const void *state, size_t n, weir_error *error
)
{
    weir_policy_run *const k = sequence->policy_run;
    for (int64_t i = 0; i < policy_run_heads(k); i++) k->n_rows[i] = policy_run_rows(k, table, i);
    WEIR_TRY(weir_policy_load(k->policy, sequence->state, state, n, error));
    if (!weir_policy_fits(k->policy, sequence->state, k->n_rows, n_computed)) {
        weir_policy_reset(k->policy, sequence->state);
        return weir_error_set(
            error, WEIR_EFORMAT,
            "the KV policy's state is of a sequence with other rows; start the sequence again"
        );
    }
    sequence->n_turns = past->n_turns;
    memcpy(sequence->turns, past->turns, (size_t)past->n_turns * sizeof *past->turns);
    sequence->n_applied = n_computed;
    return WEIR_OK;
}
