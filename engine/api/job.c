/* engine/api/job.c - runs one request of a sequence, from submission to end. The engine thread
 * appends tokens after those of the sequence, in reserved space; the caller's thread adds them to
 * the sequence and calls the callback one by one. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/base/clock.h"
#include "engine/base/memory.h"

typedef struct run {
    weir_sequence *sequence;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_drawn; /* (lock) tokens after the sequence's first `base` */
    size_t base;
    bool is_done; /* (lock) */
    weir_status status;
    char message[sizeof((weir_error *)NULL)->text];
    weir_usage usage;
    weir_finish finish;
} run;

/* Engine thread. */
static void add_token(run *r, int32_t token)
{
    const size_t at = r->base + r->n_drawn;
    if (at >= r->sequence->capacity) return;
    r->sequence->tokens[at] = token;
    r->n_drawn++;
}

static bool on_event(void *user, const weir_event *event)
{
    run *const r = user;
    (void)pthread_mutex_lock(&r->lock);
    switch (event->type) {
    case WEIR_EVENT_LOGITS:
        memcpy(
            r->sequence->logits, event->logits,
            (size_t)weir_api_facts(r->sequence->engine)->n_vocab * sizeof *event->logits
        );
        break;
    case WEIR_EVENT_TOKEN: add_token(r, event->token); break;
    case WEIR_EVENT_CHOICE:
        r->finish = event->finish;
        if (event->token >= 0) add_token(r, event->token);
        break;
    case WEIR_EVENT_DONE:
        r->is_done = true;
        r->status = event->status;
        r->usage = event->usage;
        (void)snprintf(
            r->message, sizeof r->message, "%s", event->message != NULL ? event->message : ""
        );
        break;
    case WEIR_EVENT_ADMITTED:
    case WEIR_EVENT_PROMPT: break;
    }
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    return true;
}

/* At most a twentieth of a second: a signal handler may cancel, and cannot wake this thread. */
static void wait_a_little(run *r)
{
    const struct timespec until = weir_clock_after(CLOCK_MONOTONIC, 50000000);
    (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

/* ---- the caller's thread --------------------------------------------------------------------- */
typedef struct listener {
    weir_token_callback *callback; /* may be NULL */
    void *user;
    weir_detokenizer stream;
    weir_buffer text;
    bool is_stopped;
} listener;

static weir_status report(listener *l, const weir_engine *engine, int32_t token, weir_error *error)
{
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(engine);
    weir_status status = weir_buffer_reserve(&l->text, 1);
    if (status == WEIR_OK) weir_buffer_clear(&l->text);
    if (status == WEIR_OK && token < 0) status = weir_detokenizer_finish(&l->stream, &l->text);
    if (status == WEIR_OK && token >= 0 && tokenizer != NULL)
        status = weir_detokenizer_token(&l->stream, tokenizer, &l->text, token, true);
    if (status != WEIR_OK)
        return weir_error_set(error, status, "no memory for the text of a token");
    if (token < 0 && l->text.size == 0) return WEIR_OK;
    l->text.data[l->text.size] = '\0';
    if (l->callback(l->user, token, l->text.data, l->text.size) != 0) l->is_stopped = true;
    return WEIR_OK;
}

/* Passes tokens on until the job is done or the callback stops it. */
static weir_status listen(run *r, listener *l, weir_job *job, weir_error *error)
{
    weir_sequence *const s = r->sequence;
    weir_status status = WEIR_OK;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->is_done || (!l->is_stopped && s->n < r->base + r->n_drawn)) {
        if (atomic_load(&s->is_canceled) || l->is_stopped || status != WEIR_OK)
            weir_job_cancel(job);
        if (l->is_stopped || status != WEIR_OK || s->n == r->base + r->n_drawn) {
            if (r->is_done) break;
            wait_a_little(r);
            continue;
        }
        const int32_t token = s->tokens[s->n++];
        (void)pthread_mutex_unlock(&r->lock);
        if (l->callback != NULL) status = report(l, s->engine, token, error);
        (void)pthread_mutex_lock(&r->lock);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (status == WEIR_OK && l->callback != NULL && !l->is_stopped)
        status = report(l, s->engine, -1, error);
    return status;
}

/* Adds what the job computed to the sequence. */
static weir_status take_end(
    run *r, const listener *l, const weir_request *request, weir_error *error
)
{
    weir_sequence *const s = r->sequence;
    s->usage = r->usage;
    s->finish = l->is_stopped ? WEIR_FINISH_STOP : r->finish;
    if (l->is_stopped) s->usage.n_answer = (int32_t)(s->n - r->base);
    if (request->max_tokens == 0) s->finish = WEIR_FINISH_NONE;
    s->has_logits = request->want_logits && r->status == WEIR_OK;
    if (r->status == WEIR_OK || (r->status == WEIR_ECANCELED && l->is_stopped)) return WEIR_OK;
    return weir_error_set(
        error, r->status, "%s", r->message[0] != '\0' ? r->message : weir_status_text(r->status)
    );
}

static weir_status submit_and_listen(run *r, listener *l, weir_request *request, weir_error *error)
{
    weir_sequence *const s = r->sequence;
    weir_job *job = NULL;
    request->prompt = s->tokens;
    request->n_prompt = (int32_t)s->n;
    request->n_choices = 1;
    request->cache_prompt = true;
    request->cache_salt = WEIR_API_SALT;
    request->callback = on_event;
    request->user = r;
    WEIR_TRY(weir_service_submit(weir_engine_service(s->engine), &job, request, error));
    s->has_logits = false;
    weir_status status = listen(r, l, job, error);
    weir_job_release(job);
    const weir_status end = take_end(r, l, request, status == WEIR_OK ? error : NULL);
    return status != WEIR_OK ? status : end;
}

weir_status weir_api_run(
    weir_sequence *sequence, weir_request *request, weir_token_callback *callback, void *user,
    weir_error *error
)
{
    run r = { .sequence = sequence, .base = sequence->n };
    listener l = { .callback = callback, .user = user };
    pthread_condattr_t clock;
    atomic_store(&sequence->is_canceled, false);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.changed, &clock);
    const weir_status status = submit_and_listen(&r, &l, request, error);
    weir_buffer_free(&l.text);
    (void)pthread_cond_destroy(&r.changed);
    (void)pthread_mutex_destroy(&r.lock);
    (void)pthread_condattr_destroy(&clock);
    return status;
}
