/* engine/schedule/job.h - internals of jobs and of the service, shared by queue, planning and step.
 *
 *   QUEUED -> RUNNING -> FINISHED            a job; each of its choices is one sequence in one slot
 *   choice: PREFILL -> DECODE -> ENDED       a preempted choice goes back to PREFILL with its
 *           answer as part of the prompt
 * Lock: the service's mutex guards queue, counters, and the fields of a job marked (lock). The rest
 * is the engine thread's. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "engine/constrain/constrain.h"
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/kv/prune/pruner.h"
#include "engine/schedule/ended.h"
#include "engine/schedule/hooks.h"
#include "engine/schedule/mtp.h"
#include "engine/schedule/origins.h"
#include "engine/schedule/runner.h"
#include "engine/schedule/service.h"
#include "engine/schedule/shares.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOICE_MARKS = 8 };

typedef struct sampled {
    int32_t token;
    bool is_stop; /* a stop id, which ends the answer */
    weir_status status; /* not OK: nothing was drawn, for the reason in `error` */
    weir_error error;
    weir_logprob logprob, top[WEIR_TOP_LOGPROBS]; /* if requested */
} sampled;

/* To memory for the next step (step_memory.c); NONE: it asks for none, or there is enough. */
typedef enum choice_claim { CLAIM_NONE, CLAIM_OPEN, CLAIM_MET, CLAIM_WAITS } choice_claim;

typedef struct choice {
    weir_job *job;
    weir_kv_sequence *sequence; /* NULL while queued, and when it has ended and is released */
    int32_t index, n_answer;
    bool is_waiting; /* for the prompt of choice 0, which it will fork */
    bool is_unforked; /* still, and it has its first token (fork.c) */
    bool is_stalled; /* preempted: holds no pages, waits for free ones */
    bool is_again; /* was preempted: recomputes what it had computed */
    /* The recurrent state that it continues is being read from disk: it holds no pages yet. */
    bool is_reading;
    /* Its policy is to be applied: no choice of its job is in a step meanwhile (pruning.c). */
    bool is_pruning;
    bool is_tried; /* in this call */
    /* Memory for the rows that stay, and blocks of it that it waits for. */
    weir_reclaim_need pruning_need;
    int64_t n_pruning_blocks;
    bool is_ended;
    /* When it ended: tokens of its sequence, in whole pages, that the prefix cache had. */
    int32_t n_cached_at_end;
    bool is_counted; /* its rows are in the usage of its job */
    bool is_torn; /* a step failed: its recurrent state is invalid */
    bool is_lost; /* the cached sequence that its request requires is gone */
    bool is_planned, is_skipped; /* in the plan of the next step; cannot be */
    bool is_left; /* for the second step of the iteration: it has cold blocks */
    /* As a long prompt, in that plan: did not get its share; goes before short ones (plan.c). */
    bool is_overlooked, goes_first;
    int32_t n_overlooked; /* steps since it went first, and did not stall */
    /* The block that its next rows begin in is in the lower tier, and not being read yet. */
    bool is_returning;
    int32_t item; /* its place in the plan */
    int32_t share, share_rows; /* who pays for its rows in the plan, and how much */
    choice_claim claim;
    /* Running and ahead: computes its first n_followed tokens for this one, too. NULL: none. */
    struct choice *leader;
    int32_t n_followed;
    int64_t n_inserted; /* into the prefix cache when this choice looked last */
    weir_sampler_history history; /* owned; arrays only with penalties */
    weir_grammar_state *grammar; /* owned; what it has accepted of the answer. NULL: none */
    bool in_thought; /* with a limit of reasoning: it is open, and has n_thought tokens */
    int32_t n_thought, n_end_text; /* n_end_text: bytes of thought.end_text that it ends with */
    int32_t first_sampled, n_sampled; /* of the step: its tokens in service_step.sampled */
    /* Accepted tokens whose rows the next step computes again, from the recurrent state before
     * them. */
    int32_t n_redo;
    /* Speculation: how many tokens it drafts (0: not known yet), drafts in a row that were all
     * wrong, and the length of the answer from which it drafts again. */
    int32_t draft_length, n_draft_misses, draft_from;
    choice_mtp mtp;
    bool is_drafted_by_head; /* the drafts of the step */
    float *draft_state; /* before the drafts of the step; of weir_service.draft_states, or NULL */
    /* [n_marks]: states of this sequence that are not in the index yet. */
    weir_prefix_snapshot marks[CHOICE_MARKS];
    int32_t n_marks;
    /* Its client rewrites answers: the turn is kept where its answer begins, not at its end. */
    bool is_rewritten;
    int32_t n_checkpoint; /* where a checkpoint of its prompt was inserted last (reuse_policy.c) */
    int64_t n_evicted_before; /* by the turns of the cached sequence that it continues */
    weir_bank_stats banks_before; /* banks of that sequence */
} choice;

typedef struct job_embedding job_embedding; /* defined in embedding.c */

typedef enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED } job_state;

struct weir_job {
    weir_service *service;
    weir_job *next; /* queue (lock) or list of running jobs */
    weir_request request; /* owns copies of prompt, bias and salt, which is never NULL */
    choice *choices; /* [request.n_choices] */
    int64_t serial; /* order of submission */
    int64_t deadline_ns; /* 0: none */
    /* Of jobs that started ahead of it, which was next but did not fit (queue.c). */
    int64_t rows_backfilled;
    job_state state; /* (lock) */
    bool is_awaited; /* (lock) */
    atomic_bool is_cancelled, is_released, in_callback;
    int32_t n_prompt_reported; /* prompt log-probabilities sent so far */
    int32_t n_ended, n_unreleased; /* n_unreleased: of n_ended, those that still have a slot */
    int32_t n_unforked; /* choices that are */
    int32_t fork_source; /* whose rows they fork */
    weir_policy_run *policy_run; /* NULL: keeps every row */
    int32_t row_limit; /* tokens that each choice may reach */
    int32_t row_peak; /* most rows that a choice holds at once */
    /* KV bytes that a choice is charged for in its client's budget: the most that it can hold. */
    int64_t choice_bytes;
    /* It has an item of a step that runs: nested iterations leave it alone. */
    bool is_in_step;
    bool is_reported; /* it has sent its last event (weir_job_report_end) */
    bool has_chosen_origin; /* request.cache_salt may be that of an origin since (origins.h) */
    job_embedding *embedding; /* NULL: not asked for */
    weir_usage usage;
    int64_t submitted_ns, admitted_ns, prefilled_ns;
};

typedef struct slot {
    weir_kv_sequence sequence;
    choice *owner; /* NULL: none that runs */
    /* Has ended, and its sequence is not released yet (ended.c); owner is NULL. Both NULL: free. */
    choice *ended;
} slot;

/* What a client has running. */
typedef struct client_use {
    int32_t client, n_running; /* n_running 0: a free entry */
    int64_t bytes; /* that count in its budget */
} client_use;
static inline int32_t weir_service_clients(int32_t n_slots) { return 2 * n_slots; } /* entries */

/* A function to run on the engine thread between two steps. */
typedef struct service_call {
    void (*run)(weir_service *service, void *user);
    void *user;
    struct service_call *next;
    bool is_posted; /* no thread waits for it; it may be posted again as soon as `run` begins */
    bool is_done;
} service_call;

/* A step, and what runs it. */
typedef struct service_step {
    weir_runner *runner;
    weir_batch_item *items; /* [facts.n_slots] */
    choice **choices; /* [facts.n_slots]: whose item it is */
    sampled *sampled; /* [facts.n_slots + WEIR_STEP_DRAFTS] */
    int32_t n_observed; /* items of the step that is observed */
    int32_t n_running; /* items of the step that the runner runs */
} service_step;

/* Of the items that could be in a step. */
typedef enum weir_step_kind {
    WEIR_STEP_FIRST, /* those without cold blocks, or if there are none, those with */
    WEIR_STEP_LEFT, /* those that the first one left */
    WEIR_STEP_NESTED /* those without cold blocks */
} weir_step_kind;

struct weir_service {
    const weir_engine_facts *facts; /* borrowed from the engine */
    weir_runner *runner; /* not the nested one */
    weir_kv_store *store;
    weir_pruner *pruner; /* NULL: the engine thread applies all policies */
    weir_prefix *prefix; /* NULL: nothing is cached */
    weir_kv_holders holders; /* what can free pages */
    weir_reclaim_count reclaimed[WEIR_RECLAIM_STEPS];
    weir_step_times times;
    weir_ledger *ledger;
    weir_ledger_tracker tracker; /* of jobs whose thread has none */
    size_t bytes, sampler_bytes; /* charged: the arrays below, and scratch */
    int64_t block_bytes, sink_block_bytes; /* of pages */
    bool has_news; /* jobs came or ended since statistics were published */
    slot *slots; /* [facts.n_slots] */
    /* Sequences that hold pages and belong to no job, without gaps; NULL: no more. */
    weir_kv_sequence *session_sequences[WEIR_SERVICE_SESSIONS];
    const weir_service_hooks *hooks; /* borrowed; may be NULL */
    weir_origins origins;
    service_step step; /* of this iteration */
    /* While that waits, the step of a nested iteration, and reversed; no runner: none is nested,
     * and only jobs end. */
    service_step other;
    bool is_nested;
    int32_t n_returning; /* choices that are */
    weir_reclaim_need need; /* memory for the next step, as long as some stall */
    int64_t n_short; /* blocks of it that are missing, and that policies wait for */
    weir_job *running; /* list */
    weir_sampler_scratch **samplers; /* [facts.n_samplers] */
    const int32_t *stop_ids; /* borrowed */
    int32_t *banned; /* stop ids, for ignore_eos */
    size_t n_stop_ids;
    /* Chunks are multiples of block_rows: weir_model_block_rows. Those of policies fit in a step in
     * which all others decode. */
    int32_t chunk, busy_chunk, policy_chunk, policy_busy_chunk, block_rows, step_rows, long_prompt;
    int32_t n_drafts, draft_match; /* weir_service_parts */
    weir_mtp *mtp; /* NULL: the model has no draft head */
    int32_t n_decoding; /* items of the plan that decode */
    char *draft_states; /* [WEIR_DRAFT_STATES] of facts.recurrent_bytes; NULL: none */
    bool has_draft_state[WEIR_DRAFT_STATES]; /* a choice holds it */
    /* Past rows whose attention costs a row of a prompt as much as all else; 0: unknown. */
    int64_t even_depth;
    service_pace pace;
    int32_t n_ended; /* slots whose sequence has ended and is not released */
    const weir_service_policy *policy; /* NULL: no policies */
    /* When each client was served last; clients may share an entry. */
    uint64_t last_served[CLIENT_ENTRIES], n_served;
    prompt_shares shares;
    client_use *clients; /* [weir_service_clients], of one look at the queue */

    pthread_t thread;
    pthread_mutex_t lock;
    /* work: there is something to do; idle: a callback returned or a job ended. */
    pthread_cond_t work, idle;
    weir_job *queue_head, *queue_tail;
    service_call *calls; /* list (lock) */
    int32_t n_queued, n_running;
    int64_t next_serial;
    bool has_thread, is_stopping, is_draining;
    bool sleeps; /* in nested iterations: it has a thread */
    bool has_moved; /* (lock) a block or a state, since the engine thread looked last */
    weir_service_stats stats;
    /* [info.n_slots] (lock): the sequences after the last step. */
    weir_service_sequence *seen;
    int32_t n_seen;
};

/* events.c: callbacks, and how choices and jobs end. All on the engine thread, without the lock. */

/* Returns false if the callback ends this choice. */
bool weir_job_emit(weir_job *job, const weir_event *event);
/* stop_token: the stop id that ended the choice, or -1. */
void weir_choice_end(choice *c, weir_finish finish, int32_t stop_token);
/* Ends a queued or running job whose timeout has passed. */
void weir_job_time_out(weir_job *job);
/* Ends open choices and sends DONE. The job lives on until all of them are released. */
void weir_job_finish(weir_job *job, weir_status status, const char *message);
/* The same for a job with items in the step, of which nothing more is taken. */
void weir_job_fail_in_step(weir_job *job, int32_t n_items, weir_status status, const char *message);
/* Of a job with items in a step that waits: sends the events of its end. The job ends after the
 * step, which writes to what it holds. */
void weir_job_report_end(
    weir_job *job, weir_finish finish, weir_status status, const char *message
);
void weir_job_free(weir_job *job);

/* speculation.c: drafts of the next tokens. */

/* All tokens but the last one are computed, or were accepted as drafts. */
bool weir_choice_is_decoding(const choice *c);
/* Adds drafts to the plan. */
void weir_service_draft(weir_service *service, int32_t n_items);
/* Opens and frees the states before drafts. */
WEIR_MUST_CHECK weir_status weir_service_open_drafts(weir_service *service, weir_error *error);
void weir_service_close_drafts(weir_service *service);
/* Called before a step, when all other states are requested: asks for the one before the drafts. */
void weir_choice_want_draft_state(choice *c, weir_batch_item *item);
/* Called when `n` drafts are right, before the token after them is reported; n = 1, 2, ... */
void weir_choice_accept(choice *c, const weir_batch_item *item, int32_t n);
/* The sequence goes back to that state, unless all drafts are right or nothing was computed.
 * Idempotent. */
void weir_choice_end_draft(choice *c, bool keeps_state);
/* Sets how much the choice drafts from now on. */
void weir_choice_learn(choice *c, int32_t n_drafts, int32_t n_accepted);
/* Rows of drafts that its sequence can have in the next step; at most 0: none. */
int32_t weir_choice_draft_rows(const choice *c);
/* mtp.c: drafts by the model's head. */

WEIR_MUST_CHECK weir_status weir_service_open_mtp(weir_service *service, weir_error *error);
void weir_service_close_mtp(weir_service *service);
/* Called after a step, when its tokens are drawn: computes drafts of the next ones. */
void weir_service_follow_step(weir_service *service, int32_t n_items);
/* Returns how many drafts it has for its next step, at most `most`, written to `out`. */
int32_t weir_choice_take_drafts(const choice *c, int32_t *out, int32_t most);
/* For weir_choice_learn. */
void weir_choice_learn_mtp(choice *c, int32_t n_drafts, int32_t n_accepted);

/* reuse.c: the prefix index. */

/* Called when the choice has its tokens and nothing is computed; again before each step as long as
 * it is reading. */
void weir_choice_reuse(choice *c);
/* Called before a step. */
void weir_choice_want_states(choice *c, weir_batch_item *item);
/* Called after a step; n_before: rows before it. */
void weir_choice_got_states(choice *c, weir_batch_item *item, int32_t n_before, bool is_done);
/* True if it may take what others compute while it runs. */
bool weir_choice_can_follow(const choice *c);
/* Of the first n tokens, which both have: how many `c` can take once `leader` has computed them. */
int32_t weir_choice_rows_from(const choice *leader, const choice *c, int32_t n);
/* Takes what others have computed of its tokens since it looked last. */
void weir_choice_look_again(choice *c);
/* The last position at or before `at` where others can continue it while it runs. */
int32_t weir_choice_cut_page(const choice *c, int32_t at);
/* Lets others share its whole pages from now on. */
void weir_choice_share(choice *c);
/* Called at its end: inserts the sequence into the index. */
void weir_choice_keep(choice *c);
/* Called when it is preempted: inserts what it computed, which stays until pages are needed. */
void weir_choice_keep_preempted(choice *c);
/* Called instead of keep if its recurrent state is invalid. */
void weir_choice_forget(choice *c);
/* True if its rows may be cached. */
bool weir_choice_may_keep(const choice *c);
/* Where the answer begins, which is not known of a prompt without messages. */
int32_t weir_choice_answer_start(const choice *c);
bool weir_choice_is_rewritten(const choice *c);

/* reuse_policy.c: the same for sequences with a policy. */

/* For weir_choice_reuse. */
weir_prefix_hit weir_choice_reuse_policy(choice *c);
/* For weir_choice_keep: the end of the turn. */
void weir_choice_keep_policy(choice *c);
/* Called after a step, before the policy is applied: inserts a prompt into the index. */
void weir_choice_keep_prompt(choice *c);
/* Called after a step, when the policy was applied: inserts a checkpoint of the prompt. */
void weir_choice_keep_checkpoint(choice *c);
/* The last position up to n where a prompt with a policy that observes every step will leave, or
 * has left, a checkpoint (reuse_policy.c); 0: none. */
int32_t weir_choice_next_checkpoint(const choice *c, int32_t n);

/* origins.c: sequences of other numerics. */

/* Called before the first lookup: sets the salt under which the job is cached. */
void weir_choice_choose_origin(choice *c);
/* A copy with room for an origin's mark. salt NULL: none. Returns NULL if there is no memory. */
char *weir_job_copy_salt(const char *salt);

/* embedding.c: embeddings of prompts. */
WEIR_MUST_CHECK weir_status weir_job_open_embedding(weir_job *job);
void weir_job_close_embedding(weir_job *job); /* idempotent */
void weir_service_begin_embedding(weir_service *service, int32_t n_items); /* before a step */
void weir_choice_end_embedding(choice *c, bool is_done); /* after a step */
/* Returns NULL if none was requested or the prompt is not fully computed. */
const float *weir_job_embedding(weir_job *job);

/* eviction.c: policies. */

/* Requires a checked request. Sets row_peak. */
WEIR_MUST_CHECK weir_status weir_job_open_policy_run(weir_job *job, weir_error *error);
/* Attaches the policy when its sequence begins. */
void weir_choice_watch(choice *c);
/* Sets the eviction counts of the sequence that it continues, or zero. */
void weir_choice_count_before(choice *c);
/* Called when its sequence ends: adds its row counts to the usage. Idempotent. */
void weir_choice_count(choice *c);

/* pruning.c: applying them. */

/* True if a choice of the job stalls because of its policy. */
bool weir_job_is_pruning(const weir_job *job);
/* True while the thread reads or moves its rows: it cannot be preempted. */
bool weir_choice_is_pruned_by_thread(const choice *c);
/* Called when it ends or is preempted. */
void weir_choice_stop_pruning(choice *c);
/* Drops the rows past its budget after its last step. Returns false, with the reason, if that would
 * take time, there is no memory for it, or rows cannot be read. */
bool weir_choice_apply_policy(choice *c, const char **why);
/* Called after a step: drops rows of the batch items' sequences. */
void weir_service_evict(weir_service *service, int32_t n_items);
/* Called before a step: goes on with those that stall. n_items: of the running step, or 0. */
void weir_service_prune(weir_service *service, int32_t n_items);

/* service.c: runs a function on the engine thread and waits for it. Callable from any other
 * thread. */
void weir_service_call(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user
);

/* The same without waiting; `call` stays valid until then. */
void weir_service_post_call(weir_service *service, service_call *call);

/* admission.c: which jobs may run. */

/* Refuses a job that can never fit. With a policy that drops prompt rows while they come, the
 * window may be longer than memory; without a policy, answers end where memory does. Sets row_limit
 * and row_peak of a job whose policy is open. */
WEIR_MUST_CHECK weir_status weir_job_check_memory(weir_job *job, weir_error *error);
void weir_service_admit(weir_service *service);
/* Ends running jobs that are cancelled or late, those in a step that waits only for their
 * clients. */
void weir_service_end_over(weir_service *service);
/* In order, while all their rows and one more page fit. What runs behind the first one that does
 * not fit is preempted for it, if that may help. None while pace.is_preempting. */
void weir_service_resume_stalled(weir_service *service);
/* True if the table of a fork with n_rows leaves what those that stall before it in order wait
 * for. */
bool weir_choice_may_fork(const choice *c, int64_t n_rows);
/* Starts the choices whose state has been read. */
void weir_service_start_read(weir_service *service);
/* Free pages, including those of cached sequences that can be dropped. */
weir_kv_pages weir_service_free_pages(const weir_service *service);
/* True if `wanted` pages are free or unused in the cache, and not needed by running sequences.
 * Releases the pages that a hook holds if they would cover what is missing. */
bool weir_service_claim(weir_service *service, weir_kv_pages wanted);
/* True if running sequences do not need the memory that a table of n_rows takes. */
bool weir_service_spares_table(const weir_service *service, int64_t n_rows);

/* plan.c: fills items and choices of the next step. Returns how many. */
int32_t weir_service_plan(weir_service *service);
/* Called after a step: counts the long prompts that were skipped in its plan. */
void weir_service_count_overlooked(const weir_service *service);

/* fork.c: choices that fork the prompt of choice 0. */

/* It has its tokens, and can draw its first one; its rows follow. */
void weir_choice_wait_to_fork(choice *c);
/* Gives those of all jobs their rows, as many as may in this iteration; the others stall if there
 * is no memory for their tables. */
void weir_service_fork(weir_service *service);
/* Called when it ends: if others fork its rows, the last one does now, and is forked in its
 * place. */
void weir_choice_hand_over(const choice *c);
/* True if others are to fork its rows: it is in no step meanwhile. */
static inline bool weir_choice_is_held(const choice *c)
{
    return c->job->n_unforked > 0 && c->job->fork_source == c->index;
}
/* Called before it loses its rows: those that are to fork them stall. */
void weir_choice_stall_forks(const choice *c);
/* Called when it ends, and when its job does: nothing is forked any more. */
void weir_choice_leave_fork(choice *c);
void weir_job_forget_forks(weir_job *job);

/* step_memory.c: finds memory for the plan, begins to read the blocks of those that are returning,
 * and takes items out that have to wait. Returns EFULL if nothing more can be freed. */
WEIR_MUST_CHECK weir_status
weir_service_find_memory(weir_service *service, int32_t *n_items, weir_error *error);
/* The step failed for lack of it. Returns OK if something was freed; true in `waits`: it will be
 * when a move has ended. */
WEIR_MUST_CHECK weir_status
weir_service_free_memory(weir_service *service, int32_t n_items, bool *waits);

/* follow.c: the choice that computes what c needs next, which may be c. */
choice *weir_choice_leader(choice *c);
/* Called when a leader ends or is preempted. */
void weir_choice_release_followers(const choice *leader);

/* sample.c: draws the next token of the choice from its logits. */
void weir_choice_sample(
    choice *c, const float *row, int32_t ahead, sampled *out, weir_sampler_scratch *scratch
);
/* The logits after the last token of an item; NULL if it has more to compute, or failed. */
const float *weir_service_last_row(
    const weir_service *service, const weir_batch_item *item, const float *logits
);
/* Draws for all items of a step that have these. */
void weir_service_sample(weir_service *service, int32_t n_items, const float *logits);

/* service.c: what the engine thread does between two waits: ends moves, runs calls, admits jobs,
 * and unless it is the last iteration takes a step. Returns false if no sequence could be
 * computed. */
bool weir_service_iterate(weir_service *service, bool is_last);

/* service.c: with the lock: sleeps until there may be something new to do, or some milliseconds.
 * serial: next_serial when jobs were looked at last. */
void weir_service_sleep(weir_service *service, int64_t serial);

/* nested.c: an iteration within a step that waits (weir_runner_run_others). user: the service. */
bool weir_service_iterate_nested(void *user);
/* True in a nested iteration for one with cold blocks: it is in none of its steps. */
bool weir_choice_is_for_later(const choice *c);
/* Keeps the items of a kind; n_left: how many others there were. Returns the number of items. */
int32_t weir_service_keep_kind(
    weir_service *service, int32_t n_items, weir_step_kind kind, int32_t *n_left
);

/* step.c: one step, or two if some have cold blocks. Returns false if no sequence could be
 * computed. */
bool weir_service_step(weir_service *service);

/* preempt.c: order of choices: by priority, then by submission. */
bool weir_choice_is_before(const choice *a, const choice *b);
/* Frees its pages; it is computed again later. */
void weir_choice_preempt(choice *c);
/* For weir_kv_holders.preempt. */
bool weir_service_preempt(void *user, const weir_kv_sequence *after);

/* stats.c: publishes slots and pages for other threads. */
void weir_service_publish(weir_service *service);

#ifdef __cplusplus
}
#endif
