#include "engine/base/worker.h"

#include "engine/base/clock.h"

weir_status weir_worker_open(
    weir_worker *worker, void *(*run)(void *user), void *user, const char *purpose,
    weir_error *error
)
{
    worker->is_closing = false;
    (void)pthread_mutex_init(&worker->lock, NULL);
    (void)pthread_cond_init(&worker->changed, NULL);
    worker->has_thread = pthread_create(&worker->thread, NULL, run, user) == 0;
    if (worker->has_thread) return WEIR_OK;
    (void)pthread_cond_destroy(&worker->changed);
    (void)pthread_mutex_destroy(&worker->lock);
    return weir_error_set(error, WEIR_ENOMEM, "the thread that %s cannot be started", purpose);
}

void weir_worker_close(weir_worker *worker)
{
    if (!worker->has_thread) return;
    weir_worker_lock(worker);
    worker->is_closing = true;
    weir_worker_wake(worker);
    weir_worker_unlock(worker);
    (void)pthread_join(worker->thread, NULL);
    (void)pthread_cond_destroy(&worker->changed);
    (void)pthread_mutex_destroy(&worker->lock);
    worker->has_thread = false;
}

void weir_worker_lock(weir_worker *worker) { (void)pthread_mutex_lock(&worker->lock); }

void weir_worker_unlock(weir_worker *worker) { (void)pthread_mutex_unlock(&worker->lock); }

void weir_worker_wait(weir_worker *worker)
{
    (void)pthread_cond_wait(&worker->changed, &worker->lock);
}

void weir_worker_wait_for(weir_worker *worker, int64_t ns)
{
    const struct timespec until = weir_clock_after(CLOCK_MONOTONIC, ns);
    (void)pthread_cond_clockwait(&worker->changed, &worker->lock, CLOCK_MONOTONIC, &until);
}

void weir_worker_wake(weir_worker *worker) { (void)pthread_cond_broadcast(&worker->changed); }

void weir_worker_listen(weir_worker *worker, void (*listener)(void *user), void *user)
{
    if (!worker->has_thread) return;
    weir_worker_lock(worker);
    worker->listener = listener;
    worker->listener_user = user;
    while (worker->is_telling) weir_worker_wait(worker);
    weir_worker_unlock(worker);
}

void weir_worker_report(weir_worker *worker)
{
    void (*const listener)(void *user) = worker->listener;
    void *const user = worker->listener_user;
    if (listener != NULL) {
        worker->is_telling = true;
        weir_worker_unlock(worker);
        listener(user);
        weir_worker_lock(worker);
        worker->is_telling = false;
    }
    weir_worker_wake(worker);
}
