/* engine/serve/generation.c - a running generation: submits prompts as jobs, adds the engine's
 * events to answers, and ends when all jobs are done. Only `on_event` runs on the engine thread. */
#include "engine/serve/generation.h"

#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/text/turns.h"

/* ---- events (engine thread) ------------------------------------------------------------------ */

static weir_status take_prompt_score(weir_prompt *prompt, const weir_event *event)
{
    return weir_scores_add(
        &prompt->scores, event->token, event->logprob.logprob, event->top, event->n_top, 0
    );
}

static void observe_token(weir_generation *g, weir_answer *answer)
{
    weir_metrics *const metrics = &g->exchange->server->metrics;
    const int64_t now_ns = weir_clock_ns();
    weir_metrics_add(&metrics->answer_tokens, 1);
    if (g->first_token_ns == 0) {
        g->first_token_ns = now_ns;
        weir_metrics_observe(metrics, WEIR_HISTOGRAM_FIRST_TOKEN, now_ns - g->exchange->start_ns);
    }
    if (answer->last_token_ns != 0)
        weir_metrics_observe(metrics, WEIR_HISTOGRAM_INTER_TOKEN, now_ns - answer->last_token_ns);
    answer->last_token_ns = g->last_token_ns = now_ns;
}

/* A job that never left the queue is not counted. Answer tokens were counted as they came. */
static void count_tokens(weir_metrics *metrics, const weir_prompt *prompt)
{
    if (!prompt->admitted) return;
    weir_metrics_add(&metrics->prompt_tokens, (uint64_t)prompt->usage.n_prompt);
    weir_metrics_add(&metrics->cached_tokens, (uint64_t)prompt->usage.n_cached);
}

static void observe_times(weir_metrics *metrics, const weir_event *event)
{
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_QUEUE, event->usage.queue_ns);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_PREFILL, event->usage.prefill_ns);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_DECODE, event->usage.decode_ns);
}

static weir_status take_done(weir_generation *g, weir_prompt *prompt, const weir_event *event)
{
    weir_answer *const answers = g->answers + (size_t)(prompt - g->prompts) * (size_t)g->request.n;
    weir_status status = WEIR_OK;
    for (int32_t i = 0; i < g->request.n; i++)
        if (answers[i].finish == WEIR_FINISH_NONE && status == WEIR_OK)
            status = weir_answer_finish(&answers[i], WEIR_FINISH_LENGTH);
    prompt->done = prompt->scored = true;
    prompt->usage = event->usage;
    g->n_done++;
    count_tokens(&g->exchange->server->metrics, prompt);
    if (event->status == WEIR_OK && prompt->admitted)
        observe_times(&g->exchange->server->metrics, event);
    if (event->status != WEIR_OK && g->failure.status == 0)
        weir_api_from_status(&g->failure, event->status, event->message);
    return status;
}

static bool take_event(weir_generation *g, weir_prompt *prompt, const weir_event *event)
{
    const size_t choice =
        (size_t)(prompt - g->prompts) * (size_t)g->request.n + (size_t)event->choice;
    weir_answer *const answer = choice < g->n_choices ? &g->answers[choice] : NULL;
    weir_status status = WEIR_OK;
    bool go_on = true;
    switch (event->type) {
    case WEIR_EVENT_ADMITTED:
        g->admitted = prompt->admitted = true;
        prompt->usage = event->usage;
        break;
    case WEIR_EVENT_PROMPT: status = take_prompt_score(prompt, event); break;
    case WEIR_EVENT_LOGITS: break;
    case WEIR_EVENT_TOKEN:
        prompt->scored = true;
        if (answer == NULL || answer->finish != WEIR_FINISH_NONE) break;
        observe_token(g, answer);
        status = weir_answer_token(answer, event, &go_on);
        break;
    case WEIR_EVENT_CHOICE:
        prompt->scored = true;
        if (answer != NULL && answer->finish == WEIR_FINISH_NONE)
            status = weir_answer_finish(answer, event->finish);
        break;
    case WEIR_EVENT_DONE: status = take_done(g, prompt, event); break;
    }
    if (status != WEIR_OK && g->failure.status == 0)
        weir_api_from_status(&g->failure, status, NULL);
    return go_on && g->failure.status == 0;
}

static bool on_event(void *user, const weir_event *event)
{
    weir_prompt *const prompt = user;
    weir_generation *const g = prompt->generation;
    weir_exchange *const x = g->exchange;
    weir_payer *const before =
        weir_payer_set(weir_exchange_payer(x)); /* the engine thread has no payer */
    (void)pthread_mutex_lock(&x->lock);
    const bool go_on = take_event(g, prompt, event);
    const bool over = weir_generation_is_over(g);
    if (g->request.stream && g->admitted && !over && x->ready == WEIR_NOT_READY)
        x->ready = WEIR_READY_STREAM;
    const bool wakes = g->request.stream && x->ready == WEIR_READY_STREAM;
    (void)pthread_mutex_unlock(&x->lock);
    (void)weir_payer_set(before);
    /* The job is not released before this returns, nor is the exchange destroyed. */
    if (wakes) weir_exchange_wake(x);
    if (event->type == WEIR_EVENT_DONE || over)
        weir_workers_add(&x->server->workers, x, WEIR_WORK_ADVANCE);
    return go_on;
}

/* ---- submitting (worker) --------------------------------------------------------------------- */

static weir_status submit(weir_generation *g, weir_prompt *prompt, weir_error *error)
{
    const weir_openai_request *const r = &g->request;
    weir_exchange *const x = g->exchange;
    const weir_engine_facts *const facts = weir_service_facts_of(x->server->options.service);
    const int32_t room = weir_service_row_limit(facts, r->n) - (int32_t)prompt->ids.count;
    weir_request request = {
        .prompt = prompt->ids.data,
        .n_prompt = (int32_t)prompt->ids.count,
        .n_choices = r->n,
        .max_tokens = r->max_tokens < 0 || r->max_tokens > room ? room : (int32_t)r->max_tokens,
        .min_tokens = r->min_tokens < room ? r->min_tokens : room,
        .ignore_eos = r->ignore_eos,
        .want_logprobs = r->logprobs,
        .want_prompt_logprobs = r->logprobs && r->echo,
        .cache_prompt = r->cache_prompt,
        .n_top_logprobs = r->n_top_logprobs,
        .sampling = r->sampling,
        .client = x->key,
        .priority = r->priority + (x->key >= 0 ? x->server->access.priority[x->key] : 0),
        .timeout_ns = r->timeout_ns,
        .cache_salt = weir_generation_salt(g),
        .n_kept = g->beginning.n_kept,
        .session = r->session != NULL ? g->own.name : NULL,
        .unused = g->files.unused,
        .policy = r->policy,
        .kv_budget = r->kv_budget,
        .callback = on_event,
        .user = prompt,
    };
    if (r->kv_protect && prompt->has_preamble)
        request.n_pinned =
            weir_turn_second(x->server->options.tokenizer, request.prompt, prompt->ids.count);
    weir_turn_starts(
        x->server->options.tokenizer, request.prompt, prompt->ids.count, request.turn_starts,
        WEIR_TURN_STARTS
    );
    weir_job *job = NULL;
    const weir_status status =
        weir_service_submit(x->server->options.service, &job, &request, error);
    if (status != WEIR_OK) return status;
    prompt->job = job; /* only workers use it */
    return WEIR_OK;
}

/* True if the service's message begins with this code, which clients look for
 * (engine/schedule/service.h). */
static bool has_code(const weir_error *error, const char *code)
{
    const size_t n = strlen(code);
    return strncmp(error->text, code, n) == 0 && error->text[n] == ':';
}

static void submit_failure(
    weir_generation *g, const weir_prompt *prompt, weir_status status, const weir_error *error
)
{
    const weir_server *const server = g->exchange->server;
    const char *const param = g->request.chat ? "messages" : "prompt";
    weir_api_error *const failure = &g->failure;
    if (status == WEIR_EFULL) {
        (void)!weir_api_fail(
            failure, 429, "queue_full", NULL, "the queue of %d requests is full; try again",
            weir_service_facts_of(server->options.service)->queue_limit
        );
    } else if (status == WEIR_EINVAL && has_code(error, "context_length_exceeded")) {
        (void)!weir_api_too_long(failure, param, (int64_t)prompt->ids.count, server->limits.window);
    } else if (status == WEIR_EINVAL && has_code(error, "kv_budget_exceeded")) {
        (void)!weir_api_fail(failure, 400, "kv_budget_exceeded", "kv_budget", "%s", error->text);
    } else if (status == WEIR_EINVAL) {
        const bool budget = strncmp(error->text, "kv_budget ", strlen("kv_budget ")) == 0;
        (void)!weir_api_bad(failure, budget ? "kv_budget" : NULL, "%s", error->text);
    } else if (status == WEIR_EMISMATCH && g->files.is_refused) {
        const weir_api_case refused = { status, 409, "session_unusable", "session" };
        (void)!weir_api_by_case(failure, &refused, 1, status, error->text);
    } else if (status == WEIR_EMISMATCH) {
        (void)!weir_states_fail(failure, status, error);
    } else {
        weir_api_from_status(failure, status, error->text);
    }
}

/* Starts as many prompts as there are slots, each after its files were read. The rest waits here,
 * so one request cannot fill the queue. */
static void submit_more(weir_generation *g)
{
    weir_exchange *const x = g->exchange;
    const size_t at_once = (size_t)(x->server->limits.n_slots / g->request.n > 0
                                        ? x->server->limits.n_slots / g->request.n
                                        : 1);
    for (;;) {
        (void)pthread_mutex_lock(&x->lock);
        const size_t running = g->n_started - g->n_done;
        const bool start = g->failure.status == 0 && !g->cancelled && g->n_started < g->n_prompts &&
                           running < at_once;
        const size_t index = g->n_started;
        (void)pthread_mutex_unlock(&x->lock);
        weir_error error = { 0 };
        weir_status status = WEIR_OK;
        if (weir_generation_is_reading(g)) return;
        if (!start || !weir_generation_read(g, &g->prompts[index], &status, &error)) return;
        (void)pthread_mutex_lock(&x->lock);
        g->n_started++;
        (void)pthread_mutex_unlock(&x->lock);
        if (status == WEIR_OK) status = submit(g, &g->prompts[index], &error);
        if (status == WEIR_OK) continue;
        (void)pthread_mutex_lock(&x->lock);
        g->n_started--;
        g->queue_was_full = status == WEIR_EFULL &&
                            g->n_started > 0; /* the timer or the next finished job tries again */
        if (!g->queue_was_full) submit_failure(g, &g->prompts[index], status, &error);
        (void)pthread_mutex_unlock(&x->lock);
        return;
    }
}

/* ---- ending (worker) ------------------------------------------------------------------------- */

static weir_success success_of(const weir_generation *g)
{
    const char *const reason = weir_answer_reason(&g->answers[0]);
    return reason[0] == 't'   ? WEIR_SUCCESS_TOOL_CALLS
           : reason[0] == 'l' ? WEIR_SUCCESS_LENGTH
                              : WEIR_SUCCESS_STOP;
}

static void count_success(weir_generation *g)
{
    weir_metrics *const metrics = &g->exchange->server->metrics;
    const weir_usage usage = weir_generation_usage(g);
    weir_metrics_add(&metrics->success[success_of(g)], 1);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_WHOLE, weir_clock_ns() - g->exchange->start_ns);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_PROMPT_TOKENS, usage.n_prompt);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_ANSWER_TOKENS, usage.n_answer);
}

bool weir_generation_is_late(const weir_generation *g)
{
    for (size_t i = 0; i < g->n_choices; i++)
        if (g->answers[i].finish == WEIR_FINISH_TIMEOUT) return true;
    return false;
}

static void set_timeout_error(weir_generation *g)
{
    (void)!weir_api_fail(
        &g->exchange->error, 408, "timeout", "timeout",
        "the timeout of %.3f s passed before the answer was complete; choices hold what was "
        "computed",
        (double)g->request.timeout_ns * 1e-9
    );
}

/* Makes the reply of a request without a stream, or of one that failed before its stream began. */
static void make_reply(weir_generation *g)
{
    weir_exchange *const x = g->exchange;
    weir_buffer text = { 0 };
    (void)pthread_mutex_lock(&x->lock);
    const bool failed = g->failure.status != 0;
    if (failed) x->error = g->failure;
    const bool is_late = !failed && weir_generation_is_late(g);
    if (is_late) set_timeout_error(g);
    const weir_status status = failed ? WEIR_OK : weir_reply_whole(&text, g);
    (void)pthread_mutex_unlock(&x->lock);
    if (failed)
        weir_reply_error(x);
    else if (is_late && status == WEIR_OK)
        weir_reply_json(x, x->error.status, &text);
    else
        weir_reply_result(x, &text, status);
}

/* The service must not be called with this lock held, because its callbacks take the lock. */
void weir_generation_cancel(weir_generation *g)
{
    if (g->cancelled) return;
    g->cancelled = true;
    weir_workers_add(&g->exchange->server->workers, g->exchange, WEIR_WORK_ADVANCE);
}

void weir_generation_stop(weir_generation *g)
{
    if (weir_generation_is_over(g)) return;
    (void)!weir_api_fail(
        &g->failure, 503, NULL, NULL,
        "this server shut down before the answer was complete; send the request again"
    );
    weir_generation_cancel(g);
}

static void cancel_jobs(weir_generation *g)
{
    for (size_t i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].job != NULL)
            weir_job_cancel(g->prompts[i].job); /* no effect on a finished job */
}

void weir_generation_advance(weir_exchange *x)
{
    weir_generation *const g = x->generation;
    submit_more(g);
    (void)pthread_mutex_lock(&x->lock);
    const bool cancelled = g->cancelled;
    const bool ends = weir_generation_is_over(g) && !g->ended;
    const bool streams =
        g->request.stream && (x->ready == WEIR_READY_STREAM || g->failure.status == 0);
    if (ends) {
        g->ended = true;
        if (g->failure.status == 0)
            count_success(g);
        else
            weir_generation_cancel(g);
        if (streams) x->ready = WEIR_READY_STREAM;
    }
    (void)pthread_mutex_unlock(&x->lock);
    if (ends && streams) weir_exchange_wake(x);
    if (cancelled) {
        weir_generation_abandon(g);
        cancel_jobs(g);
    }
    if (ends && !streams) make_reply(g);
}

void weir_generation_release(weir_generation *g)
{
    for (size_t i = 0; i < g->n_prompts; i++) {
        if (g->prompts[i].job != NULL) weir_job_release(g->prompts[i].job);
        g->prompts[i].job = NULL;
        /* Released before its last event. */
        if (!g->prompts[i].done) count_tokens(&g->exchange->server->metrics, &g->prompts[i]);
    }
}

void weir_generation_free(weir_generation *g)
{
    for (size_t i = 0; i < g->n_prompts; i++) {
        weir_ids_free(&g->prompts[i].ids);
        weir_buffer_free(&g->prompts[i].echo);
        weir_scores_free(&g->prompts[i].scores);
    }
    for (size_t i = 0; i < g->n_choices; i++) weir_answer_free(&g->answers[i]);
    weir_beginning_close(&g->beginning);
    weir_buffer_free(&g->out);
    weir_openai_request_free(&g->request);
    weir_memory_give(g->prompts);
    weir_memory_give(g->answers);
    weir_memory_give(g);
}

void weir_generation_log(const weir_generation *g, weir_buffer *line)
{
    const weir_usage usage = weir_generation_usage(g);
    const int64_t start_ns = g->exchange->start_ns;
    int32_t n_answer = 0;
    for (size_t i = 0; i < g->n_choices; i++) n_answer += g->answers[i].n_tokens;
    const double first_ms =
        g->first_token_ns != 0 ? (double)(g->first_token_ns - start_ns) * 1e-6 : -1;
    const int32_t gaps = n_answer / (int32_t)g->n_choices - 1;
    const char *finish = g->exchange->gone        ? "cancelled"
                         : g->failure.status != 0 ? "error"
                                                  : weir_answer_reason(&g->answers[0]);
    (void)!weir_buffer_format(
        line,
        ",\"tokens_truncated\":%d,\"tokens_in\":%d,\"tokens_cached\":%d,"
        "\"tokens_matched\":%d,\"reuse\":\"%s\",\"tokens_out\":%d,"
        "\"ttft_ms\":%.3f",
        (int)weir_generation_truncated(g), usage.n_prompt, usage.n_cached, usage.n_matched,
        usage.reuse != NULL ? usage.reuse : "not begun", n_answer, first_ms
    );
    if (gaps > 0) /* a single token has no interval */
        (void)!weir_buffer_format(
            line, ",\"itl_ms\":%.3f", (double)(g->last_token_ns - g->first_token_ns) * 1e-6 / gaps
        );
    (void)!weir_buffer_format(line, ",\"finish\":\"%s\"", finish);
}

weir_usage weir_generation_usage(const weir_generation *g)
{
    weir_usage sum = { 0 };
    for (size_t i = 0; i < g->n_prompts; i++) {
        const weir_usage *const u = &g->prompts[i].usage;
        sum.n_prompt += u->n_prompt;
        sum.n_cached += u->n_cached;
        sum.n_matched += u->n_matched;
        sum.reuse = u->reuse;
        if (u->numerics != NULL) sum.numerics = u->numerics;
        sum.n_answer += u->n_answer;
        sum.n_rows += u->n_rows;
        sum.kv_bytes += u->kv_bytes;
        sum.n_evicted += u->n_evicted;
        weir_coda_stats_add(&sum.coda, &u->coda);
        sum.kv_policy = u->kv_policy;
        sum.kv_budget = u->kv_budget;
        sum.queue_ns += u->queue_ns;
        sum.prefill_ns += u->prefill_ns;
        sum.decode_ns += u->decode_ns;
    }
    return sum;
}

int64_t weir_generation_truncated(const weir_generation *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->n_prompts; i++) n += g->prompts[i].n_truncated;
    return n;
}
