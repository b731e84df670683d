/* engine/session/state_embedding.c - vectors of documents, computed by the engine. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/session/state_service.h"

static bool on_event(void *user, const weir_event *event)
{
    weir_embedding *const e = user;
    if (event->type != WEIR_EVENT_DONE) return true;
    e->has_vector = event->embedding != NULL;
    if (e->has_vector) memcpy(e->vector, event->embedding, e->dim * sizeof *e->vector);
    e->status = event->status;
    (void
    )snprintf(e->message, sizeof e->message, "%s", event->message != NULL ? event->message : "");
    e->done(e->user);
    return true;
}

weir_status weir_embedding_begin(
    weir_embedding *embedding, const weir_state_service *documents, const weir_document *document,
    bool keeps, weir_error *error
)
{
    embedding->dim = (size_t)weir_service_facts_of(documents->service)->d_model;
    embedding->vector = weir_memory_take(embedding->dim * sizeof *embedding->vector);
    if (embedding->vector == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for an embedding");
    const weir_request request = { .prompt = document->tokens,
                                   .n_prompt = document->n_tokens,
                                   .n_choices = 1,
                                   .cache_prompt = keeps,
                                   .want_embedding = true,
                                   .sampling = weir_sampling_default(),
                                   .cache_salt = document->salt,
                                   .client = document->client,
                                   .callback = on_event,
                                   .user = embedding };
    return weir_service_submit(documents->service, &embedding->job, &request, error);
}

weir_status weir_embedding_end(weir_embedding *embedding, weir_error *error)
{
    weir_job_release(embedding->job);
    embedding->job = NULL;
    if (embedding->status != WEIR_OK)
        return weir_error_set(error, embedding->status, "%s", embedding->message);
    return embedding->has_vector
               ? WEIR_OK
               : weir_error_set(error, WEIR_ECANCELED, "the document was not fully computed");
}

void weir_embedding_close(weir_embedding *embedding)
{
    if (embedding->job != NULL) weir_job_release(embedding->job);
    weir_memory_give(embedding->vector);
    embedding->job = NULL;
    embedding->vector = NULL;
}

/* ---- on the caller's thread ------------------------------------------------------------------ */
typedef struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
} mailbox;

static void on_done(void *user)
{
    mailbox *const box = user;
    (void)pthread_mutex_lock(&box->lock);
    box->is_done = true;
    (void)pthread_cond_signal(&box->changed);
    (void)pthread_mutex_unlock(&box->lock);
}

/* Polls ten times a second whether to stop. */
static bool wait_for(mailbox *box, const weir_state_service *d, weir_job *job)
{
    bool is_stopped = false;
    (void)pthread_mutex_lock(&box->lock);
    while (!box->is_done) {
        const struct timespec until = weir_clock_after(CLOCK_REALTIME, 100000000);
        (void)pthread_cond_timedwait(&box->changed, &box->lock, &until);
        if (is_stopped || d->stops == NULL || !d->stops(d->user)) continue;
        is_stopped = true;
        /* The job's callback takes the lock. */
        (void)pthread_mutex_unlock(&box->lock);
        weir_job_cancel(job);
        (void)pthread_mutex_lock(&box->lock);
    }
    (void)pthread_mutex_unlock(&box->lock);
    return is_stopped;
}

weir_status weir_embedding_wait(
    weir_embedding *embedding, const weir_state_service *documents, const weir_document *document,
    bool keeps, weir_error *error
)
{
    mailbox box = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    embedding->done = on_done;
    embedding->user = &box;
    WEIR_TRY(weir_embedding_begin(embedding, documents, document, keeps, error));
    const bool is_stopped = wait_for(&box, documents, embedding->job);
    const weir_status status = weir_embedding_end(embedding, error);
    return is_stopped ? weir_error_set(error, WEIR_ECANCELED, "interrupted") : status;
}
