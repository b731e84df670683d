/* engine/schedule/service.h - the engine as a service: jobs in, token events out. What serve,
 * generate, chat and eval stand on.
 *
 * One engine thread owns model, KV and sequences. Any thread submits jobs; events of a job come
 * through its callback on the engine thread, in order, and must not block (copy and wake).
 * Continuous batching, chunked prefill, cancellation. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/policy/policy.h"
#include "engine/model/banks.h"
#include "engine/sample/sampler.h"
#include "engine/schedule/engine_facts.h"
#include "engine/schedule/reclaim_step.h"

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
    WEIR_FINISH_ERROR
} weir_finish;

typedef enum weir_event_type {
    WEIR_EVENT_ADMITTED, /* left the queue; n_cached prompt tokens were reused */
    /* Log-probabilities of one prompt token (only with want_prompt_logprobs), in order */
    WEIR_EVENT_PROMPT,
    /* The row behind the prompt (only with want_logits), before its token; again after a
     * preemption */
    WEIR_EVENT_LOGITS,
    WEIR_EVENT_TOKEN, /* one answer token of one choice */
    WEIR_EVENT_CHOICE, /* a choice ended: finish; token: the stop id that ended it, -1 otherwise */
    WEIR_EVENT_DONE, /* last event of the job: usage and times; with status != OK the job failed */
} weir_event_type;

enum { WEIR_TOP_LOGPROBS = 20, WEIR_TURN_STARTS = 2 };

/* n_rows, kv_bytes: rows of all choices at their ends, and what KV pages held them; rows that
 * choices share count for each. */
typedef struct weir_usage {
    int32_t n_prompt, n_cached, n_answer; /* n_answer: over all choices */
    int64_t n_rows, kv_bytes; /* n_rows: those that stayed */
    /* Rows of all choices that are gone, in the mean of layers and heads with a policy, else of
     * those with banks */
    int64_t n_evicted;
    weir_banks banks; /* of all choices at their ends */
    int64_t kv_budget; /* rows that it may keep; 0: no policy */
    const char *kv_policy; /* its name; NULL: none */
    int64_t queue_ns, prefill_ns, decode_ns, first_token_ns; /* first_token: from submit */
    int32_t n_matched; /* prompt tokens that equal the nearest kept text; n_cached may be fewer */
    const char *reuse; /* why n_cached is not more, a static text */
} weir_usage;

typedef struct weir_event {
    weir_event_type type;
    int32_t choice, token;
    weir_finish finish;
    weir_logprob logprob; /* of `token`, when log-probabilities were asked for */
    const weir_logprob *top; /* [n_top], borrowed during the callback */
    int32_t n_top;
    weir_status status; /* DONE */
    const char *message; /* DONE with status != OK */
    const float *logits; /* LOGITS: [n_vocab], borrowed during the callback */
    /* DONE, if one was asked for and the prompt was computed: [d_model], borrowed during the
     * callback */
    const float *embedding;
    weir_usage usage; /* ADMITTED (n_cached) and DONE */
} weir_event;

/* Returns false to end the choice now (a stop string was found): the engine answers with
 * CHOICE/STOP. */
typedef bool (*weir_event_callback)(void *user, const weir_event *event);

typedef struct weir_request {
    const int32_t *prompt; /* copied; [n_prompt], n_prompt >= 1 */
    int32_t n_prompt, max_tokens; /* max_tokens 0: only score the prompt */
    int32_t n_choices; /* >= 1, at most the slots; share the prompt's prefill */
    int32_t min_tokens;
    bool ignore_eos; /* stop ids get -inf instead of ending the answer */
    bool want_logprobs, want_prompt_logprobs, cache_prompt;
    /* The mean over the prompt of the hidden state behind the last layer; all of it is computed */
    bool want_embedding;
    bool want_logits; /* of the last prompt token, of choice 0 */
    int32_t n_top_logprobs; /* 0 .. WEIR_TOP_LOGPROBS */
    weir_sampling sampling; /* bias list is copied */
    const char *cache_salt; /* NULL: none; copied */
    /* Whose request it is: clients take turns, whoever has the fewest running goes first */
    int32_t client;
    const weir_policy_options *policy; /* NULL: the service's, which may be none; copied */
    int64_t kv_budget; /* rows that it keeps; 0: the service's */
    int32_t n_pinned; /* so many first rows stay */
    const char
        *session; /* NULL, or the name that the kept text of choice 0 gets (sessions.h); copied */
    /* Prompt positions before which states are worth keeping; 0: none */
    int32_t turn_starts[WEIR_TURN_STARTS];
    /* So many first tokens come from a kept text, as computing them would not give what it
     * holds: without it the job fails */
    int32_t n_kept;
    weir_event_callback callback;
    void *user;
} weir_request;

/* ---- budgets of KV memory (budget.c) --------------------------------------------------------- */
/* What `rows` rows of one choice take. */
int64_t weir_service_kv_bytes(const weir_engine_facts *facts, int64_t rows);
/* Rows that each of n_choices >= 1 may come to hold: the window, or fewer where a budget binds. An
 * answer that reaches it ends with LENGTH. */
int32_t weir_service_row_limit(const weir_engine_facts *facts, int32_t n_choices);
/* EINVAL when the prompt alone does not fit: the text begins with the code kv_budget_exceeded. */
WEIR_MUST_CHECK weir_status weir_service_check_budget(
    const weir_engine_facts *facts, int64_t n_prompt, int32_t n_choices, weir_error *error
);

/* What an open HTTP connection takes on the account http, for the plan and the server alike:
 * buffers of a request's head and of a reply's, and the server's record. */
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
    int64_t prompt_tokens, cached_tokens, answer_tokens, steps, batch_rows;
    int64_t preemptions; /* times a sequence gave its pages back, to be computed again */
    int64_t evicted_tokens; /* rows that a policy dropped for good */
    weir_banks banks; /* its counts alone: of all texts that ended */
    /* Of kv_pages_used and kept texts, on disk, and below a device on the host */
    int64_t kv_disk_pages_used, kv_host_pages_used;
    int64_t kv_bytes_out, kv_bytes_back,
        /* To and from the tiers below since opening: gone there, come back, read where they are */
        kv_bytes_read;
    int64_t kv_write_errors, kv_read_errors;
    /* Texts that can be continued, states on them; kept ones that made room, ever */
    int64_t kept_tokens, kept_states, dropped_tokens;
    int64_t kept_pruned_texts,
        kept_pruned_tokens; /* texts that a KV policy watched, which are continued whole */
    int64_t unsaved_tokens; /* of dropped_tokens, in no session file */
    int64_t saved_texts, saved_tokens, save_failures,
        saves_given_up; /* because memory was short: in files; not; memory was needed first */
    int64_t replaced_texts; /* files that gave way to newer ones */
    /* Files that came back because a prompt began like them, and what of the prompt they held */
    int64_t found_texts, found_tokens;
    int64_t kept_bytes; /* of pages that only they hold: others get them when they need them */
    weir_reclaim_count reclaimed[WEIR_RECLAIM_STEPS]; /* KV memory was short: by what was done */
} weir_service_stats;

typedef struct weir_service_sequence { /* one that has a slot */
    int64_t job;
    int32_t choice, tokens; /* tokens: those whose rows are in memory */
    int32_t client;
    int64_t bytes; /* pages (shared ones count for each), open rows, state, ids, table */
    int64_t kv_bytes,
        kv_claim; /* of `bytes`, pages and open rows; what it counts with for its client's budget */
    const char *kv_policy; /* its name; NULL: every row stays */
    int64_t kv_budget, n_live, n_evicted,
        policy_bytes; /* rows in the mean of layers and heads; what the request's policy takes */
    weir_banks banks;
} weir_service_sequence;

/* How requests may let go of rows (engine/kv/prune/policy_run.h). */
typedef struct weir_service_policy {
    weir_policy_options options; /* for those that name none */
    int64_t budget; /* rows; 0: all */
    weir_policy_shape shape; /* of the model; max_rows is the window */
    const int32_t *layers; /* [shape.n_layers] their numbers in the store */
    const weir_calibration *calibration; /* of the model's queries; NULL: there is none */
} weir_service_policy;

/* What the engine hands over: all borrowed, all outlive the service. */
typedef struct weir_service_parts {
    const weir_engine_facts *facts;
    struct weir_runner *runner;
    struct weir_kv_store *store;
    struct weir_prefix *prefix; /* NULL: nothing is reused */
    struct weir_ledger *ledger;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    int32_t chunk; /* rows of prefill per step, a multiple of 64 */
    const weir_service_policy *policy; /* NULL: every row stays, whatever requests say */
} weir_service_parts;

/* Opens the slots and starts the engine thread. */
WEIR_MUST_CHECK weir_status
weir_service_open(weir_service **out, const weir_service_parts *parts, weir_error *error);
/* Cancels what runs, ends the thread. Jobs must have been released. */
void weir_service_close(weir_service *service);

/* What a service of so many slots takes at open beside its sequences, on the account tokens; the
 * sampler's scratch is its own account. */
size_t weir_service_bytes(int32_t n_slots);

/* EFULL: the queue is full (429). ENOMEM: memory.host has no room for it now (503). EINVAL: prompt
 * longer than the window (text holds both phrases of spec/serving.md 2.6) or than a budget allows,
 * or bad numbers. EUNSUPPORTED while draining (503). The job lives until weir_job_release, also
 * after DONE. */
WEIR_MUST_CHECK weir_status weir_service_submit(
    weir_service *service, weir_job **out, const weir_request *request, weir_error *error
);
/* Any thread; DONE with ECANCELED follows unless it was done */
void weir_job_cancel(weir_job *job);
/* Cancels if still running; no callback comes after it returned */
void weir_job_release(weir_job *job);

const weir_engine_facts *weir_service_facts_of(const weir_service *service);
void weir_service_stats_of(const weir_service *service, weir_service_stats *out);
/* The sequences in the batch after the last step, at most n_slots of them. Returns how many. Any
 * thread. */
int32_t weir_service_sequences_of(const weir_service *service, weir_service_sequence *out);
/* No new jobs; returns when all ended or the deadline passed (then the rest is cancelled). */
void weir_service_drain(weir_service *service, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif
