/* engine/kv/prune/policy_run_internal.h - internals of a policy run, for policy_run.c and
 * apply_policy.c. */
#pragma once
#include <stdatomic.h>

#include "engine/kv/prune/policy_run.h"

struct weir_policy_sequence {
    weir_policy_run *policy_run;
    weir_policy_state *state;
    float *logits, *plain;
    /* n_applied: computed tokens when the policy was applied last. */
    int32_t n_prompt, n_pinned, n_applied;
    int32_t n_turns;
    weir_turn turns[WEIR_TURNS]; /* [n_turns] finished turns */
};

/* The rows that pin_prompt pins: rows of later prompts are not contiguous. */
static inline int32_t policy_run_first_prompt(const weir_policy_sequence *sequence)
{
    return sequence->n_turns > 0 ? sequence->turns[0].prompt : sequence->n_prompt;
}

/* Index of a layer of the store among those of the policy. */
int64_t policy_run_layer(const weir_policy_run *k, int64_t layer);

struct weir_policy_run {
    weir_ledger *ledger;
    atomic_int n_holders;
    size_t bytes, policy_bytes; /* charged: all but the policy; the policy */
    weir_policy *policy;
    /* Its name and options, while it is opened; later `text`, in the memory after the struct. */
    weir_buffer print;
    char *text;
    int64_t budget;
    weir_policy_shape shape;
    const int32_t *layers;
    int32_t n_sequences, n_new;
    unsigned needs;

    /* In the memory after the struct; h: [layers, KV heads]. */
    int64_t *n_rows, *allowed, *n_keep; /* [h] */
    bool *whole; /* [h] */
    int32_t *keep; /* [h, max_rows] */
    void *scratch;
    float *mass, *below, *last; /* [query heads, max_rows] of one layer */
    weir_policy_sequence *sequences; /* [n_sequences] */
};

/* Heads in which the policy chooses rows, over all its layers; the rows of head number i, layer by
 * layer. */
static inline int64_t policy_run_heads(const weir_policy_run *k)
{
    return k->shape.n_layers * k->shape.n_kv_heads;
}
static inline int64_t policy_run_rows(
    const weir_policy_run *k, const weir_kv_table *table, int64_t i
)
{
    const int64_t heads = k->shape.n_kv_heads;
    return weir_kv_rows_at(table, table->geometry[k->layers[i / heads]].first_head + i % heads);
}
