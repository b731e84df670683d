/* engine/schedule/runner.h - one step over some sequences: batch, forward, commit. The only caller
 * of the model's forward pass. If a step fails KV rows stay invisible, but recurrent state and
 * unsealed pages may be inconsistent: the caller resets those sequences. */
#pragma once
#include "engine/kv/pool/sequence.h"
#include "engine/kv/prune/apply_policy.h"
#include "engine/model/model.h"
#include "engine/schedule/step_times.h"
#include "engine/schedule/tiers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_runner weir_runner;

/* Which rows of a work need logits. */
typedef enum weir_logits_wanted {
    WEIR_LOGITS_NONE,
    WEIR_LOGITS_LAST,
    WEIR_LOGITS_ALL
} weir_logits_wanted;

/* The next n_rows tokens of a sequence: [n_computed, n_computed + n_rows). KV rows are reserved by
 * the runner. */
typedef struct weir_batch_item {
    weir_kv_sequence *sequence;
    int32_t n_rows;
    /* The last n_drafts of these rows are guesses, which stand behind the sequence's tokens: they
     * are computed and not committed (speculation.c), and have logits if LAST is wanted. */
    int32_t n_drafts;
    weir_logits_wanted wanted;
    /* Out: index of its first logits row; -1: none. */
    int32_t first_logit;
    int32_t first_row, first_position; /* Out: of its rows in the step, and in the sequence. */
    int32_t n_snapshots;
    /* Snapshots of the recurrent state, `after` ascending. */
    weir_batch_snapshot snapshots[WEIR_BATCH_SNAPSHOTS];
    bool is_prompt; /* for a single row: weir_batch_segment.is_prompt */
    /* Out: pages of the sequence, or experts of its rows, could not be read from disk. The sequence
     * is as after a failed step; the other sequences are not affected. */
    bool failed;
} weir_batch_item;

typedef struct weir_runner_limits {
    int32_t rows, items, logits; /* of one step */
    int32_t hot; /* With a disk: blocks at the end of a sequence that stay in memory; 0 means 1. */
    /* With a disk: of sequences without blocks there, and memory for whose rows is free. It uses
     * the scratch of another runner, whose limits are no smaller. */
    bool is_nested;
} weir_runner_limits;

/* Bytes charged to the account tokens for these limits. */
size_t weir_runner_bytes(const weir_runner_limits *limits);
WEIR_MUST_CHECK weir_status weir_runner_open(
    weir_runner **out, const weir_model *model, weir_ledger *ledger, const weir_kv_spec *spec,
    const weir_runner_limits *limits, weir_error *error
);
void weir_runner_close(weir_runner *runner);
const weir_runner_limits *weir_runner_limits_of(const weir_runner *runner);
int64_t weir_runner_n_vocab(const weir_runner *runner);
int32_t weir_runner_block_rows(const weir_runner *runner); /* See weir_model_block_rows. */
const weir_model *weir_runner_model(const weir_runner *runner);
/* See weir_model_is_state. */
bool weir_runner_is_state(const weir_runner *runner, const float *recurrent, int64_t n_tokens);
/* weir_model_bank_stats of a sequence between two steps; NULL: of an empty sequence. */
weir_bank_stats weir_runner_bank_stats(const weir_runner *runner, const weir_kv_sequence *sequence);
/* Rows of a sequence that are kept as computed, and rows that were dropped: by its policy if it
 * has one, else by layers with fixed-size memory. */
weir_policy_run_count weir_runner_count(
    const weir_runner *runner, const weir_kv_sequence *sequence
);
/* EFULL (nothing computed; pages found so far stay reserved) when the KV store cannot back all
 * rows. EIO: all items failed. Logits [rows, n_vocab] are borrowed until the next step. */
WEIR_MUST_CHECK weir_status weir_runner_step(
    weir_runner *runner, weir_batch_item *items, int32_t n_items, const float **logits,
    weir_error *error
);
/* After a step of a model with a draft head: the hidden state at a position that the item computed;
 * borrowed until the next step. */
const float *weir_runner_hidden(
    const weir_runner *runner, const weir_batch_item *item, int32_t position
);
/* weir_model_draft with the memory of the step. */
WEIR_MUST_CHECK weir_status weir_runner_draft(
    weir_runner *runner, const weir_mtp_batch *batch, const float **logits, const float **hidden,
    weir_error *error
);
/* Fills the rows of the work with noise and counts them as computed (weir_model_fill_noise);
 * otherwise like a step. */
WEIR_MUST_CHECK weir_status
weir_runner_fill(weir_runner *runner, weir_batch_item *item, weir_error *error);
/* Sets what else holds KV pages and may free them for a step (reclaim.h); copied. */
void weir_runner_share(weir_runner *runner, const weir_kv_holders *holders);
/* Adds the parts of steps to `times`; borrowed, must outlive the steps. NULL: not measured. */
void weir_runner_measure(weir_runner *runner, weir_step_times *times);
/* See weir_kv_prefetch_run_others; does nothing without a lower tier. */
void weir_runner_run_others(
    weir_runner *runner, bool (*run)(void *user), void (*listener)(void *user), void *user
);
/* After a step: drops rows that no window reads, moves blocks between tiers. n_short: see
 * weir_tiers_move. */
void weir_runner_move(
    weir_runner *runner, const weir_batch_item *items, int32_t n_items, int64_t n_short
);
/* Sets the evictor that drops rows; borrowed, must outlive the steps. NULL: no sequence has a
 * policy. */
void weir_runner_evict_with(weir_runner *runner, weir_kv_evictor *evictor);
weir_kv_evictor *weir_runner_evictor(const weir_runner *runner);
/* After a step: drops the rows that the sequence's policy does not keep
 * (engine/kv/prune/apply_policy.h). Waits for the disk: for programs that run one sequence. */
WEIR_MUST_CHECK weir_status
weir_runner_evict(weir_runner *runner, weir_kv_sequence *sequence, weir_error *error);
/* Returns why a work of the last step failed; borrowed. */
const char *weir_runner_problem(const weir_runner *runner);
/* Calls the visitor in the following steps with the queries of every sequence without a policy,
 * [n_rows, n_heads, head_dim] before rotation and after their norm, of each layer without a sliding
 * window. NULL ends it. Allocates memory for them; only where rows can be evicted. */
typedef void (*weir_queries_visitor)(
    void *user, int64_t kv_layer, const float *queries, int32_t n_rows
);
WEIR_MUST_CHECK weir_status weir_runner_show_queries(
    weir_runner *runner, weir_queries_visitor visit, void *user, weir_error *error
);
/* Sets weir_batch.observe for the following steps; NULL ends it. */
void weir_runner_observe(
    weir_runner *runner, void (*observe)(void *user, int64_t layer, const float *hidden), void *user
);

#ifdef __cplusplus
}
#endif
