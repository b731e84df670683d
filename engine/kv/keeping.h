/* engine/kv/keeping.h - a policy at work: what the steps of a request show it, and the rows that it lets go between them.
 *
 *   keeping  a policy, its budget and memory for one plan: of a request, whose sequences share it
 *   text     what the policy remembers of one sequence, and where a step leaves what it has to see
 * A step: weir_keeping_see for each layer, weir_keeping_advance when it is committed, weir_tend (engine/kv/tend.h) before the next one.
 * A sequence without a text keeps every row. Rows are counted in each of the layers that keep rows of the whole text. */
#pragma once
#include "engine/kv/policy.h"
#include "engine/kv/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_keeping      weir_keeping;
typedef struct weir_keeping_text weir_keeping_text;
typedef struct weir_sequence     weir_sequence; /* engine/kv/sequence.h */

typedef struct weir_keeping_options {
    const weir_policy_options *policy;
    int64_t                    budget; /* rows of each (layer, KV head), or in their mean, as the policy splits it */
    weir_policy_shape          shape; /* max_rows: of one head of the longest sequence */
    const int32_t             *layers; /* [shape.n_layers] their numbers in the store, ascending; borrowed */
    const weir_calibration    *calibration; /* borrowed; NULL: there is none */
    int32_t                    n_texts;
    int32_t                    n_new; /* rows of a step at most */
    int32_t                    n_prompt; /* rows of a sequence's prompt; 0: there is none, and all steps may have n_new rows */
    int32_t                    n_pinned; /* first rows that stay whatever the policy says */
} weir_keeping_options;

/* All memory is taken here, on the account http. ECONFIG for options and budgets that leave no choice; see weir_policy_open. Any thread. */
WEIR_MUST_CHECK weir_status weir_keeping_open(weir_keeping **out, const weir_keeping_options *options, weir_ledger *ledger,
                                              weir_error *error);
/* What opening takes, and the rows that weir_keeping_peak would say. */
WEIR_MUST_CHECK weir_status weir_keeping_measure(size_t *bytes, int64_t *peak, const weir_keeping_options *options, weir_error *error);
void                        weir_keeping_close(weir_keeping *keeping); /* NULL-safe */
const weir_policy          *weir_keeping_policy(const weir_keeping *keeping);
/* Rows of one head, at most, if weir_tend follows every step and those after the prompt have one row: shape.max_rows or fewer. */
int64_t weir_keeping_peak(const weir_keeping *keeping);

/* Number i of n_texts, at the beginning of a sequence: its first n_prompt tokens are the prompt, the first n_pinned rows stay. */
weir_keeping_text *weir_keeping_begin(weir_keeping *keeping, int32_t i, int32_t n_prompt, int32_t n_pinned);
void               weir_keeping_restart(weir_keeping_text *text); /* its sequence is computed again */
void               weir_keeping_fork(weir_keeping_text *dst, const weir_keeping_text *src); /* of the same policy */
/* How much of a prompt may come from elsewhere, unseen: 0 where the policy must see it all. */
int32_t weir_keeping_unseen(const weir_keeping_text *text);
bool    weir_keeping_sees_mass(const weir_keeping_text *text); /* what attention gave to rows */
/* The pieces that a prompt comes in change what is kept. */
bool weir_keeping_wants_grid(const weir_keeping_text *text);

/* Where a step of so many queries leaves what the policy has to see of one layer at a time; NULL: it need not. Rows of query heads. */
typedef struct weir_keeping_view {
    float  *logits; /* [query heads, stride] of the last query  */
    float  *mass, *below, *last; /* [query heads, stride]                    */
    int64_t stride;
    float  *plain; /* [n_new, query heads, key_dim] before rotation */
} weir_keeping_view;
weir_keeping_view weir_keeping_view_of(const weir_keeping_text *text, int32_t n_queries);

/* The view holds what layer `layer` of the store gave; the table's rows are those before the step. */
void weir_keeping_see(weir_keeping_text *text, const weir_kv_table *table, int64_t layer, int32_t first_position,
                      const weir_policy_queries *queries);
void weir_keeping_advance(weir_keeping_text *text, int32_t n_new, int32_t next_position);

typedef struct weir_keeping_count {
    int64_t live, evicted; /* rows, in the mean of layers and heads */
} weir_keeping_count;
weir_keeping_count weir_keeping_count_of(const weir_keeping_text *text, const weir_kv_table *table, int32_t n_computed);

#ifdef __cplusplus
}
#endif
