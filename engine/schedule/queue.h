/* engine/schedule/queue.h - the queue of jobs, and which is next. */
#pragma once
#include "engine/schedule/job.h"

/* The jobs that were queued at some time. Submitters append jobs with the lock, and the engine
 * thread alone removes them, so it reads these without it. */
typedef struct weir_queue {
    weir_job *first, *last; /* NULL: empty */
} weir_queue;
weir_queue weir_queue_look(weir_service *service);
/* NULL: it is the last one. */
weir_job *weir_queue_after(const weir_queue *queue, const weir_job *job);
void weir_queue_remove(
    weir_service *service, const weir_queue *queue, weir_job *job, job_state state
);
/* A job that is next and does not fit, and what is free: to find one that does. */
typedef struct weir_queue_past {
    const weir_job *waiting;
    weir_kv_pages available;
    int32_t n_slots;
} weir_queue_past;
/* The next job; past != NULL: the one that may start ahead of it. NULL: none. */
weir_job *weir_queue_next(
    weir_service *service, const weir_queue *queue, const weir_queue_past *past
);
/* Rows of all its choices at most, in whole pages. */
int64_t weir_job_rows(const weir_job *job);
/* Its client is the one that was served last. */
void weir_job_count_served(const weir_job *job);
