#include "engine/schedule/service.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/schedule/job.h"

/* ---- the engine thread ----------------------------------------------------------------------- */
static void run_calls(weir_service *service)
{
    pthread_mutex_lock(&service->lock);
    while (service->calls != NULL) {
        service_call *const call = service->calls;
        service->calls = call->next;
        pthread_mutex_unlock(&service->lock);
        call->run(service, call->user);
        pthread_mutex_lock(&service->lock);
        call->is_done = true;
        pthread_cond_broadcast(&service->idle);
    }
    pthread_mutex_unlock(&service->lock);
}

static void *engine_thread(void *user)
{
    weir_service *const service = user;
    for (;;) {
        pthread_mutex_lock(&service->lock);
        while (!service->is_stopping && service->n_queued == 0 && service->n_running == 0 &&
               service->calls == NULL)
            pthread_cond_wait(&service->work, &service->lock);
        const bool stop = service->is_stopping;
        if (stop) {
            for (weir_job *job = service->queue_head; job != NULL; job = job->next)
                atomic_store(&job->is_cancelled, true);
        }
        pthread_mutex_unlock(&service->lock);
        for (weir_job *job = service->running; stop && job != NULL; job = job->next)
            atomic_store(&job->is_cancelled, true);
        run_calls(service);
        weir_service_admit(service);
        /* Cancelled jobs are gone, whether or not a step follows. */
        weir_service_publish(service);
        if (stop) return NULL;
        weir_service_step(service);
        if (service->hooks != NULL) service->hooks->after_step(service->hooks->user);
    }
}

size_t weir_service_bytes(int32_t n_slots)
{
    const weir_service *const s = NULL;
    return (size_t)n_slots *
           (sizeof *s->slots + sizeof *s->items + sizeof *s->choices + sizeof *s->seen);
}

static weir_status charge_fixed(weir_service *service, weir_error *error)
{
    const size_t bytes = weir_service_bytes(service->facts->n_slots),
                 scratch = weir_sampler_scratch_bytes((size_t)service->facts->n_vocab);
    WEIR_TRY(weir_ledger_reserve(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS, bytes, error)
    );
    service->bytes = bytes;
    WEIR_TRY(
        weir_ledger_reserve(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_SAMPLER, scratch, error)
    );
    service->sampler_bytes = scratch;
    return WEIR_OK;
}

/* Already charged by charge_fixed. */
static weir_status open_fixed(
    weir_service *service, const weir_service_parts *parts, weir_error *error
)
{
    const size_t n_slots = (size_t)parts->facts->n_slots;
    service->slots = calloc(n_slots, sizeof *service->slots);
    service->items = calloc(n_slots, sizeof *service->items);
    service->choices = calloc(n_slots, sizeof *service->choices);
    service->seen = calloc(n_slots, sizeof *service->seen);
    service->banned = calloc(parts->n_stop_ids + 1, sizeof *service->banned);
    if (service->slots == NULL || service->items == NULL || service->choices == NULL ||
        service->seen == NULL || service->banned == NULL ||
        weir_sampler_scratch_open(&service->scratch, (size_t)parts->facts->n_vocab) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu slots", n_slots);
    if (parts->n_stop_ids > 0)
        memcpy(service->banned, parts->stop_ids, parts->n_stop_ids * sizeof *service->banned);
    return WEIR_OK;
}

/* While others decode, chunks are shorter. */
static void cut_by_blocks(weir_service *service, int32_t chunk)
{
    enum { BUSY = 128 };
    const int32_t block = service->block_rows;
    service->chunk = chunk / block * block;
    service->busy_chunk = (BUSY + block - 1) / block * block;
    if (service->busy_chunk > service->chunk) service->busy_chunk = service->chunk;
    WEIR_ASSERT(service->chunk > 0);
}

/* Holders of pages other than the sequences of a step. */
static weir_kv_sequence *sequence_at(void *user, int32_t i)
{
    weir_service *const service = user;
    if (i < service->facts->n_slots) return &service->slots[i].sequence;
    const int32_t guest = i - service->facts->n_slots;
    return guest < (int32_t)(sizeof service->guests / sizeof *service->guests)
               ? service->guests[guest]
               : NULL;
}

static bool release_saved(void *user)
{
    const weir_service_hooks *const hooks = ((weir_service *)user)->hooks;
    return hooks != NULL && hooks->release(hooks->user);
}

weir_status weir_service_open(
    weir_service **out, const weir_service_parts *parts, weir_error *error
)
{
    weir_service *const service = calloc(1, sizeof *service);
    if (service == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the service");
    *service = (weir_service){ .facts = parts->facts,
                               .runner = parts->runner,
                               .store = parts->store,
                               .prefix = parts->prefix,
                               .ledger = parts->ledger,
                               .policy = parts->policy,
                               .stop_ids = parts->stop_ids,
                               .n_stop_ids = parts->n_stop_ids,
                               .block_rows = weir_runner_block_rows(parts->runner) };
    weir_ledger_payer_init(&service->payer, parts->ledger, WEIR_ACCOUNT_HTTP, NULL);
    cut_by_blocks(service, parts->chunk);
    const size_t n_slots = (size_t)parts->facts->n_slots;
    pthread_mutex_init(&service->lock, NULL);
    pthread_cond_init(&service->work, NULL);
    pthread_cond_init(&service->idle, NULL);
    const weir_kv_spec *const spec = weir_kv_store_spec(parts->store);
    const int64_t per_block = weir_kv_pages_for(spec, 1);
    service->stats.kv_bytes_total =
        (int64_t)weir_kv_pool_bytes(spec) +
        (per_block > 0 ? weir_kv_cold_pages(spec) / per_block * (int64_t)weir_kv_block_stride(spec)
                       : 0);
    weir_status status = charge_fixed(service, error);
    if (status == WEIR_OK) status = open_fixed(service, parts, error);
    for (size_t i = 0; status == WEIR_OK && i < n_slots; i++)
        status = weir_kv_sequence_open(
            &service->slots[i].sequence, parts->store, parts->ledger,
            (size_t)parts->facts->recurrent_bytes, error
        );
    service->holders = (weir_kv_holders){ .prefix = parts->prefix,
                                          .running = sequence_at,
                                          .user = service,
                                          .release = release_saved,
                                          .preempt = weir_service_preempt,
                                          .counts = service->reclaimed };
    if (status == WEIR_OK) weir_runner_share(parts->runner, &service->holders);
    if (status == WEIR_OK)
        weir_service_publish(service); /* free pages are published before the first step */
    if (status == WEIR_OK && pthread_create(&service->thread, NULL, engine_thread, service) != 0)
        status = weir_error_set(error, WEIR_ENOMEM, "cannot start the engine thread");
    service->has_thread = status == WEIR_OK;
    if (status != WEIR_OK)
        weir_service_close(service);
    else
        *out = service;
    return status;
}

void weir_service_close(weir_service *service)
{
    if (service == NULL) return;
    if (service->has_thread) {
        pthread_mutex_lock(&service->lock);
        service->is_stopping = true;
        pthread_cond_broadcast(&service->work);
        pthread_mutex_unlock(&service->lock);
        pthread_join(service->thread, NULL);
    }
    for (int32_t i = 0; service->slots != NULL && i < service->facts->n_slots; i++)
        weir_kv_sequence_close(&service->slots[i].sequence);
    weir_sampler_scratch_close(service->scratch);
    free(service->slots);
    free(service->items);
    free(service->choices);
    free(service->seen);
    free(service->banned);
    weir_ledger_return(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS, service->bytes);
    weir_ledger_return(
        service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_SAMPLER, service->sampler_bytes
    );
    pthread_cond_destroy(&service->idle);
    pthread_cond_destroy(&service->work);
    pthread_mutex_destroy(&service->lock);
    free(service);
}

void weir_service_call(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user
)
{
    service_call call = { .run = run, .user = user };
    pthread_mutex_lock(&service->lock);
    WEIR_ASSERT(!service->is_stopping);
    call.next = service->calls;
    service->calls = &call;
    pthread_cond_broadcast(&service->work);
    while (!call.is_done) pthread_cond_wait(&service->idle, &service->lock);
    pthread_mutex_unlock(&service->lock);
}

/* ---- jobs ------------------------------------------------------------------------------------ */
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
    set_limits(job);
    job->request.prompt =
        copy_of(request->prompt, (size_t)request->n_prompt * sizeof *request->prompt);
    job->request.sampling.bias =
        copy_of(request->sampling.bias, request->sampling.n_bias * sizeof *request->sampling.bias);
    job->request.cache_salt =
        request->cache_salt != NULL ? weir_memory_text(request->cache_salt) : NULL;
    job->request.session = request->session != NULL ? weir_memory_text(request->session) : NULL;
    job->request.policy =
        request->policy != NULL ? copy_of(request->policy, sizeof *request->policy) : NULL;
    job->choices = weir_memory_take_zero((size_t)request->n_choices, sizeof *job->choices);
    weir_status status = WEIR_OK;
    if (job->request.prompt == NULL || job->request.sampling.bias == NULL || job->choices == NULL ||
        (request->policy != NULL && job->request.policy == NULL) ||
        (request->cache_salt != NULL && job->request.cache_salt == NULL) ||
        (request->session != NULL && job->request.session == NULL))
        status = no_memory(service, request, error);
    for (int32_t i = 0; status == WEIR_OK && i < request->n_choices; i++) {
        job->choices[i].job = job;
        job->choices[i].index = i;
        status = open_history(&job->choices[i], request, (size_t)service->facts->n_vocab);
        if (status != WEIR_OK) status = no_memory(service, request, error);
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

/* Charged to the thread's payer (a server's threads have one per request), or to the ledger if it
 * has none. */
static weir_status make_charged_job(
    weir_job **out, weir_service *service, const weir_request *request, weir_error *error
)
{
    weir_payer *const before = weir_payer_get();
    (void)weir_payer_set(before != NULL ? before : &service->payer.payer);
    const weir_status status = make_job(out, service, request, error);
    (void)weir_payer_set(before);
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
    job->is_released = true;
    /* The last user frees the job; while we wait here, the engine leaves that to us. */
    job->is_awaited = true;
    while (job->in_callback && !on_engine_thread) pthread_cond_wait(&service->idle, &service->lock);
    job->is_awaited = false;
    const bool is_over = job->state == JOB_FINISHED;
    pthread_cond_broadcast(&service->work);
    pthread_mutex_unlock(&service->lock);
    if (is_over) weir_job_free(job);
}

/* ---- state ----------------------------------------------------------------------------------- */
const weir_engine_facts *weir_service_facts_of(const weir_service *service)
{
    return service->facts;
}

void weir_service_stats_of(const weir_service *service, weir_service_stats *out)
{
    /* The lock is not part of the state that is read. */
    weir_service *const shared = (weir_service *)service;
    pthread_mutex_lock(&shared->lock);
    *out = shared->stats;
    out->running = shared->n_running;
    out->waiting = shared->n_queued;
    out->kv_pages_total = shared->facts->kv_pages;
    pthread_mutex_unlock(&shared->lock);
}

int32_t weir_service_sequences_of(const weir_service *service, weir_service_sequence *out)
{
    weir_service *const shared = (weir_service *)service;
    pthread_mutex_lock(&shared->lock);
    const int32_t n = shared->n_seen;
    if (n > 0) memcpy(out, shared->seen, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&shared->lock);
    return n;
}

void weir_service_drain(weir_service *service, int64_t deadline_ns)
{
    pthread_mutex_lock(&service->lock);
    service->is_draining = true;
    while (service->n_running > 0 || service->n_queued > 0) {
        const int64_t left = deadline_ns - weir_clock_ns();
        if (left <= 0) break;
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        const int64_t wait = left < 100000000 ? left : 100000000;
        until.tv_nsec += (long)wait;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&service->idle, &service->lock, &until);
    }
    pthread_mutex_unlock(&service->lock);
}
