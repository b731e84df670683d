/* engine/serve/workers.c - a queue of exchanges and the threads that serve it. */
#include <stdlib.h>
#include <string.h>

#include "engine/serve/internal.h"

static void enqueue(weir_workers *workers, weir_exchange *exchange)
{
    exchange->next_work = NULL;
    exchange->queued = true;
    if (workers->last != NULL)
        workers->last->next_work = exchange;
    else
        workers->first = exchange;
    workers->last = exchange;
    (void)pthread_cond_signal(&workers->wake);
}

/* Requires the lock. */
static void add(weir_workers *workers, weir_exchange *exchange, unsigned work)
{
    exchange->work |= work;
    if (!exchange->queued && !exchange->worked_on) enqueue(workers, exchange);
}

void weir_workers_add(weir_workers *workers, weir_exchange *exchange, unsigned work)
{
    (void)pthread_mutex_lock(&workers->lock);
    add(workers, exchange, work);
    (void)pthread_mutex_unlock(&workers->lock);
}

void weir_workers_hold(weir_workers *workers, weir_exchange *exchange)
{
    (void)pthread_mutex_lock(&workers->lock);
    exchange->n_held++;
    workers->n_held++;
    (void)pthread_mutex_unlock(&workers->lock);
}

void weir_workers_release(weir_workers *workers, weir_exchange *exchange)
{
    (void)pthread_mutex_lock(&workers->lock);
    exchange->n_held--;
    workers->n_held--;
    add(workers, exchange, WEIR_WORK_ADVANCE);
    if (workers->stop) (void)pthread_cond_broadcast(&workers->wake);
    (void)pthread_mutex_unlock(&workers->lock);
}

bool weir_workers_drop(weir_workers *workers, weir_exchange *exchange)
{
    (void)pthread_mutex_lock(&workers->lock);
    const bool is_idle = !exchange->queued && !exchange->worked_on;
    const bool is_free = is_idle && exchange->generation == NULL && exchange->n_held == 0;
    if (!is_free) exchange->work |= WEIR_WORK_DESTROY;
    if (!is_free && is_idle) enqueue(workers, exchange);
    (void)pthread_mutex_unlock(&workers->lock);
    return is_free;
}

static weir_exchange *dequeue(weir_workers *workers)
{
    weir_exchange *const exchange = workers->first;
    workers->first = exchange->next_work;
    if (workers->first == NULL) workers->last = NULL;
    exchange->queued = false;
    exchange->worked_on = true;
    return exchange;
}

static bool is_wanted(weir_exchange *exchange)
{
    (void)pthread_mutex_lock(&exchange->lock);
    const bool wanted = !exchange->gone;
    (void)pthread_mutex_unlock(&exchange->lock);
    return wanted;
}

/* Requires the lock; releases it while working. */
static void serve_one(weir_workers *workers)
{
    weir_exchange *const exchange = dequeue(workers);
    const unsigned work = exchange->work;
    const bool is_held = exchange->n_held > 0;
    exchange->work = 0;
    (void)pthread_mutex_unlock(&workers->lock);
    if ((work & WEIR_WORK_DESTROY) != 0 && is_held) {
        weir_exchange_abandon(exchange);
        (void)pthread_mutex_lock(&workers->lock);
        exchange->worked_on = false;
        exchange->work |= WEIR_WORK_DESTROY; /* when it is released */
        if (exchange->n_held == 0) enqueue(workers, exchange);
        return;
    }
    if (work & WEIR_WORK_DESTROY) {
        weir_exchange_destroy(exchange);
        (void)pthread_mutex_lock(&workers->lock);
        return;
    }
    if ((work & WEIR_WORK_START) != 0 && is_wanted(exchange)) weir_exchange_run(exchange);
    if ((work & WEIR_WORK_ABANDON) != 0 && is_held) weir_exchange_abandon(exchange);
    if (work & WEIR_WORK_ADVANCE) {
        (void)weir_memory_tracker_set(weir_exchange_tracker(exchange));
        weir_exchange_advance(exchange);
        (void)weir_memory_tracker_set(workers->tracker);
    }
    (void)pthread_mutex_lock(&workers->lock);
    exchange->worked_on = false;
    if (exchange->work != 0) enqueue(workers, exchange);
}

static void *run(void *argument)
{
    weir_workers *const workers = argument;
    (void)weir_memory_tracker_set(workers->tracker);
    (void)pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (workers->first == NULL && (!workers->stop || workers->n_held > 0))
            (void)pthread_cond_wait(&workers->wake, &workers->lock);
        if (workers->first == NULL) break;
        serve_one(workers);
    }
    (void)pthread_mutex_unlock(&workers->lock);
    return NULL;
}

weir_status weir_workers_start(
    weir_workers *workers, int n_threads, weir_memory_tracker *tracker, weir_error *error
)
{
    workers->tracker = tracker;
    workers->threads = calloc((size_t)n_threads, sizeof *workers->threads);
    if (workers->threads == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %d worker threads", n_threads);
    for (int i = 0; i < n_threads; i++) {
        if (pthread_create(&workers->threads[i], NULL, run, workers) != 0)
            return weir_error_set(
                error, WEIR_ENOMEM, "cannot start worker thread %d of the server", i
            );
        workers->n_threads++;
    }
    return WEIR_OK;
}

void weir_workers_stop(weir_workers *workers)
{
    (void)pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    (void)pthread_cond_broadcast(&workers->wake);
    (void)pthread_mutex_unlock(&workers->lock);
    for (int i = 0; i < workers->n_threads; i++) (void)pthread_join(workers->threads[i], NULL);
    free(workers->threads);
    workers->threads = NULL;
    workers->n_threads = 0;
}
