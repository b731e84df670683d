/* engine/schedule/job.h - the inside of jobs and of the service, shared by queue, planning and
 * step.
 *
 *   QUEUED -> RUNNING -> FINISHED            a job; each of its choices is one sequence in one slot
 *   choice: PREFILL -> DECODE -> ENDED       a preempted choice goes back to PREFILL with its
 *           answer as part of the prompt
 * Lock: the service's mutex guards queue, counters, and the fields of a job marked (lock). The rest
 * is the engine thread's. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/schedule/hooks.h"
#include "engine/schedule/runner.h"
#include "engine/schedule/service.h"

enum { CHOICE_MARKS = 8, CLIENT_TURNS = 64 };

typedef struct choice {
    weir_job *job;
    weir_kv_sequence *sequence; /* NULL while queued and after the end */
    int32_t index, n_answer;
    bool is_waiting; /* for the prompt of choice 0, which it will fork   */
    bool is_stalled; /* preempted: holds no pages, waits for room        */
    bool is_again; /* was preempted: what it computes was computed before */
    bool is_ended;
    bool is_torn; /* a step failed: its recurrent memory is of no use */
    bool is_lost; /* the kept text that its request cannot do without is gone */
    weir_sampler_history history; /* owned; arrays only if penalties are on */
    weir_prefix_snapshot
        marks[CHOICE_MARKS]; /* [n_marks] states of this text that the index does not have yet */
    int32_t n_marks;
    int64_t n_evicted_before; /* of the text that it goes on from, counted in its turns */
    weir_banks banks_before; /* of that text, too */
} choice;

typedef struct job_embedding job_embedding; /* embedding.c */

typedef enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_FINISHED } job_state;

struct weir_job {
    weir_service *service;
    weir_job *next; /* queue (lock), or list of running jobs */
    weir_request request; /* with own copies of prompt and bias */
    choice *choices; /* [request.n_choices] */
    int64_t serial; /* order of submission: the youngest is preempted first */
    job_state state; /* (lock) */
    bool is_released, is_awaited, in_callback; /* (lock) */
    atomic_bool is_cancelled;
    int32_t n_prompt_reported; /* prompt log-probabilities sent so far */
    int32_t n_ended;
    weir_policy_run *policy_run; /* NULL: every row stays; its texts are the choices' */
    int32_t row_limit; /* of each choice: tokens that it may come to have */
    int32_t row_peak; /* rows that it holds at once, at most */
    /* Of KV that a choice may come to hold: what it counts with for its client's budget */
    int64_t choice_bytes;
    job_embedding *embedding; /* NULL: not asked for */
    weir_usage usage;
    int64_t submitted_ns, admitted_ns, prefilled_ns;
};

typedef struct slot {
    weir_kv_sequence sequence;
    choice *owner; /* NULL: free */
} slot;

/* Something to be done on the engine thread between two steps. */
typedef struct service_call {
    void (*run)(weir_service *service, void *user);
    void *user;
    struct service_call *next;
    bool is_done;
} service_call;

struct weir_service {
    const weir_engine_facts *facts; /* borrowed from the engine */
    weir_runner *runner;
    weir_kv_store *store;
    weir_prefix *prefix; /* NULL: nothing is kept */
    weir_kv_holders holders; /* what can give up pages */
    weir_reclaim_count reclaimed[WEIR_RECLAIM_STEPS];
    weir_ledger *ledger;
    weir_ledger_payer payer; /* of jobs whose thread has none */
    size_t bytes, sampler_bytes; /* charged: arrays below, scratch */
    slot *slots; /* [facts.n_slots] */
    weir_kv_sequence *guests[2]; /* that hold pages and are no job's; NULL: none */
    const weir_service_hooks *hooks; /* borrowed; NULL: there are none */
    weir_work *works; /* [facts.n_slots] */
    choice **working; /* [facts.n_slots]: whose work it is */
    int32_t n_observed; /* works of the step that is observed */
    weir_job *running; /* list */
    weir_sampler_scratch *scratch;
    const int32_t *stop_ids; /* borrowed */
    int32_t *banned; /* stop ids, for ignore_eos */
    size_t n_stop_ids;
    int32_t chunk, busy_chunk,
        block_rows; /* both are multiples of block_rows: weir_model_block_rows */
    const weir_service_policy *policy; /* NULL: there is none */
    uint64_t turns[CLIENT_TURNS],
        n_turns; /* when each client was served last; clients may share an entry */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle; /* work: something to do; idle: a callback or a job ended */
    weir_job *queue_head, *queue_tail;
    service_call *calls; /* list (lock) */
    int32_t n_queued, n_running;
    int64_t next_serial;
    bool has_thread, is_stopping, is_draining;
    weir_service_stats stats;
    weir_service_sequence *seen; /* [facts.n_slots] (lock): the sequences after the last step */
    int32_t n_seen;
};

/* events.c: callbacks and the ends of choices and jobs. All on the engine thread, without the
 * lock. */
/* false: the caller wants this choice to end */
bool weir_job_emit(weir_job *job, const weir_event *event);
/* stop_token: -1 unless a stop id ended it */
void weir_choice_end(choice *c, weir_finish finish, int32_t stop_token);
/* Ends open choices, sends DONE */
void weir_job_finish(weir_job *job, weir_status status, const char *message);
void weir_job_free(weir_job *job);

/* reuse.c: the prefix index. */
void weir_choice_reuse(choice *c); /* its tokens are set, nothing is computed */
void weir_choice_want_states(choice *c, weir_work *work); /* before a step ... */
/* ... and after it, n_before: rows before the step */
void weir_choice_got_states(choice *c, weir_work *work, int32_t n_before, bool is_done);
void weir_choice_share(choice *c); /* others may use its whole pages from now on */
void weir_choice_keep(choice *c); /* at its end */
void weir_choice_forget(choice *c); /* instead of keep: its memory is torn */

/* embedding.c: means of hidden states. */
WEIR_MUST_CHECK weir_status weir_job_open_embedding(weir_job *job);
void weir_job_close_embedding(weir_job *job); /* idempotent */
void weir_service_begin_embedding(weir_service *service, int32_t n_works); /* before a step ... */
void weir_choice_end_embedding(choice *c, bool is_done); /* ... and after it */
/* NULL: not asked for, or not all of the prompt was computed */
const float *weir_job_embedding(weir_job *job);

/* eviction.c: policies. */
/* Of a checked request; sets row_peak */
WEIR_MUST_CHECK weir_status weir_job_open_policy_run(weir_job *job, weir_error *error);
void weir_choice_watch(choice *c); /* its sequence begins */
void weir_choice_count_before(choice *c); /* it goes on from another text, or from none */
void weir_choice_count(choice *c); /* its sequence ends: what stayed goes to the usage */
/* Rows that it may not keep after its last step go; false: there was no room, or no reading them */
bool weir_choice_apply_policy(choice *c);
/* After a step: rows are dropped */
void weir_service_evict(weir_service *service, int32_t n_works);

/* service.c: runs it on the engine thread and waits for it. From any other thread. */
void weir_service_call(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user
);

/* admission.c: who may run. */
/* The window may be longer than what memory holds, for policies that let go of a prompt as it
 * comes; others are refused what never fits, and answers without a policy end where memory does.
 * Sets row_limit and row_peak of a job whose policy is open. */
WEIR_MUST_CHECK weir_status weir_job_check_memory(weir_job *job, weir_error *error);
void weir_service_admit(weir_service *service);
/* Oldest first, when all their rows and one page more fit */
void weir_service_resume_stalled(weir_service *service);
/* Kept texts give theirs up when they are asked for */
weir_kv_pages weir_service_free_pages(const weir_service *service);
/* So many pages are free or unused in the cache, and not needed by running sequences; if the pages
 * that a hook holds would make up for what is missing, they are let go. */
bool weir_service_claim(weir_service *service, weir_kv_pages wanted);

/* step.c: planning, one step. */
void weir_service_step(weir_service *service);

/* preempt.c */
void weir_choice_preempt(choice *c); /* it gives its pages up, to be computed again */
bool weir_service_preempt(void *user, const weir_kv_sequence *behind); /* weir_kv_holders.preempt */

/* stats.c */
/* What other threads may see of slots and pages */
void weir_service_publish(weir_service *service);
