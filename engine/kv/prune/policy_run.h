/* engine/kv/prune/policy_run.h - runs a policy for a request: what it observes of steps, and the
 * rows that are dropped between them.
 *
 *   policy run       a policy, its budget and memory for one request, whose sequences share it
 *   policy sequence  the policy's state of one sequence, and the buffers for observations
 * A step: weir_policy_run_observe for each layer, weir_policy_run_advance when it is committed,
 * weir_apply_policy (engine/kv/prune/apply_policy.h) before the next one. A sequence without a
 * policy keeps every row. Rows are counted in each of the layers that keep rows of the whole
 * sequence. */
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
    /* Rows of each (layer, KV head), or their mean, as the policy splits it. */
    int64_t budget;
    weir_policy_shape shape; /* max_rows: of one head of the longest sequence */
    /* [shape.n_layers]: their numbers in the store, ascending; borrowed. */
    const int32_t *layers;
    const weir_calibration *calibration; /* borrowed; may be NULL */
    int32_t n_sequences;
    int32_t n_new; /* most rows of a step */
    /* Rows of a sequence's prompt; 0: no prompt, and all steps may have n_new rows. */
    int32_t n_prompt;
    int32_t n_pinned; /* first rows that always stay */
} weir_policy_run_options;

/* Allocates all memory, on the account http. Returns ECONFIG for options and budgets that leave
 * nothing to evict; see weir_policy_open. Any thread. */
WEIR_MUST_CHECK weir_status weir_policy_run_open(
    weir_policy_run **out, const weir_policy_run_options *options, weir_ledger *ledger,
    weir_error *error
);
/* Bytes to open it, most bytes of a saved sequence (weir_policy_run_save), and the rows of
 * weir_policy_run_peak. */
typedef struct weir_policy_run_size {
    size_t bytes, saved_bytes;
    int64_t peak;
} weir_policy_run_size;
WEIR_MUST_CHECK weir_status weir_policy_run_measure(
    weir_policy_run_size *size, const weir_policy_run_options *options, weir_error *error
);
void weir_policy_run_close(weir_policy_run *policy_run); /* NULL-safe */
/* It stays open until it is closed once more. Any thread. */
void weir_policy_run_hold(weir_policy_run *policy_run);
const weir_policy *weir_policy_run_policy(const weir_policy_run *policy_run);
size_t weir_policy_run_bytes(const weir_policy_run *policy_run); /* on the account http */
/* The most rows of one head if weir_apply_policy follows every step and those after the prompt have
 * one row: at most shape.max_rows. */
int64_t weir_policy_run_peak(const weir_policy_run *policy_run);

/* A finished turn: its tokens up to `prompt` came as a prompt, those up to `end` one at a time. */
typedef struct weir_turn {
    int32_t prompt, end;
} weir_turn;
enum { WEIR_TURNS = 64 };

/* Starts sequence i of n_sequences: its first n_prompt tokens are the prompt, the first n_pinned
 * rows stay. */
weir_policy_sequence *weir_policy_run_begin(
    weir_policy_run *policy_run, int32_t i, int32_t n_prompt, int32_t n_pinned
);
/* Its sequence is computed again, turn by turn. */
void weir_policy_run_restart(weir_policy_sequence *sequence);
/* Ends a turn after n_computed tokens; the prompt of the next one ends at n_prompt. Returns false
 * after WEIR_TURNS turns. */
bool weir_policy_run_turn(weir_policy_sequence *sequence, int32_t n_computed, int32_t n_prompt);
/* The end of the prompt part of the turn that contains token `at`; the turn's later tokens are
 * computed one at a time. */
int32_t weir_policy_run_prompt_end(const weir_policy_sequence *sequence, int32_t at);
/* Where the last finished turn ended; 0: there is none. */
int32_t weir_policy_run_turn_end(const weir_policy_sequence *sequence);
/* Both must be of the same policy. */
void weir_policy_run_fork(weir_policy_sequence *dst, const weir_policy_sequence *src);
/* True if both have the same policy with its options, budget and protected rows. b: may be NULL. */
bool weir_policy_run_is_alike(const weir_policy_sequence *a, const weir_policy_sequence *b);
/* How much of a prompt may be reused without observing it; 0 if the policy must observe all of
 * it. */
int32_t weir_policy_run_unobserved(const weir_policy_sequence *sequence);
/* True if the policy observes every step of a prompt: none of it may be reused, and its chunks
 * affect what is kept. */
bool weir_policy_run_observes_all(const weir_policy_sequence *sequence);
/* True if even a sequence without evictions cannot be used without its turns. */
bool weir_policy_run_needs_turns(const weir_policy_sequence *sequence);
/* False if its memory is too small for the rows of a step, which may happen only for a restored
 * sequence. */
bool weir_policy_run_fits(
    const weir_policy_sequence *sequence, const weir_kv_table *table, int32_t n_rows
);

/* Buffers for what the policy observes of one layer, for a step of this many queries; NULL:
 * nothing. Rows of query heads. */
typedef struct weir_policy_run_view {
    float *logits; /* [query heads, stride] of the last query  */
    float *mass, *below, *last; /* [query heads, stride]                    */
    int64_t stride;
    float *plain; /* [n_new, query heads, key_dim] before rotation */
} weir_policy_run_view;
weir_policy_run_view weir_policy_run_view_of(
    const weir_policy_sequence *sequence, int32_t n_queries
);

/* The view holds the observations of layer `layer` of the store; the table's rows are those before
 * the step. */
void weir_policy_run_observe(
    weir_policy_sequence *sequence, const weir_kv_table *table, int64_t layer,
    int32_t first_position, const weir_policy_queries *queries
);
void weir_policy_run_advance(weir_policy_sequence *sequence, int32_t n_new, int32_t next_position);

/* ---- a sequence that is cached between its turns (pruned_cache.h) ---------------------------- */
typedef struct weir_policy_history {
    uint64_t policy[2]; /* weir_policy_digest */
    int64_t budget;
    /* The last turn ends with the sequence, or before the last tokens, which are of a prompt. */
    int32_t n_pinned, n_turns;
    weir_turn turns[WEIR_TURNS];
} weir_policy_history;
/* See weir_policy_run_saved_bytes for the size of the state. */
void weir_policy_history_of(weir_policy_history *past, const weir_policy_sequence *sequence);
/* As weir_policy_options_print prints it; lives as long as the policy run. */
const char *weir_policy_run_policy_text(const weir_policy_sequence *sequence);
size_t weir_policy_run_saved_bytes(const weir_policy_sequence *sequence);
void weir_policy_run_save(const weir_policy_sequence *sequence, void *state);
/* Continues after n_computed tokens, to which the policy was applied, with the rows of the table;
 * the sequence must be at its beginning. Returns EFORMAT or EMISMATCH if it cannot, and then stays
 * there. */
WEIR_MUST_CHECK weir_status weir_policy_run_load(
    weir_policy_sequence *sequence, const weir_policy_history *past, int32_t n_computed,
    const weir_kv_table *table, const void *state, size_t n, weir_error *error
);

typedef struct weir_policy_run_count {
    int64_t live, evicted; /* rows, as a mean over layers and heads */
} weir_policy_run_count;
weir_policy_run_count weir_policy_run_count_of(
    const weir_policy_sequence *sequence, const weir_kv_table *table, int32_t n_computed
);

#ifdef __cplusplus
}
#endif
