/* engine/kv/prune/policy_run.h - a policy at work: what the steps of a request show it, and the rows that
 * it lets go between them.
 *
 *   keeping  a policy, its budget and memory for one plan: of a request, whose sequences share it
 *   text     what the policy remembers of one sequence, and where a step leaves what it has to see
 * A step: weir_policy_run_observe for each layer, weir_policy_run_advance when it is committed,
 * weir_apply_policy (engine/kv/prune/apply_policy.h) before the next one. A sequence without a text keeps
 * every row. Rows are counted in each of the layers that keep rows of the whole text. */
#pragma once
#include "engine/kv/policy/policy.h"
#include "engine/kv/pool/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_policy_run weir_policy_run;
typedef struct weir_policy_sequence weir_policy_sequence;
typedef struct weir_kv_sequence weir_kv_sequence; /* engine/kv/pool/sequence.h */

typedef struct weir_policy_run_options {
    const weir_policy_options *policy;
    int64_t budget; /* rows of each (layer, KV head), or in their mean, as the policy splits it */
    weir_policy_shape shape; /* max_rows: of one head of the longest sequence */
    const int32_t *layers; /* [shape.n_layers] their numbers in the store, ascending; borrowed */
    const weir_calibration *calibration; /* borrowed; NULL: there is none */
    int32_t n_texts;
    int32_t n_new; /* rows of a step at most */
    /* Rows of a sequence's prompt; 0: there is none, and all steps may have n_new rows */
    int32_t n_prompt;
    int32_t n_pinned; /* first rows that stay whatever the policy says */
} weir_policy_run_options;

/* All memory is taken here, on the account http. ECONFIG for options and budgets that leave no
 * choice; see weir_policy_open. Any thread. */
WEIR_MUST_CHECK weir_status weir_policy_run_open(
    weir_policy_run **out, const weir_policy_run_options *options, weir_ledger *ledger,
    weir_error *error
);
/* What opening takes, what is saved of one text at most (weir_policy_run_save), and the rows that
 * weir_policy_run_peak would say. */
typedef struct weir_policy_run_size {
    size_t bytes, saved_bytes;
    int64_t peak;
} weir_policy_run_size;
WEIR_MUST_CHECK weir_status weir_policy_run_measure(
    weir_policy_run_size *size, const weir_policy_run_options *options, weir_error *error
);
void weir_policy_run_close(weir_policy_run *policy_run); /* NULL-safe */
const weir_policy *weir_policy_run_policy(const weir_policy_run *policy_run);
size_t weir_policy_run_bytes(const weir_policy_run *policy_run); /* on the account http */
/* Rows of one head, at most, if weir_apply_policy follows every step and those after the prompt
 * have one row: shape.max_rows or fewer. */
int64_t weir_policy_run_peak(const weir_policy_run *policy_run);

/* A turn of a text that went on after it: its tokens up to `prompt` came as a prompt, those up to
 * `end` one at a time. */
typedef struct weir_turn {
    int32_t prompt, end;
} weir_turn;
enum { WEIR_TURNS = 64 };

/* Number i of n_texts, at the beginning of a sequence: its first n_prompt tokens are the prompt,
 * the first n_pinned rows stay. */
weir_policy_sequence *weir_policy_run_begin(
    weir_policy_run *policy_run, int32_t i, int32_t n_prompt, int32_t n_pinned
);
/* Its sequence is computed again, turn by turn */
void weir_policy_run_restart(weir_policy_sequence *text);
/* The n_computed tokens are a turn that is over; the prompt of the next one ends at n_prompt.
 * false: it has had WEIR_TURNS. */
bool weir_policy_run_turn(weir_policy_sequence *text, int32_t n_computed, int32_t n_prompt);
/* Up to where token number `at` is of a prompt; the tokens from there to the turn's end are
 * computed one at a time. */
int32_t weir_policy_run_prompt_end(const weir_policy_sequence *text, int32_t at);
/* Of the same policy */
void weir_policy_run_fork(weir_policy_sequence *dst, const weir_policy_sequence *src);
/* How much of a prompt may come from elsewhere, unseen: 0 where the policy must see it all. */
int32_t weir_policy_run_unobserved(const weir_policy_sequence *text);
/* Every step of a prompt: nothing of it may come from elsewhere, and the pieces that it comes in
 * change what is kept. */
bool weir_policy_run_observes_all(const weir_policy_sequence *text);
/* a text that lost nothing is still of no use to it without them */
bool weir_policy_run_needs_turns(const weir_policy_sequence *text);
/* Rows of a step that its memory has no room for: only a text from elsewhere can have so many. */
bool weir_policy_run_fits(
    const weir_policy_sequence *text, const weir_kv_table *table, int32_t n_rows
);

/* Where a step of so many queries leaves what the policy has to see of one layer at a time; NULL:
 * it need not. Rows of query heads. */
typedef struct weir_policy_run_view {
    float *logits; /* [query heads, stride] of the last query  */
    float *mass, *below, *last; /* [query heads, stride]                    */
    int64_t stride;
    float *plain; /* [n_new, query heads, key_dim] before rotation */
} weir_policy_run_view;
weir_policy_run_view weir_policy_run_view_of(const weir_policy_sequence *text, int32_t n_queries);

/* The view holds what layer `layer` of the store gave; the table's rows are those before the
 * step. */
void weir_policy_run_observe(
    weir_policy_sequence *text, const weir_kv_table *table, int64_t layer, int32_t first_position,
    const weir_policy_queries *queries
);
void weir_policy_run_advance(weir_policy_sequence *text, int32_t n_new, int32_t next_position);

/* ---- a text that is laid down between its turns (pruned_cache.h)
 * -------------------------------- */
typedef struct weir_policy_history {
    uint64_t policy[2]; /* weir_policy_digest */
    int64_t budget;
    int32_t n_pinned, n_turns; /* n_turns >= 1, the last one ends with the text */
    weir_turn turns[WEIR_TURNS];
} weir_policy_history;
/* Of a text whose turn is over; the state takes so many bytes. */
void weir_policy_history_of(weir_policy_history *past, const weir_policy_sequence *text);
/* As weir_policy_options_print prints it, lives as long as the keeping */
const char *weir_policy_run_policy_text(const weir_policy_sequence *text);
size_t weir_policy_run_saved_bytes(const weir_policy_sequence *text);
void weir_policy_run_save(const weir_policy_sequence *text, void *state);
/* The text at its beginning goes on from there, with the rows of the table. EFORMAT, EMISMATCH: it
 * cannot, and is at its beginning. */
WEIR_MUST_CHECK weir_status weir_policy_run_load(
    weir_policy_sequence *text, const weir_policy_history *past, const weir_kv_table *table,
    const void *state, size_t n, weir_error *error
);

typedef struct weir_policy_run_count {
    int64_t live, evicted; /* rows, in the mean of layers and heads */
} weir_policy_run_count;
weir_policy_run_count weir_policy_run_count_of(
    const weir_policy_sequence *text, const weir_kv_table *table, int32_t n_computed
);

#ifdef __cplusplus
}
#endif
