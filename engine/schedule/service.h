/* engine/schedule/service.h - the engine as a service: jobs in, token events out. Used by serve,
 * generate, chat and eval.
 *
 * One engine thread owns model, KV and sequences. Any thread may submit jobs. A job's events come
 * through its callback, on the engine thread and in order; the callback must not block (copy and
 * wake). Continuous batching, chunked prefill, cancellation. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/policy/policy.h"
#include "engine/model/bank_stats.h"
#include "engine/model/expert_stats.h"
#include "engine/sample/sampler.h"
#include "engine/schedule/engine_facts.h"
#include "engine/schedule/reclaim_step.h"
#include "engine/schedule/step_times.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_service weir_service;
typedef struct weir_job weir_job;

typedef enum weir_finish {
    WEIR_FINISH_NONE,
    WEIR_FINISH_STOP,
    WEIR_FINISH_LENGTH,
    WEIR_FINISH_CANCELED,
    WEIR_FINISH_ERROR,
    WEIR_FINISH_TIMEOUT /* the request's timeout passed */
} weir_finish;

typedef enum weir_event_type {
    /* Left the queue, and has what is cached of its prompt: n_cached tokens were reused. */
    WEIR_EVENT_ADMITTED,
    /* Log-probabilities of one prompt token (only with want_prompt_logprobs), in order. */
    WEIR_EVENT_PROMPT,
    /* Logits after the last prompt token (only with want_logits), before the first answer token;
     * sent again after a preemption. */
    WEIR_EVENT_LOGITS,
    WEIR_EVENT_TOKEN, /* one answer token of one choice */
    WEIR_EVENT_CHOICE, /* a choice ended: finish; token: the stop id that ended it, -1 otherwise */
    WEIR_EVENT_DONE, /* last event of the job: usage and times; with status != OK the job failed */
} weir_event_type;

enum { WEIR_TOP_LOGPROBS = 20, WEIR_TURN_STARTS = 2 };
/* Draft tokens of a sequence in a step, and over all sequences, at most. */
enum { WEIR_DRAFTS = 16, WEIR_STEP_DRAFTS = 16 };
/* Sequences with recurrent states that draft in a step, at most. */
enum { WEIR_DRAFT_STATES = 2 };

/* n_rows, kv_bytes: rows of all choices when they ended, and the KV pages that held them; rows that
 * choices share count for each. */
typedef struct weir_usage {
    int32_t n_prompt, n_cached, n_answer; /* n_answer: over all choices */
    int32_t n_drafted, n_accepted; /* draft tokens, and those that became answer tokens */
    int64_t n_rows, kv_bytes; /* n_rows: rows that were kept */
    /* Rows dropped, over all choices, as a mean over layers and heads: those with a policy, else
     * those with banks. */
    int64_t n_evicted;
    weir_bank_stats banks; /* of all choices when they ended */
    int64_t kv_budget; /* rows that the policy may keep; 0: no policy */
    const char *kv_policy; /* its name; NULL: none */
    int64_t queue_ns, prefill_ns, decode_ns, first_token_ns; /* first_token: from submit */
    /* Prompt tokens equal to those of the longest matching cached sequence; n_cached may be
     * smaller. */
    int32_t n_matched;
    const char *reuse; /* why n_cached is not larger; static text */
    /* What the cached rows were computed with, if it is not what this engine computes with: then
     * the answer may have other bits than a cold one. NULL: the same. Valid as long as the
     * service. */
    const char *numerics;
    bool is_cut; /* from before the job ended: rows, bytes, banks and times are not known */
} weir_usage;

typedef struct weir_event {
    weir_event_type type;
    int32_t choice, token;
    weir_finish finish;
    weir_logprob logprob; /* of `token`, if requested */
    const weir_logprob *top; /* [n_top], borrowed during the callback */
    int32_t n_top;
    weir_status status; /* DONE */
    const char *message; /* DONE with status != OK */
    const float *logits; /* LOGITS: [n_vocab], borrowed during the callback */
    /* DONE, if requested and the prompt was computed: [d_model], borrowed during the callback. */
    const float *embedding;
    weir_usage usage; /* ADMITTED (n_cached) and DONE */
} weir_event;

/* Returns false to end the choice now (a stop string was found); a CHOICE event with finish STOP
 * follows. */
typedef bool (*weir_event_callback)(void *user, const weir_event *event);

/* A limit of the tokens of reasoning. */
typedef struct weir_thought_limit {
    bool is_limited;
    bool is_open; /* the prompt opened it; else `begin` does, as the first token; -1: nothing */
    int32_t begin, end; /* tokens; after the limit `end` is drawn */
    int32_t n_tokens;
    /* Reasoning also ends with this text, of other tokens than `end`. Static; NULL: not known. */
    const char *end_text;
    /* The bytes [n] of a token in the answer's text; any thread. NULL without end_text. */
    const char *(*text_of)(const void *vocabulary, int32_t token, size_t *n);
    const void *vocabulary; /* lives as long as the service */
} weir_thought_limit;

typedef struct weir_request {
    const int32_t *prompt; /* copied; [n_prompt], n_prompt >= 1 */
    int32_t n_prompt, max_tokens; /* max_tokens 0: only score the prompt */
    int32_t n_choices; /* >= 1, at most the slots; share the prompt's prefill */
    int32_t min_tokens;
    bool ignore_eos; /* stop ids get -inf instead of ending the answer */
    bool want_logprobs, want_prompt_logprobs, cache_prompt;
    /* Return an embedding of the prompt, all of which is computed. */
    bool want_embedding;
    weir_pooling pooling;
    bool want_logits; /* of the last prompt token of choice 0 */
    int32_t n_top_logprobs; /* 0 .. WEIR_TOP_LOGPROBS */
    weir_sampling sampling; /* bias list is copied */
    /* NULL, or what answers must match: compiled with the service's trie of tokens. Retained. */
    struct weir_grammar *grammar;
    weir_thought_limit thought;
    const char *cache_salt; /* NULL: none; copied */
    /* Of several clients the one with the fewest running jobs is served first. */
    int32_t client;
    /* Lower goes first: in the queue, in a step, and last when sequences are preempted. */
    int32_t priority;
    /* CLOCK_MONOTONIC: open choices then end with TIMEOUT, and the job with OK; 0: none. */
    int64_t deadline_ns;
    /* NULL: the service's, if it has one; copied. */
    const weir_policy_options *policy;
    int64_t kv_budget; /* rows to keep; 0: the service's */
    int32_t n_pinned; /* the first n_pinned rows are kept */
    /* NULL, or the name under which choice 0 is saved (sessions.h); copied. */
    const char *session;
    /* Prompt positions before which states are saved; 0: none. */
    int32_t turn_starts[WEIR_TURN_STARTS];
    /* The first n_kept tokens must come from a cached sequence, as its state is lossy and cannot be
     * recomputed. Without one the job fails. */
    int32_t n_kept;
    /* Why a file that holds more of the prompt than the cache was not read; static text. NULL:
     * there is no such file. */
    const char *unused;
    weir_event_callback callback;
    void *user;
} weir_request;

/* ---- budgets of KV memory (key_budget.c) ----------------------------------------------------- */
/* KV bytes of `rows` rows of one choice. */
int64_t weir_service_kv_bytes(const weir_engine_facts *facts, int64_t rows);
/* Rows that each of n_choices >= 1 may reach: the window, or fewer if a budget binds. An answer
 * that reaches it ends with LENGTH. */
int32_t weir_service_row_limit(const weir_engine_facts *facts, int32_t n_choices);
/* Returns EINVAL if the prompt alone does not fit; the message begins with kv_budget_exceeded. */
WEIR_MUST_CHECK weir_status weir_service_check_budget(
    const weir_engine_facts *facts, int64_t n_prompt, int32_t n_choices, weir_error *error
);

/* Bytes of an open HTTP connection on the account http, for the plan and the server: buffers of a
 * request's head and a reply's, and the server's record. */
enum {
    WEIR_REQUEST_LINE_BYTES = 9 << 10,
    WEIR_REPLY_HEADER_BYTES = 4 << 10,
    WEIR_CONNECTION_RECORD = 4 << 10
};
static inline size_t weir_connection_bytes(size_t header_limit)
{
    return header_limit + WEIR_REQUEST_LINE_BYTES + WEIR_REPLY_HEADER_BYTES +
           WEIR_CONNECTION_RECORD;
}

typedef struct weir_service_stats { /* a consistent copy, any thread */
    int32_t running, waiting; /* sequences in the batch, jobs in the queue */
    int64_t kv_pages_used, kv_pages_total, kv_bytes_used, kv_bytes_total;
    int64_t kv_tokens_free, kv_sink_pages_free;
    /* Of layers with a window (engine/kv/pool/windows.h); cached: in the prefix cache, which a
     * sequence may hold too. */
    int64_t window_blocks_free, window_blocks_cached;
    /* Those on disk, of which some are in memory, too. Since opening: written to disk, read from
     * it, and failures of either. */
    int64_t window_blocks_cold, window_blocks_out, window_blocks_back, window_block_errors;
    int64_t prompt_tokens, cached_tokens, answer_tokens, steps, batch_rows;
    int64_t drafted_tokens, accepted_tokens; /* of jobs that ended; see weir_usage */
    int64_t preemptions; /* sequences preempted */
    int64_t evicted_tokens; /* rows dropped by policies */
    weir_bank_stats banks; /* only its counts: of all sequences that ended */
    weir_expert_stats experts;
    /* Pages of kv_pages_used and of cached sequences that are on disk, or below a device on the
     * host. */
    int64_t kv_disk_pages_used, kv_host_pages_used;
    int64_t kv_bytes_out, kv_bytes_back,
        /* Since opening: written to the lower tiers, read back, and read in place. */
        kv_bytes_read;
    int64_t kv_write_errors, kv_read_errors;
    /* Cached tokens and states; tokens dropped to free memory since opening. */
    int64_t kept_tokens, kept_states, dropped_tokens;
    int64_t cold_states; /* of kept_states: on disk, or being written to it */
    /* Since opening: states written to disk, read from it, and failures of either. */
    int64_t states_out, states_back, state_errors;
    /* Sequences cached with a policy, which are only continued as a whole. */
    int64_t kept_pruned_sequences, kept_pruned_tokens;
    int64_t unsaved_tokens; /* of dropped_tokens: not in a session file */
    /* saves: completed; failed; stopped because memory was short. */
    int64_t saved_sequences, saved_tokens, save_failures, saves_given_up;
    int64_t replaced_sequences; /* session files replaced by newer ones */
    /* Session files loaded because a prompt began like them, and the prompt tokens that they
     * held. */
    int64_t found_sequences, found_tokens;
    /* Bytes of pages that only cached sequences hold; freed when needed. */
    int64_t kept_bytes;
    /* By each step of reclaiming. */
    weir_reclaim_count reclaimed[WEIR_RECLAIM_STEPS];
    int64_t step_ns[WEIR_STEP_PARTS]; /* of the engine thread, since opening */
} weir_service_stats;

typedef struct weir_service_sequence { /* a sequence that has a slot */
    int64_t job;
    int32_t choice, tokens; /* tokens: those with rows in memory */
    int32_t client;
    int64_t bytes; /* pages (shared ones count for each), unsealed rows, state, ids, table */
    int64_t kv_bytes; /* of `bytes`, pages and unsealed rows */
    int64_t kv_claim; /* counts against its client's budget */
    const char *kv_policy; /* its name; NULL: keeps every row */
    /* Rows as a mean over layers and heads; bytes of the request's policy. */
    int64_t kv_budget, n_live, n_evicted, policy_bytes;
    weir_bank_stats banks;
} weir_service_sequence;

/* How requests may drop rows (engine/kv/prune/policy_run.h). */
typedef struct weir_service_policy {
    weir_policy_options options; /* for requests that name none */
    int64_t budget; /* rows; 0: all */
    weir_policy_shape shape; /* of the model; max_rows is the window */
    const int32_t *layers; /* [shape.n_layers]: their numbers in the store */
    const weir_calibration *calibration; /* of the model's queries; may be NULL */
} weir_service_policy;

/* What a service is opened with; all borrowed, must outlive it. */
typedef struct weir_service_parts {
    const weir_engine_facts *facts;
    struct weir_runner *runner;
    struct weir_runner
        *nested; /* weir_runner_limits.is_nested; NULL: no step runs within another */
    struct weir_kv_store *store;
    struct weir_pruner *pruner; /* NULL: the engine thread reads what policies need from disk */
    struct weir_prefix *prefix; /* NULL: no prefix reuse */
    struct weir_ledger *ledger;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    int32_t chunk; /* prompt rows of a step, a multiple of 64 */
    int32_t mixed_chunk; /* the same while others decode; 0: 128 */
    int32_t step_rows; /* all rows of a step; 0: no limit */
    int32_t long_prompt; /* tokens left that make a prompt long (plan.c); 0: four chunks */
    /* Draft tokens of a sequence in a step, at most WEIR_DRAFTS; 0: none. A draft needs an earlier
     * match of the last draft_match >= 1 tokens. */
    int32_t n_drafts, draft_match;
    /* NULL: keeps every row, whatever requests say. */
    const weir_service_policy *policy;
} weir_service_parts;

/* Opens the slots. Jobs may be submitted; they run once the engine thread is started. */
WEIR_MUST_CHECK weir_status
weir_service_open(weir_service **out, const weir_service_parts *parts, weir_error *error);
WEIR_MUST_CHECK weir_status weir_service_start(weir_service *service, weir_error *error);
/* Cancels running jobs and ends the thread. All jobs must have been released. */
void weir_service_close(weir_service *service);

/* Bytes of a service with n_slots on the account tokens, without its sequences; those of samplers
 * are on the account sampler. */
size_t weir_service_bytes(int32_t n_slots);
size_t weir_service_sampler_bytes(int32_t n_samplers, size_t n_vocab);
/* Bytes on the account activations: recurrent states before drafts. n_drafts: of
 * weir_service_parts. */
size_t weir_service_draft_bytes(const weir_engine_facts *facts, int32_t n_drafts);
/* Prompt rows of a step while others decode, and of nested ones: batch.mixed_chunk in blocks of the
 * model. */
int32_t weir_service_busy_chunk(int32_t chunk, int32_t mixed_chunk, int32_t block_rows);

/* Returns EFULL if the queue is full (429), ENOMEM if memory.host has no space for the request now
 * (503), EUNSUPPORTED while draining (503), EINVAL for bad numbers or a prompt that is longer than
 * the window (the text holds both phrases that clients look for) or than a budget allows. The job
 * lives until weir_job_release, also after DONE. */
WEIR_MUST_CHECK weir_status weir_service_submit(
    weir_service *service, weir_job **out, const weir_request *request, weir_error *error
);
/* Any thread. DONE with ECANCELED follows unless the job had ended. */
void weir_job_cancel(weir_job *job);
/* Cancels the job if it still runs. No callback comes after it returns. */
void weir_job_release(weir_job *job);

const weir_engine_facts *weir_service_facts_of(const weir_service *service);
void weir_service_stats_of(const weir_service *service, weir_service_stats *out);
/* Counts of a layer's experts, now. False: it has none, or all are in memory. Any thread. */
bool weir_service_expert_counts(
    const weir_service *service, int64_t layer, weir_expert_counts *out
);
/* Writes the sequences in the batch after the last step to `out`, at most n_slots. Returns their
 * number. Any thread. */
int32_t weir_service_sequences_of(const weir_service *service, weir_service_sequence *out);
/* Refuses new jobs. Returns when all jobs have ended; cancels the rest at the deadline. */
void weir_service_drain(weir_service *service, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif
