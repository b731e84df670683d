/* engine/schedule/service.c - the service: opening and closing, its thread, and its state. */
#include "engine/schedule/service.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/schedule/job.h"
#include "kernels/abi/minmax.h"

/* ---- the engine thread ----------------------------------------------------------------------- */
static void run_calls(weir_service *service)
{
    pthread_mutex_lock(&service->lock);
    while (service->calls != NULL) {
        service_call *const call = service->calls;
        const bool is_posted = call->is_posted;
        service->calls = call->next;
        pthread_mutex_unlock(&service->lock);
        (void)weir_service_release_ended(service, true); /* it may look for them in the cache */
        service->has_news = true;
        call->run(service, call->user);
        pthread_mutex_lock(&service->lock);
        if (is_posted) continue;
        call->is_done = true;
        pthread_cond_broadcast(&service->idle);
    }
    pthread_mutex_unlock(&service->lock);
}

/* A move can be ended. Called by the threads that move blocks, states and the rows that policies
 * keep. */
static void note_move(void *user)
{
    weir_service *const service = user;
    pthread_mutex_lock(&service->lock);
    service->has_moved = true;
    pthread_cond_broadcast(&service->work);
    pthread_mutex_unlock(&service->lock);
}

static void listen_to_moves(weir_service *service, void (*listener)(void *user))
{
    weir_kv_listen_to_moves(service->store, listener, service);
    weir_prefix_listen_to_moves(service->prefix, listener, service);
    weir_pruner_listen(service->pruner, listener, service);
}

/* What is queued waits for pages that a session holds, for blocks that move, or for its time to
 * end. Lock held. */
void weir_service_sleep(weir_service *service, int64_t serial)
{
    static const int64_t look_again_ns = 10000000;
    const struct timespec until = weir_clock_after(CLOCK_REALTIME, look_again_ns);
    if (!service->is_stopping && service->calls == NULL && service->next_serial == serial &&
        !service->has_moved)
        (void)pthread_cond_timedwait(&service->work, &service->lock, &until);
}

/* Of blocks, of recurrent states and of window blocks, of which some may leave then. */
static void end_moves(weir_service *service)
{
    const bool blocks = weir_tiers_settle(service->store, false),
               states = service->prefix != NULL && weir_prefix_end_moves(service->prefix);
    service->has_news = service->has_news || blocks || states;
    weir_prefix_demote_windows(service->prefix);
}

/* Others fork, are preempted or take over what was computed in the next iteration. */
static bool has_more(const weir_service *service)
{
    return service->pace.forks <= 0 || service->pace.preempts <= 0 || service->pace.follows <= 0;
}

bool weir_service_iterate(weir_service *service, bool is_last)
{
    weir_step_times_resume(&service->times);
    weir_service_set_pace(service);
    end_moves(service);
    const bool has_released = weir_service_release_ended(service, false);
    run_calls(service);
    weir_service_admit(service);
    weir_service_finish_ended(service); /* of calls, jobs that start and failed steps, too */
    weir_step_times_add(&service->times, WEIR_STEP_ADMIT);
    /* Cancelled jobs are gone, whether or not a step follows. */
    if (service->has_news) weir_service_publish(service);
    weir_step_times_add(&service->times, WEIR_STEP_PUBLISH);
    if (is_last) return false;
    const bool has_stepped = weir_service_step(service);
    if (service->hooks != NULL) service->hooks->after_step(service->hooks->user);
    weir_step_times_add(&service->times, WEIR_STEP_MAINTAIN);
    return has_stepped || has_released || has_more(service);
}

static void *engine_thread(void *user)
{
    enum { IDLE_ITERATIONS = 2 }; /* the first may have freed something for the next */
    weir_service *const service = user;
    int64_t serial = 0; /* of the jobs that were seen */
    int n_idle = 0; /* iterations without a step */
    for (;;) {
        pthread_mutex_lock(&service->lock);
        const bool moves = weir_kv_moves_begun(service->store) > 0 ||
                           weir_prefix_moves(service->prefix) > 0 ||
                           weir_pruner_is_busy(service->pruner);
        if (n_idle >= IDLE_ITERATIONS && (service->n_queued > 0 || service->n_running > 0 || moves))
            weir_service_sleep(service, serial);
        while (!service->is_stopping && service->n_queued == 0 && service->n_running == 0 &&
               service->calls == NULL && !moves)
            pthread_cond_wait(&service->work, &service->lock);
        const bool stop = service->is_stopping;
        serial = service->next_serial;
        service->has_moved = false;
        if (stop) {
            for (weir_job *job = service->queue_head; job != NULL; job = job->next)
                atomic_store(&job->is_cancelled, true);
        }
        pthread_mutex_unlock(&service->lock);
        for (weir_job *job = service->running; stop && job != NULL; job = job->next)
            atomic_store(&job->is_cancelled, true);
        const bool has_stepped = weir_service_iterate(service, stop);
        if (stop) return NULL;
        n_idle = has_stepped ? 0 : n_idle + (n_idle < IDLE_ITERATIONS);
    }
}

size_t weir_service_bytes(int32_t n_slots)
{
    const weir_service *const s = NULL;
    return (size_t)n_slots * (sizeof *s->slots + sizeof *s->seen +
                              2 * (sizeof *s->step.items + sizeof *s->step.choices)) +
           2 * (size_t)(n_slots + WEIR_STEP_DRAFTS) * sizeof *s->step.sampled +
           (size_t)weir_service_clients(n_slots) * sizeof *s->clients;
}

size_t weir_service_sampler_bytes(int32_t n_samplers, size_t n_vocab)
{
    return (size_t)n_samplers *
           (weir_sampler_scratch_bytes(n_vocab) + sizeof(weir_sampler_scratch *));
}

static weir_status charge_fixed(weir_service *service, weir_error *error)
{
    const size_t bytes = weir_service_bytes(service->facts->n_slots),
                 scratch = weir_service_sampler_bytes(
                     service->facts->n_samplers, (size_t)service->facts->n_vocab
                 );
    WEIR_TRY(weir_ledger_reserve(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENS, bytes, error)
    );
    service->bytes = bytes;
    WEIR_TRY(
        weir_ledger_reserve(service->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_SAMPLER, scratch, error)
    );
    service->sampler_bytes = scratch;
    return WEIR_OK;
}

static bool open_step(service_step *step, size_t n_slots)
{
    step->items = calloc(n_slots, sizeof *step->items);
    step->choices = calloc(n_slots, sizeof *step->choices);
    step->sampled = calloc(n_slots + WEIR_STEP_DRAFTS, sizeof *step->sampled);
    return step->items != NULL && step->choices != NULL && step->sampled != NULL;
}

static void close_step(service_step *step)
{
    free(step->items);
    free(step->choices);
    free(step->sampled);
}

/* Already charged by charge_fixed. */
static weir_status open_fixed(
    weir_service *service, const weir_service_parts *parts, weir_error *error
)
{
    const size_t n_slots = (size_t)parts->facts->n_slots;
    service->slots = calloc(n_slots, sizeof *service->slots);
    const bool has_steps =
        open_step(&service->step, n_slots) && open_step(&service->other, n_slots);
    service->seen = calloc(n_slots, sizeof *service->seen);
    service->clients =
        calloc((size_t)weir_service_clients((int32_t)n_slots), sizeof *service->clients);
    service->banned = calloc(parts->n_stop_ids + 1, sizeof *service->banned);
    service->samplers = calloc((size_t)parts->facts->n_samplers, sizeof *service->samplers);
    bool has_samplers = service->samplers != NULL;
    for (int32_t i = 0; has_samplers && i < parts->facts->n_samplers; i++)
        has_samplers =
            weir_sampler_scratch_open(&service->samplers[i], (size_t)parts->facts->n_vocab) ==
            WEIR_OK;
    if (service->slots == NULL || !has_steps || service->seen == NULL || service->clients == NULL ||
        service->banned == NULL || !has_samplers)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %zu slots", n_slots);
    if (parts->n_stop_ids > 0)
        memcpy(service->banned, parts->stop_ids, parts->n_stop_ids * sizeof *service->banned);
    return WEIR_OK;
}

/* In multiplications: those of the layers' matrices, by those of one row of KV. */
static int64_t even_depth(const weir_engine_facts *f)
{
    const int64_t matrices =
        f->n_parameters - (int64_t)f->n_vocab * f->d_model * (f->is_tied ? 1 : 2);
    const int64_t row = (int64_t)f->n_kv_layers * f->n_heads * (f->key_dim + f->value_dim);
    return matrices > 0 && row > 0 ? matrices / row : 0;
}

int32_t weir_service_busy_chunk(int32_t chunk, int32_t mixed_chunk, int32_t block_rows)
{
    enum { BUSY = 128 };
    const int32_t busy = mixed_chunk > 0 ? mixed_chunk : BUSY;
    return weir_min_i32(
        (busy + block_rows - 1) / block_rows * block_rows, chunk / block_rows * block_rows
    );
}

/* While others decode, chunks are shorter. */
static void set_step_limits(weir_service *service, const weir_service_parts *parts)
{
    /* The engine thread moves about 3 bytes in a nanosecond (docs/decisions/0085). */
    enum { CHUNKS_OF_LONG = 4, LEAST_BYTES = 1 << 19, PASS_NS = 4 };
    const int32_t block = service->block_rows;
    service->chunk = parts->chunk / block * block;
    service->busy_chunk = weir_service_busy_chunk(parts->chunk, parts->mixed_chunk, block);
    service->step_rows = parts->step_rows > 0 ? parts->step_rows : INT32_MAX;
    const int32_t left = (service->step_rows - parts->facts->n_slots) / block * block;
    service->policy_chunk = weir_min_i32(service->chunk, left);
    service->policy_busy_chunk = weir_min_i32(service->busy_chunk, left);
    service->long_prompt =
        parts->long_prompt > 0 ? parts->long_prompt : CHUNKS_OF_LONG * parts->chunk;
    service->even_depth = even_depth(parts->facts);
    service->pace = (service_pace){ .least = LEAST_BYTES, .pass_ns = PASS_NS };
    service->n_drafts = weir_min_i32(parts->n_drafts, WEIR_DRAFTS);
    service->draft_match = parts->draft_match;
    WEIR_ASSERT(service->chunk > 0 && left > 0);
}

/* Holders of pages other than the sequences of a step. */
static weir_kv_sequence *sequence_at(void *user, int32_t i)
{
    weir_service *const service = user;
    if (i < service->facts->n_slots) return &service->slots[i].sequence;
    const int32_t session = i - service->facts->n_slots;
    return session <
                   (int32_t)(sizeof service->session_sequences / sizeof *service->session_sequences)
               ? service->session_sequences[session]
               : NULL;
}

/* What a nested iteration lacks the step that waits may free. */
static bool prunes(void *user)
{
    const weir_service *const service = user;
    return service->is_nested || weir_pruner_is_busy(service->pruner);
}

static bool release_ended(void *user) { return weir_service_release_ended(user, true); }

static bool release_saved(void *user)
{
    const weir_service_hooks *const hooks = ((weir_service *)user)->hooks;
    return hooks != NULL && hooks->release(hooks->user);
}

static void share_steps(weir_service *service)
{
    if (service->other.runner != NULL) {
        weir_runner_share(service->other.runner, &service->holders);
        weir_runner_measure(service->other.runner, &service->times);
    }
    weir_runner_run_others(service->runner, weir_service_iterate_nested, note_move, service);
}

weir_status weir_service_open(
    weir_service **out, const weir_service_parts *parts, weir_error *error
)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(parts->store);
    weir_service *const service = calloc(1, sizeof *service);
    if (service == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the service");
    *service = (weir_service){ .facts = parts->facts,
                               .runner = parts->runner,
                               .store = parts->store,
                               .pruner = parts->pruner,
                               .prefix = parts->prefix,
                               .ledger = parts->ledger,
                               .policy = parts->policy,
                               .stop_ids = parts->stop_ids,
                               .n_stop_ids = parts->n_stop_ids,
                               .block_rows = weir_runner_block_rows(parts->runner),
                               .block_bytes = (int64_t)weir_kv_block_stride(spec),
                               .sink_block_bytes = (int64_t)weir_kv_sink_block_stride(spec) };
    service->step.runner = parts->runner;
    service->other.runner = parts->nested;
    weir_ledger_tracker_init(&service->tracker, parts->ledger, WEIR_ACCOUNT_HTTP, NULL);
    set_step_limits(service, parts);
    const size_t n_slots = (size_t)parts->facts->n_slots;
    pthread_mutex_init(&service->lock, NULL);
    pthread_cond_init(&service->work, NULL);
    pthread_cond_init(&service->idle, NULL);
    const int64_t per_block = weir_kv_pages_for(spec, 1);
    service->stats.kv_bytes_total =
        (int64_t)weir_kv_pool_bytes(spec) +
        (per_block > 0 ? weir_kv_cold_pages(spec) / per_block * service->block_bytes : 0);
    weir_status status = charge_fixed(service, error);
    if (status == WEIR_OK) status = open_fixed(service, parts, error);
    if (status == WEIR_OK) status = weir_service_open_drafts(service, error);
    if (status == WEIR_OK) status = weir_service_open_mtp(service, error);
    for (size_t i = 0; status == WEIR_OK && i < n_slots; i++)
        status = weir_kv_sequence_open(
            &service->slots[i].sequence, parts->store, parts->ledger,
            (size_t)parts->facts->recurrent_bytes, error
        );
    service->holders = (weir_kv_holders){ .prefix = parts->prefix,
                                          .running = sequence_at,
                                          .user = service,
                                          .release_ended = release_ended,
                                          .release = release_saved,
                                          .preempt = weir_service_preempt,
                                          .prunes = prunes,
                                          .counts = service->reclaimed };
    if (status == WEIR_OK) weir_runner_share(parts->runner, &service->holders);
    if (status == WEIR_OK) weir_runner_measure(parts->runner, &service->times);
    if (status == WEIR_OK) share_steps(service);
    if (status == WEIR_OK) listen_to_moves(service, note_move);
    if (status == WEIR_OK)
        weir_service_publish(service); /* free pages are published before the first step */
    if (status != WEIR_OK)
        weir_service_close(service);
    else
        *out = service;
    return status;
}

weir_status weir_service_start(weir_service *service, weir_error *error)
{
    service->sleeps = true;
    service->has_thread = pthread_create(&service->thread, NULL, engine_thread, service) == 0;
    if (service->has_thread) return WEIR_OK;
    return weir_error_set(error, WEIR_ENOMEM, "cannot start the engine thread");
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
    listen_to_moves(service, NULL);
    weir_runner_run_others(service->runner, NULL, NULL, NULL);
    (void)weir_service_release_ended(service, true);
    weir_service_finish_ended(service);
    for (int32_t i = 0; service->slots != NULL && i < service->facts->n_slots; i++)
        weir_kv_sequence_close(&service->slots[i].sequence);
    for (int32_t i = 0; service->samplers != NULL && i < service->facts->n_samplers; i++)
        weir_sampler_scratch_close(service->samplers[i]);
    free(service->samplers);
    free(service->slots);
    weir_service_close_drafts(service);
    weir_service_close_mtp(service);
    close_step(&service->step);
    close_step(&service->other);
    free(service->seen);
    free(service->clients);
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

/* Lock held. */
static void add_call(weir_service *service, service_call *call)
{
    WEIR_ASSERT(!service->is_stopping);
    call->next = service->calls;
    service->calls = call;
    pthread_cond_broadcast(&service->work);
}

void weir_service_post_call(weir_service *service, service_call *call)
{
    pthread_mutex_lock(&service->lock);
    call->is_posted = true;
    add_call(service, call);
    pthread_mutex_unlock(&service->lock);
}

void weir_service_call(
    weir_service *service, void (*run)(weir_service *service, void *user), void *user
)
{
    service_call call = { .run = run, .user = user };
    pthread_mutex_lock(&service->lock);
    add_call(service, &call);
    while (!call.is_done) pthread_cond_wait(&service->idle, &service->lock);
    pthread_mutex_unlock(&service->lock);
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
    out->kv_pages_total = shared->facts->kv_pages.n;
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
        const struct timespec until =
            weir_clock_after(CLOCK_REALTIME, left < 100000000 ? left : 100000000);
        pthread_cond_timedwait(&service->idle, &service->lock, &until);
    }
    pthread_mutex_unlock(&service->lock);
}
