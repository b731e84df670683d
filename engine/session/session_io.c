/* engine/session/session_io.c - the order of jobs and the threads that do them. Jobs begin in order
 * of arrival, except those whose turn has not come: one job at a time has a file, each that moves a
 * sequence a transfer, and writes leave one transfer to reads (docs/decisions/0041). */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/session/session_internal.h"

enum { JOB_NEW, JOB_ASKED, JOB_WAITING, JOB_ACTIVE, JOB_DONE };

/* ---- the queue; requires the lock ------------------------------------------------------------ */
static void append(session_queue *queue, weir_session_job *job)
{
    job->next = NULL;
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
}

static void wait_for_turn(weir_sessions *s, weir_session_job *job)
{
    append(&s->waiting, job);
    job->stage = JOB_WAITING;
    (void)pthread_cond_broadcast(&s->changed);
}

static void take_out(session_queue *queue, weir_session_job *job)
{
    weir_session_job *before = NULL;
    for (weir_session_job *j = queue->first; j != job; j = j->next) before = j;
    *(before != NULL ? &before->next : &queue->first) = job->next;
    if (queue->last == job) queue->last = before;
}

static bool moves_sequence(const weir_session_job *job)
{
    return job->work != WEIR_SESSION_DELETE && job->work != WEIR_SESSION_LIST &&
           job->work != WEIR_SESSION_TASK;
}

static bool saves(const weir_session_job *job)
{
    return job->work == WEIR_SESSION_SAVE || job->work == WEIR_SESSION_WRITE ||
           job->work == WEIR_SESSION_SAVE_RECENT;
}

/* A task saves through other jobs, which it waits for: it counts as none. */
static bool is_for_savers(const weir_session_job *job)
{
    return saves(job) || (job->work == WEIR_SESSION_TASK && !job->reads);
}

static bool fills_pages(const weir_session_job *job) { return moves_sequence(job) && !saves(job); }

static bool has_file(const weir_session_job *job, const char *file)
{
    return job->file[0] != '\0' && strcmp(job->file, file) == 0;
}

static bool is_file_taken(const weir_sessions *s, const char *file)
{
    for (const weir_session_job *j = s->active; j != NULL; j = j->next)
        if (has_file(j, file)) return true;
    return false;
}

/* Jobs that came earlier for the same file go first. */
static bool is_first_for_file(const weir_sessions *s, const weir_session_job *job)
{
    for (const weir_session_job *j = s->waiting.first; j != job; j = j->next)
        if (has_file(j, job->file)) return false;
    return true;
}

static bool may_begin(const weir_sessions *s, const weir_session_job *job)
{
    const int most_saving = s->n_transfers > 1 ? s->n_transfers - 1 : 1;
    if (moves_sequence(job) && s->n_free == 0) return false;
    if (saves(job) && s->n_saving >= most_saving) return false;
    return job->file[0] == '\0' || (!is_file_taken(s, job->file) && is_first_for_file(s, job));
}

static void begin(weir_sessions *s, weir_session_job *job)
{
    take_out(&s->waiting, job);
    job->next = s->active;
    s->active = job;
    job->stage = JOB_ACTIVE;
    job->is_again = false;
    s->n_saving += saves(job);
    if (!moves_sequence(job)) return;
    job->transfer = s->free_transfers[--s->n_free];
    job->transfer->progress = (weir_session_progress){ 0 };
}

static void end(weir_sessions *s, weir_session_job *job)
{
    weir_session_job **at = &s->active;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    s->n_saving -= saves(job);
    if (job->transfer != NULL) s->free_transfers[s->n_free++] = job->transfer;
    job->transfer = NULL;
    job->stage = JOB_DONE;
    if (job->is_again && !job->is_cancelled)
        wait_for_turn(s, job);
    else if (job->is_again)
        job->status = WEIR_ECANCELED;
    (void)pthread_cond_broadcast(&s->changed);
}

bool session_job_take_file(weir_sessions *sessions, weir_session_job *job, const char *name)
{
    (void)pthread_mutex_lock(&sessions->lock);
    if (!has_file(job, name)) {
        job->is_again = is_file_taken(sessions, name);
        (void)snprintf(job->file, sizeof job->file, "%s", name);
    }
    const bool is_taken = !job->is_again;
    (void)pthread_mutex_unlock(&sessions->lock);
    return is_taken;
}

/* ---- on a thread of the caller --------------------------------------------------------------- */
static void enter(weir_session_job *job)
{
    const char *const wanted = job->path != NULL ? job->path : job->name;
    const char *const file =
        job->work != WEIR_SESSION_RESUME ? wanted : NULL; /* it may be cached */
    const size_t n = file != NULL ? strlen(file) : 0, most = sizeof job->file - 1;
    /* The end of a long path: at worst jobs wait that need not. */
    (void
    )snprintf(job->file, sizeof job->file, "%s", n == 0 ? "" : file + (n > most ? n - most : 0));
}

void session_job_run_here(weir_sessions *sessions, weir_session_job *job)
{
    job->is_here = true;
    enter(job);
    (void)pthread_mutex_lock(&sessions->lock);
    wait_for_turn(sessions, job);
    do {
        while (!may_begin(sessions, job))
            (void)pthread_cond_wait(&sessions->changed, &sessions->lock);
        begin(sessions, job);
        (void)pthread_mutex_unlock(&sessions->lock);
        session_job_do(sessions, job);
        (void)pthread_mutex_lock(&sessions->lock);
        end(sessions, job);
    } while (job->stage == JOB_WAITING);
    (void)pthread_mutex_unlock(&sessions->lock);
}

/* ---- on threads of the sessions -------------------------------------------------------------- */
static weir_session_job *next_asked(weir_sessions *s)
{
    (void)pthread_mutex_lock(&s->lock);
    weir_session_job *const job = s->asked.first;
    if (job != NULL) {
        take_out(&s->asked, job);
        job->stage = JOB_ACTIVE;
    } else
        s->is_asking = false;
    (void)pthread_mutex_unlock(&s->lock);
    return job;
}

/* On the engine thread: most requests continue what is cached, and wait for no file of others. */
static void answer_asked(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    (void)service;
    for (weir_session_job *job = next_asked(s); job != NULL; job = next_asked(s)) {
        const bool is_cached = session_job_is_cached(s, job);
        (void)pthread_mutex_lock(&s->lock);
        const bool is_over = is_cached || job->is_cancelled;
        if (job->is_cancelled) job->status = WEIR_ECANCELED;
        if (is_over)
            job->stage = JOB_DONE;
        else
            wait_for_turn(s, job);
        (void)pthread_mutex_unlock(&s->lock);
        if (is_over) job->done(job);
    }
}

void weir_sessions_post(weir_sessions *sessions, weir_session_job *job)
{
    const bool may_be_cached = job->work == WEIR_SESSION_RESUME || job->work == WEIR_SESSION_RECALL;
    enter(job);
    (void)pthread_mutex_lock(&sessions->lock);
    WEIR_ASSERT(sessions->n_threads > 0);
    if (may_be_cached) {
        append(&sessions->asked, job);
        job->stage = JOB_ASKED;
    } else
        wait_for_turn(sessions, job);
    const bool asks = may_be_cached && !sessions->is_asking;
    if (asks) sessions->is_asking = true;
    (void)pthread_mutex_unlock(&sessions->lock);
    if (!asks) return;
    sessions->ask = (service_call){ .run = answer_asked, .user = sessions };
    weir_service_post_call(sessions->service, &sessions->ask);
}

void weir_sessions_cancel(weir_sessions *sessions, weir_session_job *job)
{
    (void)pthread_mutex_lock(&sessions->lock);
    const bool is_asked = job->stage == JOB_ASKED,
               is_waiting = is_asked || job->stage == JOB_WAITING;
    job->is_cancelled = true;
    if (is_waiting) {
        take_out(is_asked ? &sessions->asked : &sessions->waiting, job);
        job->stage = JOB_DONE;
        (void)pthread_cond_broadcast(&sessions->changed);
    } else if (job->stage == JOB_ACTIVE && job->transfer != NULL && fills_pages(job)) {
        __atomic_store_n(&job->transfer->progress.is_stopped, true, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    if (!is_waiting) return;
    job->status = weir_error_set(&job->error, WEIR_ECANCELED, "cancelled before it began");
    job->done(job);
}

/* The first thread leaves saves and tasks to the others, and those leave to it what it is free
 * for. */
static weir_session_job *next_job(const weir_sessions *s, bool is_first)
{
    for (weir_session_job *j = s->waiting.first; j != NULL; j = j->next) {
        const bool is_mine = s->n_threads == 1 || is_for_savers(j) != is_first;
        if (!j->is_here && (is_mine || (!is_first && s->is_first_busy)) && may_begin(s, j))
            return j;
    }
    return NULL;
}

/* Writes give way to the engine, for the processor and for the disk. A thread cannot undo
 * that. */
static void step_back(void)
{
    enum { WHO_THREAD = 1, CLASS_BEST_EFFORT = 2, CLASS_SHIFT = 13, LOWEST = 7, NICE = 10 };
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    (void)syscall(SYS_ioprio_set, WHO_THREAD, 0, CLASS_BEST_EFFORT << CLASS_SHIFT | LOWEST);
}

static void *do_jobs(void *user)
{
    weir_sessions *const s = user;
    (void)pthread_mutex_lock(&s->lock);
    const bool is_first = !s->has_first;
    s->has_first = true;
    if (!is_first) step_back();
    for (;;) {
        weir_session_job *const job = next_job(s, is_first);
        if (job == NULL && s->is_closing && s->waiting.first == NULL) break;
        if (job == NULL) {
            (void)pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        begin(s, job);
        s->is_first_busy = s->is_first_busy || is_first;
        (void)pthread_cond_broadcast(&s->changed);
        (void)pthread_mutex_unlock(&s->lock);
        weir_memory_tracker *const before = weir_memory_tracker_set(job->tracker);
        session_job_do(s, job);
        (void)weir_memory_tracker_set(before);
        (void)pthread_mutex_lock(&s->lock);
        end(s, job);
        if (is_first) s->is_first_busy = false;
        if (job->stage == JOB_WAITING) continue;
        (void)pthread_mutex_unlock(&s->lock);
        job->done(job); /* which may free it */
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

weir_status session_threads_open(weir_sessions *sessions, int n, weir_error *error)
{
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&sessions->lock);
    for (int i = 0; i < n && status == WEIR_OK; i++) {
        if (pthread_create(&sessions->threads[i], NULL, do_jobs, sessions) == 0)
            sessions->n_threads++;
        else
            status =
                weir_error_set(error, WEIR_ENOMEM, "cannot start thread %d of the sessions", i);
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    return status;
}

void session_threads_close(weir_sessions *sessions)
{
    (void)pthread_mutex_lock(&sessions->lock);
    sessions->is_closing = true;
    (void)pthread_cond_broadcast(&sessions->changed);
    (void)pthread_mutex_unlock(&sessions->lock);
    for (int i = 0; i < sessions->n_threads; i++) (void)pthread_join(sessions->threads[i], NULL);
    sessions->n_threads = 0;
}

/* ---- pauses ---------------------------------------------------------------------------------- */
static bool is_computing(const weir_sessions *s)
{
    weir_service_stats stats;
    weir_service_stats_of(s->service, &stats);
    return stats.running > 0;
}

/* With the lock. Returns false when the time is over. */
static bool wait_until(const session_pause *pause, int64_t until_ns)
{
    const struct timespec until = { .tv_sec = until_ns / 1000000000,
                                    .tv_nsec = until_ns % 1000000000 };
    return pthread_cond_clockwait(pause->changed, pause->lock, CLOCK_MONOTONIC, &until) == 0;
}

void session_give_way(weir_sessions *sessions, const session_pause *pause, int64_t ns)
{
    const int64_t until_ns = weir_clock_ns() + ns;
    bool is_counted = false;
    /* The service has a lock of its own, so it is asked without this one. */
    for (bool goes_on = true; goes_on && is_computing(sessions);) {
        (void)pthread_mutex_lock(pause->lock);
        goes_on = !pause->is_over(pause->user);
        if (goes_on && !is_counted) atomic_fetch_add(&sessions->n_pauses, 1);
        is_counted = true;
        goes_on = goes_on && wait_until(pause, until_ns);
        (void)pthread_mutex_unlock(pause->lock);
    }
}

int64_t weir_sessions_pauses(const weir_sessions *sessions)
{
    return atomic_load(&sessions->n_pauses);
}

/* ---- what goes on ---------------------------------------------------------------------------- */
void weir_sessions_activity_of(weir_sessions *sessions, weir_session_activity *out)
{
    *out = (weir_session_activity){ 0 };
    (void)pthread_mutex_lock(&sessions->lock);
    for (int i = 0; i < SESSION_WRITERS; i++) out->saving += sessions->pending[i].name[0] != '\0';
    for (const weir_session_job *j = sessions->active; j != NULL; j = j->next)
        out->restoring +=
            fills_pages(j) && __atomic_load_n(&j->transfer->progress.total, __ATOMIC_RELAXED) > 0;
    for (const weir_session_job *j = sessions->waiting.first; j != NULL; j = j->next)
        out->waiting++;
    (void)pthread_mutex_unlock(&sessions->lock);
}
