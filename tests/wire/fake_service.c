/* tests/wire/fake_service.c - batching, slots, queue, prefix cache and cancellation as the real
 * service has them, over a model that is a hash. */
#include "tests/wire/fake_service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/schedule/kv_map.h"
#include "tests/wire/fake_model.h"

enum { CHUNK_TOKENS = 512, CACHE_ENTRIES = 64, CACHE_BLOCK = 16, CHOICES = 64 };

typedef struct sequence {
    weir_fake_answer answer;
    bool ended;
} sequence;

struct weir_job {
    weir_job *next;
    weir_service *service;
    weir_request request;
    int32_t *prompt;
    weir_logit_bias *bias;
    char *salt;
    atomic_bool cancelled;
    bool finished;
    int32_t n_prefilled, n_cached;
    uint64_t state;
    sequence choice[CHOICES];
    int64_t submit_ns, admit_ns, first_ns;
    weir_usage usage;
};

typedef struct cache_entry {
    int32_t *ids;
    int32_t n;
    char *salt;
} cache_entry;

struct weir_service {
    weir_engine_facts facts;
    weir_fake_options options;
    weir_fake_model model;
    int32_t *said; /* weir_fake_service_say */
    int32_t n_said;
    cache_entry cache[CACHE_ENTRIES];
    size_t cache_at;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weir_job *queue, *running;
    weir_service_stats stats;
    bool stop, draining;
};

/* ---- prefix cache ---------------------------------------------------------------------------- */

static bool same_salt(const char *a, const char *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

static int32_t cached_prefix(const weir_service *s, const weir_job *job)
{
    int32_t best = 0;
    for (size_t e = 0; e < CACHE_ENTRIES && job->request.cache_prompt; e++) {
        const cache_entry *const c = &s->cache[e];
        int32_t n = 0;
        while (c->ids != NULL && same_salt(c->salt, job->salt) && n < c->n &&
               n < job->request.n_prompt - 1 && c->ids[n] == job->prompt[n])
            n++;
        if (n > best) best = n;
    }
    return best / CACHE_BLOCK * CACHE_BLOCK;
}

static void remember(weir_service *s, const weir_job *job)
{
    cache_entry *const c = &s->cache[s->cache_at++ % CACHE_ENTRIES];
    free(c->ids);
    free(c->salt);
    c->ids = malloc((size_t)job->request.n_prompt * sizeof *c->ids);
    if (c->ids != NULL) memcpy(c->ids, job->prompt, (size_t)job->request.n_prompt * sizeof *c->ids);
    c->n = job->request.n_prompt;
    c->salt = job->salt != NULL ? strdup(job->salt) : NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool emit(weir_job *job, weir_event event)
{
    return job->request.callback(job->request.user, &event);
}

static void finish_job(weir_service *s, weir_job *job, weir_status status)
{
    const int64_t now_ns = weir_clock_ns();
    job->usage.n_prompt = job->request.n_prompt;
    job->usage.n_cached = job->n_cached;
    job->usage.n_rows = job->n_prefilled + job->usage.n_answer;
    job->usage.kv_bytes = job->usage.n_rows * s->facts.kv_bytes_per_token;
    job->usage.queue_ns = (job->admit_ns != 0 ? job->admit_ns : now_ns) - job->submit_ns;
    job->usage.prefill_ns = (job->first_ns != 0 ? job->first_ns : now_ns) -
                            (job->admit_ns != 0 ? job->admit_ns : now_ns);
    job->usage.decode_ns = job->first_ns != 0 ? now_ns - job->first_ns : 0;
    job->usage.first_token_ns = job->first_ns != 0 ? job->first_ns - job->submit_ns : 0;
    emit(
        job, (weir_event){ .type = WEIR_EVENT_DONE,
                           .status = status,
                           .message = status == WEIR_OK ? NULL : weir_status_text(status),
                           .usage = job->usage }
    );
    (void)pthread_mutex_lock(&s->lock);
    job->finished = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static void end_choice(weir_job *job, int32_t choice, weir_finish finish)
{
    job->choice[choice].ended = true;
    emit(job, (weir_event){ .type = WEIR_EVENT_CHOICE, .choice = choice, .finish = finish });
}

static void prefill(weir_service *s, weir_job *job)
{
    weir_logprob top[WEIR_TOP_LOGPROBS];
    const bool scores = job->request.want_prompt_logprobs;
    for (int32_t n = 0; n < CHUNK_TOKENS && job->n_prefilled < job->request.n_prompt;
         n++, job->n_prefilled++) {
        const int32_t token = job->prompt[job->n_prefilled];
        if (scores && job->n_prefilled > 0) {
            weir_event event = { .type = WEIR_EVENT_PROMPT, .token = token };
            weir_fake_model_score(&s->model, &job->request, job->state, &event, top);
            emit(job, event);
        }
        job->state = weir_fake_model_step(job->state, token);
    }
    if (job->n_prefilled < job->request.n_prompt) return;
    remember(s, job);
    for (int32_t i = 0; i < job->request.n_choices; i++) {
        job->choice[i].answer.state = job->state;
        if (job->request.max_tokens == 0) end_choice(job, i, WEIR_FINISH_LENGTH);
    }
}

static int32_t next_token(weir_service *s, const weir_job *job, int32_t choice)
{
    const weir_fake_answer *const q = &job->choice[choice].answer;
    size_t n;
    if (s->said == NULL) return weir_fake_model_draw(&s->model, &job->request, choice, q);
    return q->n < s->n_said ? s->said[q->n] : weir_tokenizer_stop_ids(s->model.tokenizer, &n)[0];
}

static void decode(weir_service *s, weir_job *job, int32_t choice)
{
    weir_fake_answer *const q = &job->choice[choice].answer;
    weir_logprob top[WEIR_TOP_LOGPROBS];
    const int32_t token = next_token(s, job, choice);
    weir_event event = { .type = WEIR_EVENT_TOKEN, .choice = choice, .token = token };
    if (weir_fake_model_is_stop(&s->model, token)) {
        end_choice(job, choice, WEIR_FINISH_STOP);
        return;
    }
    if (job->request.want_logprobs)
        weir_fake_model_score(&s->model, &job->request, q->state, &event, top);
    if (job->first_ns == 0) job->first_ns = weir_clock_ns();
    q->seen[token]++;
    q->n++;
    job->usage.n_answer++;
    q->state = weir_fake_model_step(q->state, token);
    (void)pthread_mutex_lock(&s->lock);
    s->stats.answer_tokens++;
    (void)pthread_mutex_unlock(&s->lock);
    const bool go_on = emit(job, event);
    if (!go_on)
        end_choice(job, choice, WEIR_FINISH_STOP);
    else if (q->n >= job->request.max_tokens)
        end_choice(job, choice, WEIR_FINISH_LENGTH);
}

/* One step of one job; true: it ended. */
static bool step_job(weir_service *s, weir_job *job)
{
    if (atomic_load(&job->cancelled)) {
        finish_job(s, job, WEIR_ECANCELED);
        return true;
    }
    if (job->n_prefilled < job->request.n_prompt)
        prefill(s, job);
    else
        for (int32_t i = 0; i < job->request.n_choices; i++)
            if (!job->choice[i].ended) decode(s, job, i);
    if (s->options.fail_after > 0 && job->usage.n_answer >= s->options.fail_after) {
        finish_job(s, job, WEIR_EDEVICE);
        return true;
    }
    for (int32_t i = 0; i < job->request.n_choices; i++)
        if (!job->choice[i].ended) return false;
    finish_job(s, job, WEIR_OK);
    return true;
}

/* ---- the engine thread ----------------------------------------------------------------------- */

static void admit(weir_service *s, weir_job *job)
{
    job->admit_ns = weir_clock_ns();
    job->n_cached = job->request.want_prompt_logprobs ? 0 : cached_prefix(s, job);
    for (int32_t i = 0; i < job->n_cached; i++)
        job->state = weir_fake_model_step(job->state, job->prompt[i]);
    job->n_prefilled = job->n_cached;
    emit(
        job,
        (weir_event){ .type = WEIR_EVENT_ADMITTED,
                      .usage = { .n_prompt = job->request.n_prompt, .n_cached = job->n_cached } }
    );
}

/* Lock held. Cancelled jobs leave the queue at once, wherever they stand. */
static weir_job *next_from_queue(weir_service *s)
{
    for (weir_job **at = &s->queue; *at != NULL; at = &(*at)->next) {
        weir_job *const job = *at;
        const bool fits =
            job == s->queue && s->stats.running + job->request.n_choices <= s->options.n_slots;
        if (!fits && !atomic_load(&job->cancelled)) continue;
        *at = job->next;
        s->stats.waiting--;
        if (!atomic_load(&job->cancelled)) s->stats.running += job->request.n_choices;
        return job;
    }
    return NULL;
}

static void take_new_jobs(weir_service *s)
{
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        weir_job *const job = next_from_queue(s);
        (void)pthread_mutex_unlock(&s->lock);
        if (job == NULL) return;
        if (atomic_load(&job->cancelled)) {
            finish_job(s, job, WEIR_ECANCELED);
            continue;
        }
        admit(s, job);
        job->next = s->running;
        s->running = job;
    }
}

static void *engine(void *argument)
{
    weir_service *const s = argument;
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        while (s->queue == NULL && s->running == NULL && !s->stop)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        const bool stop = s->stop && s->queue == NULL && s->running == NULL;
        (void)pthread_mutex_unlock(&s->lock);
        if (stop) return NULL;
        take_new_jobs(s);
        for (weir_job **at = &s->running; *at != NULL;) {
            weir_job *const job = *at, *const after = job->next;
            const int32_t n_choices = job->request.n_choices; /* a job that ended may be gone */
            if (!step_job(s, job)) {
                at = &job->next;
                continue;
            }
            *at = after;
            (void)pthread_mutex_lock(&s->lock);
            s->stats.running -= n_choices;
            (void)pthread_mutex_unlock(&s->lock);
        }
        const struct timespec pause = { .tv_nsec = s->options.step_us * 1000 };
        if (s->running != NULL) (void)nanosleep(&pause, NULL);
    }
}

/* ---- the contract ---------------------------------------------------------------------------- */

static void free_job(weir_job *job)
{
    for (int32_t i = 0; i < CHOICES; i++) free(job->choice[i].answer.seen);
    free(job->prompt);
    free(job->bias);
    free(job->salt);
    free(job);
}

static bool copy_request(weir_job *job, const weir_request *r, int32_t n_vocab)
{
    job->request = *r;
    job->prompt = malloc((size_t)r->n_prompt * sizeof *job->prompt);
    job->bias = malloc((r->sampling.n_bias + 1) * sizeof *job->bias);
    job->salt = r->cache_salt != NULL ? strdup(r->cache_salt) : NULL;
    if (job->prompt == NULL || job->bias == NULL) return false;
    memcpy(job->prompt, r->prompt, (size_t)r->n_prompt * sizeof *job->prompt);
    if (r->sampling.n_bias > 0)
        memcpy(job->bias, r->sampling.bias, r->sampling.n_bias * sizeof *job->bias);
    job->request.sampling.bias = job->bias;
    for (int32_t i = 0; i < r->n_choices; i++) {
        uint16_t **const seen = &job->choice[i].answer.seen;
        *seen = calloc((size_t)n_vocab, sizeof **seen);
        if (*seen == NULL) return false;
    }
    return true;
}

weir_status weir_service_submit(
    weir_service *s, weir_job **out, const weir_request *request, weir_error *error
)
{
    if (request->n_prompt < 1 || request->n_choices < 1 ||
        request->n_choices > s->options.n_slots || request->n_choices > CHOICES)
        return weir_error_set(error, WEIR_EINVAL, "bad numbers in a request");
    weir_job *const job = calloc(1, sizeof *job);
    if (job == NULL || !copy_request(job, request, s->facts.n_vocab)) {
        if (job != NULL) free_job(job);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a job");
    }
    job->service = s;
    job->submit_ns = weir_clock_ns();
    (void)pthread_mutex_lock(&s->lock);
    weir_status status = WEIR_OK;
    if (s->draining)
        status = weir_error_set(error, WEIR_EUNSUPPORTED, "the service is draining");
    else if (s->stats.waiting >= s->facts.queue_limit)
        status = weir_error_set(error, WEIR_EFULL, "the queue is full");
    if (status == WEIR_OK) {
        weir_job **at = &s->queue;
        while (*at != NULL) at = &(*at)->next;
        *at = job;
        s->stats.waiting++;
        *out = job;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (status != WEIR_OK) free_job(job);
    return status;
}

void weir_job_cancel(weir_job *job) { atomic_store(&job->cancelled, true); }

void weir_job_release(weir_job *job)
{
    weir_service *const s = job->service;
    weir_job_cancel(job);
    (void)pthread_mutex_lock(&s->lock);
    while (!job->finished) (void)pthread_cond_wait(&s->changed, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
    free_job(job);
}

weir_engine_facts *weir_fake_service_facts(weir_service *service) { return &service->facts; }

weir_status weir_fake_service_say(weir_service *s, const int32_t *tokens, size_t n)
{
    free(s->said);
    s->said = NULL;
    s->n_said = 0;
    if (tokens == NULL) return WEIR_OK;
    s->said = malloc((n + 1) * sizeof *s->said);
    if (s->said == NULL) return WEIR_ENOMEM;
    memcpy(s->said, tokens, n * sizeof *s->said);
    s->n_said = (int32_t)n;
    return WEIR_OK;
}

const weir_engine_facts *weir_service_facts_of(const weir_service *service)
{
    return &service->facts;
}

void weir_service_stats_of(const weir_service *service, weir_service_stats *out)
{
    weir_service *const s = (weir_service *)service;
    (void)pthread_mutex_lock(&s->lock);
    *out = s->stats;
    (void)pthread_mutex_unlock(&s->lock);
}

bool weir_service_expert_counts(const weir_service *service, int64_t layer, weir_expert_counts *out)
{
    (void)service, (void)layer, (void)out;
    return false;
}

int32_t weir_service_sequences_of(const weir_service *service, weir_service_sequence *out)
{
    weir_service *const s = (weir_service *)service;
    int32_t n = 0;
    (void)pthread_mutex_lock(&s->lock);
    for (const weir_job *job = s->running; job != NULL && n < s->facts.n_slots; job = job->next)
        out[n++] = (weir_service_sequence){ .tokens = job->request.n_prompt };
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

int64_t weir_service_kv_heads(const weir_service *service)
{
    (void)service;
    return 0;
}

int64_t weir_service_kv_layer(const weir_service *service, int64_t head)
{
    (void)service;
    (void)head;
    return 0;
}

void weir_service_kv_map(weir_service *service, weir_kv_map *map)
{
    (void)service;
    map->n = 0;
}

void weir_service_drain(weir_service *s, int64_t deadline_ns)
{
    (void)pthread_mutex_lock(&s->lock);
    s->draining = true;
    while (s->stats.running + s->stats.waiting > 0 && weir_clock_ns() < deadline_ns) {
        (void)pthread_mutex_unlock(&s->lock);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        (void)pthread_mutex_lock(&s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

weir_status weir_fake_service_open(
    weir_service **out, const weir_tokenizer *tokenizer, const weir_fake_options *options
)
{
    const int32_t n_vocab = (int32_t)weir_tokenizer_size(tokenizer);
    weir_service *const s = calloc(1, sizeof *s);
    if (s == NULL) return WEIR_ENOMEM;
    s->options = *options;
    if (weir_fake_model_open(&s->model, tokenizer) != WEIR_OK) goto failed;
    s->facts = (weir_engine_facts){ .model = "fake",
                                    .n_vocab = n_vocab,
                                    .n_valid_vocab = n_vocab,
                                    .d_model = 1,
                                    .n_layers = 1,
                                    .window = options->window,
                                    .trained_context = options->window,
                                    .n_slots = options->n_slots,
                                    .queue_limit = 4 * options->n_slots,
                                    .n_parameters = 1,
                                    .weight_bytes = 4,
                                    .kv_page_bytes = 64,
                                    .kv_pages = { .n = 1000 } };
    s->stats.kv_pages_total = 1000;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, engine, s) != 0) goto failed;
    *out = s;
    return WEIR_OK;
failed:
    weir_fake_model_close(&s->model);
    free(s);
    return WEIR_ENOMEM;
}

void weir_fake_service_close(weir_service *s)
{
    if (s == NULL) return;
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    for (size_t i = 0; i < CACHE_ENTRIES; i++) {
        free(s->cache[i].ids);
        free(s->cache[i].salt);
    }
    weir_fake_model_close(&s->model);
    free(s->said);
    free(s);
}
