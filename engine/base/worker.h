/* engine/base/worker.h - a thread that works for others, with the lock and the condition that they
 * share. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_worker {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* not held over I/O */
    pthread_cond_t changed; /* any thread may wait for it */
    bool is_closing; /* (lock) `run` returns soon */
    /* (lock) Called by the thread, without the lock, after each piece of work; NULL: none. */
    void (*listener)(void *user);
    void *listener_user;
    bool is_telling; /* (lock) the listener is being called */
} weir_worker;

/* Starts a thread that calls run(user). WEIR_ENOMEM: it cannot be started; `purpose` completes "the
 * thread that ...". The worker must stay where it is until it is closed. */
WEIR_MUST_CHECK weir_status weir_worker_open(
    weir_worker *worker, void *(*run)(void *user), void *user, const char *purpose,
    weir_error *error
);
/* Sets is_closing and waits until `run` returns. Does nothing if the worker is all zero. */
void weir_worker_close(weir_worker *worker);

void weir_worker_lock(weir_worker *worker);
void weir_worker_unlock(weir_worker *worker);
/* Require the lock: waits until another thread calls `wake`, or for no reason. */
void weir_worker_wait(weir_worker *worker);
void weir_worker_wait_for(weir_worker *worker, int64_t ns); /* at most this long */
void weir_worker_wake(weir_worker *worker); /* all that wait */

/* Sets the function that the worker's thread calls when a piece of work is done; NULL: none. The
 * one before is not called any more when this returns. Does nothing if the worker is all zero. */
void weir_worker_listen(weir_worker *worker, void (*listener)(void *user), void *user);
/* The worker's thread, with the lock: a piece of work is done. Wakes all, and calls the listener,
 * for which it releases the lock. */
void weir_worker_report(weir_worker *worker);

#ifdef __cplusplus
}
#endif
