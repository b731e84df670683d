/* engine/schedule/submit.c - requests become jobs in the queue: checked, copied, charged; cancelled
 * and released by the client. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/schedule/job.h"

static weir_status check_request(
    const weir_service *service, const weir_request *request, weir_error *error
)
{
    const weir_engine_facts *const facts = service->facts;
    if (request->n_prompt < 1) return weir_error_set(error, WEIR_EINVAL, "the prompt is empty");
    if (request->n_prompt > facts->window)
        return weir_error_set(
            error, WEIR_EINVAL,
            "context_length_exceeded: the prompt of %d tokens exceeds the "
            "available context size of %d tokens; shorten "
            "it or raise model.context",
            (int)request->n_prompt, (int)facts->window
        );
    if (request->n_choices < 1 || request->n_choices > facts->n_slots)
        return weir_error_set(
            error, WEIR_EINVAL, "n is %d, allowed is 1 to %d (batch.max_sequences)",
            (int)request->n_choices, (int)facts->n_slots
        );
    WEIR_TRY(weir_service_check_budget(facts, request->n_prompt, request->n_choices, error));
    if (request->kv_budget < 0 || request->n_pinned < 0 || request->n_pinned > request->n_prompt)
        return weir_error_set(
            error, WEIR_EINVAL,
            "kv_budget must not be negative, and no more than the prompt can be protected"
        );
    if (request->n_kept < 0 || request->n_kept >= request->n_prompt ||
        (request->n_kept > 0 &&
         (!request->cache_prompt || request->want_prompt_logprobs || request->want_embedding)))
        return weir_error_set(
            error, WEIR_EINVAL,
            "a prompt that continues a state needs at least one more token, and earlier tokens are "
            "not scored"
        );
    if (request->deadline_ns < 0)
        return weir_error_set(error, WEIR_EINVAL, "the deadline is negative; 0 means none");
    if (request->max_tokens < 0 || request->min_tokens < 0)
        return weir_error_set(error, WEIR_EINVAL, "max_tokens and min_tokens must not be negative");
    if (request->n_top_logprobs < 0 || request->n_top_logprobs > WEIR_TOP_LOGPROBS)
        return weir_error_set(
            error, WEIR_EINVAL, "top_logprobs is %d, allowed is 0 to %d",
            (int)request->n_top_logprobs, (int)WEIR_TOP_LOGPROBS
        );
    for (int32_t i = 0; i < request->n_prompt; i++) {
        if (request->prompt[i] < 0 || request->prompt[i] >= facts->n_valid_vocab)
            return weir_error_set(
                error, WEIR_EINVAL, "token %d at position %d is not in the vocabulary of %d",
                (int)request->prompt[i], (int)i, (int)facts->n_valid_vocab
            );
    }
    return weir_sampling_check(&request->sampling, (size_t)facts->n_valid_vocab, error);
}

static void *copy_of(const void *bytes, size_t n)
{
    void *const copy = weir_memory_take(n);
    if (copy != NULL && n > 0) memcpy(copy, bytes, n);
    return copy;
}

static bool has_penalties(const weir_sampling *s)
{
    return s->repetition_penalty != 1.0f || s->presence_penalty != 0.0f ||
           s->frequency_penalty != 0.0f;
}

/* Allocates dense counts only if a penalty uses them. */
static weir_status open_history(choice *c, const weir_request *request, size_t n_vocab)
{
    const weir_sampling *const s = &request->sampling;
    c->history.n_vocab = n_vocab;
    if (!has_penalties(s)) return WEIR_OK;
    c->history.prompt = weir_memory_take_zero(n_vocab, sizeof *c->history.prompt);
    c->history.answer = weir_memory_take_zero(n_vocab, sizeof *c->history.answer);
    if (c->history.prompt == NULL || c->history.answer == NULL) return WEIR_ENOMEM;
    for (int32_t i = 0; i < request->n_prompt; i++) {
        uint16_t *const count = &c->history.prompt[request->prompt[i]];
        if (*count < UINT16_MAX) (*count)++;
    }
    return WEIR_OK;
}

static weir_status open_grammar(choice *c, const weir_request *request, weir_error *error)
{
    if (request->grammar == NULL) return WEIR_OK;
    return weir_grammar_state_open(&c->grammar, request->grammar, error);
}

/* The last token of an answer is never computed. */
static void set_limits(weir_job *job)
{
    const weir_request *const r = &job->request;
    const int64_t rows = r->n_prompt + (int64_t)r->max_tokens - (r->max_tokens > 0);
    job->row_limit = weir_service_row_limit(job->service->facts, r->n_choices);
    job->row_peak = rows < job->row_limit ? (int32_t)rows : job->row_limit;
}

static weir_status no_memory(
    const weir_service *service, const weir_request *request, weir_error *error
)
{
    const size_t cap = weir_ledger_cap(service->ledger, WEIR_TIER_HOST),
                 used = weir_ledger_total(service->ledger, WEIR_TIER_HOST);
    return weir_error_set(
        error, WEIR_ENOMEM,
        "no room for a request of %d tokens now: %zu of %zu bytes left; try "
        "again, or raise memory.host",
        (int)request->n_prompt, cap > used ? cap - used : 0, cap
    );
}

static weir_status make_job(
    weir_job **out, weir_service *service, const weir_request *request, weir_error *error
)
{
    weir_job *const job = weir_memory_take_zero(1, sizeof *job);
    if (job == NULL) return no_memory(service, request, error);
    job->service = service;
    job->request = *request;
    job->submitted_ns = weir_clock_ns();
    job->deadline_ns = request->deadline_ns;
    set_limits(job);
    job->request.prompt =
        copy_of(request->prompt, (size_t)request->n_prompt * sizeof *request->prompt);
    job->request.sampling.bias =
        copy_of(request->sampling.bias, request->sampling.n_bias * sizeof *request->sampling.bias);
    job->request.cache_salt = weir_job_copy_salt(request->cache_salt);
    job->request.session = request->session != NULL ? weir_memory_text(request->session) : NULL;
    job->request.policy =
        request->policy != NULL ? copy_of(request->policy, sizeof *request->policy) : NULL;
    if (request->grammar != NULL) weir_grammar_retain(request->grammar);
    job->choices = weir_memory_take_zero((size_t)request->n_choices, sizeof *job->choices);
    weir_status status = WEIR_OK;
    if (job->request.prompt == NULL || job->request.sampling.bias == NULL || job->choices == NULL ||
        (request->policy != NULL && job->request.policy == NULL) ||
        job->request.cache_salt == NULL ||
        (request->session != NULL && job->request.session == NULL))
        status = no_memory(service, request, error);
    for (int32_t i = 0; status == WEIR_OK && i < request->n_choices; i++) {
        job->choices[i].job = job;
        job->choices[i].index = i;
        job->choices[i].in_thought = request->thought.is_open;
        status = open_history(&job->choices[i], request, (size_t)service->facts->n_vocab);
        if (status != WEIR_OK) status = no_memory(service, request, error);
        if (status == WEIR_OK) status = open_grammar(&job->choices[i], request, error);
    }
    if (status == WEIR_OK && weir_job_open_embedding(job) != WEIR_OK)
        status = no_memory(service, request, error);
    if (status == WEIR_OK) status = weir_job_open_policy_run(job, error);
    if (status == WEIR_OK) status = weir_job_check_memory(job, error);
    job->choice_bytes = weir_service_kv_bytes(service->facts, job->row_peak);
    if (status != WEIR_OK)
        weir_job_free(job);
    else
        *out = job;
    return status;
}

/* Charged to the thread's tracker (a server's threads have one per request), or to the ledger if it
 * has none. */
static weir_status make_charged_job(
    weir_job **out, weir_service *service, const weir_request *request, weir_error *error
)
{
    weir_memory_tracker *const before = weir_memory_tracker_get();
    (void)weir_memory_tracker_set(before != NULL ? before : &service->tracker.tracker);
    const weir_status status = make_job(out, service, request, error);
    (void)weir_memory_tracker_set(before);
    return status;
}

weir_status weir_service_submit(
    weir_service *service, weir_job **out, const weir_request *request, weir_error *error
)
{
    weir_job *job = NULL;
    WEIR_TRY(check_request(service, request, error));
    weir_status status = make_charged_job(&job, service, request, error);
    if (status != WEIR_OK)
        return status == WEIR_EFULL ? WEIR_ENOMEM : status; /* the ledger is full, not the queue */
    pthread_mutex_lock(&service->lock);
    if (service->is_draining || service->is_stopping) {
        status = weir_error_set(error, WEIR_EUNSUPPORTED, "the server is shutting down");
    } else if (service->n_queued >= service->facts->queue_limit) {
        status = weir_error_set(
            error, WEIR_EFULL, "the queue is full: %d requests are waiting", (int)service->n_queued
        );
    } else {
        job->serial = service->next_serial++;
        if (service->queue_tail != NULL)
            service->queue_tail->next = job;
        else
            service->queue_head = job;
        service->queue_tail = job;
        service->n_queued++;
        *out = job;
        pthread_cond_broadcast(&service->work);
    }
    pthread_mutex_unlock(&service->lock);
    if (status != WEIR_OK) weir_job_free(job);
    return status;
}

void weir_job_cancel(weir_job *job)
{
    weir_service *const service = job->service;
    atomic_store(&job->is_cancelled, true);
    pthread_mutex_lock(&service->lock);
    pthread_cond_broadcast(&service->work);
    pthread_mutex_unlock(&service->lock);
}

void weir_job_release(weir_job *job)
{
    if (job == NULL) return;
    weir_service *const service = job->service;
    const bool on_engine_thread = pthread_equal(pthread_self(), service->thread) != 0;
    atomic_store(&job->is_cancelled, true);
    pthread_mutex_lock(&service->lock);
    atomic_store(&job->is_released, true);
    /* The last user frees the job; while we wait here, the engine leaves that to us. */
    job->is_awaited = true;
    while (atomic_load(&job->in_callback) && !on_engine_thread)
        pthread_cond_wait(&service->idle, &service->lock);
    job->is_awaited = false;
    const bool is_over = job->state == JOB_FINISHED;
    pthread_cond_broadcast(&service->work);
    pthread_mutex_unlock(&service->lock);
    if (is_over) weir_job_free(job);
}
