/* engine/serve/generation.c - a running generation: adds the engine's events to answers, and ends
 * when all prompts are done. Only weir_generation_on_event runs on the engine thread. */
#include "engine/serve/generation.h"

#include <math.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"

/* ---- events (engine thread) ------------------------------------------------------------------ */

static weir_status take_prompt_score(weir_prompt *prompt, const weir_event *event)
{
    return weir_logprob_list_add(
        &prompt->logprobs, event->token, event->logprob.logprob, event->top, event->n_top, 0
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

static weir_status take_embedding(weir_generation *g, weir_prompt *prompt, const float *embedding)
{
    const size_t d = (size_t)weir_service_facts_of(g->exchange->server->options.service)->d_model;
    if (!g->request.embeds || embedding == NULL) return WEIR_OK;
    prompt->embedding = weir_memory_take(d * sizeof *prompt->embedding);
    if (prompt->embedding == NULL) return WEIR_ENOMEM;
    memcpy(prompt->embedding, embedding, d * sizeof *prompt->embedding);
    return WEIR_OK;
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
    if (event->status == WEIR_EINVAL && g->grammar != NULL && g->failure.status == 0)
        (void
        )!weir_api_bad(&g->failure, g->grammar_field, "%s: %s", g->grammar_field, event->message);
    if (event->status != WEIR_OK && g->failure.status == 0)
        weir_api_from_status(&g->failure, event->status, event->message);
    if (status == WEIR_OK && event->status == WEIR_OK)
        status = take_embedding(g, prompt, event->embedding);
    return status;
}

weir_status weir_prompt_end_late(weir_generation *g, weir_prompt *prompt)
{
    weir_answer *const answers = g->answers + (size_t)(prompt - g->prompts) * (size_t)g->request.n;
    weir_status status = WEIR_OK;
    prompt->usage.n_answer = 0;
    prompt->usage.is_cut = prompt->admitted;
    for (int32_t i = 0; i < g->request.n; i++) {
        prompt->usage.n_answer += answers[i].n_tokens;
        if (answers[i].finish == WEIR_FINISH_NONE && status == WEIR_OK)
            status = weir_answer_finish(&answers[i], WEIR_FINISH_TIMEOUT);
    }
    prompt->done = prompt->scored = true;
    g->n_done++;
    count_tokens(&g->exchange->server->metrics, prompt);
    return status;
}

/* The probability of yes, if only yes and no could come. */
static void take_rank(const weir_generation *g, weir_prompt *prompt, const float *logits)
{
    const weir_ranking *const ranking =
        &weir_service_facts_of(g->exchange->server->options.service)->ranking;
    if (!g->request.ranks || !ranking->is_used) return;
    const double no = ranking->no >= 0 ? (double)logits[ranking->no] : 0;
    prompt->score = 1 / (1 + exp(no - (double)logits[ranking->yes]));
}

static bool take_event(weir_generation *g, weir_prompt *prompt, const weir_event *event)
{
    if (prompt->done) return false; /* weir_prompt_end_late */
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
    case WEIR_EVENT_LOGITS: take_rank(g, prompt, event->logits); break;
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

bool weir_generation_on_event(void *user, const weir_event *event)
{
    weir_prompt *const prompt = user;
    weir_generation *const g = prompt->generation;
    weir_exchange *const x = g->exchange;
    weir_memory_tracker *const before =
        weir_memory_tracker_set(weir_exchange_tracker(x)); /* the engine thread has no tracker */
    (void)pthread_mutex_lock(&x->lock);
    const bool go_on = take_event(g, prompt, event);
    const bool over = weir_generation_is_over(g);
    if (g->request.stream && g->admitted && !over && x->ready == WEIR_NOT_READY)
        x->ready = WEIR_READY_STREAM;
    const bool wakes = g->request.stream && x->ready == WEIR_READY_STREAM;
    (void)pthread_mutex_unlock(&x->lock);
    (void)weir_memory_tracker_set(before);
    /* The job is not released before this returns, nor is the exchange destroyed. */
    if (wakes) weir_exchange_wake(x);
    if (event->type == WEIR_EVENT_DONE || over)
        weir_workers_add(&x->server->workers, x, WEIR_WORK_ADVANCE);
    return go_on;
}

/* ---- ending (worker) ------------------------------------------------------------------------- */

static weir_success success_of(const weir_generation *g)
{
    const char *const reason = weir_answer_reason(&g->answers[0]);
    return reason[0] == 't'   ? WEIR_SUCCESS_TOOL_CALLS
           : reason[0] == 'l' ? WEIR_SUCCESS_LENGTH
                              : WEIR_SUCCESS_STOP;
}

bool weir_generation_is_late(const weir_generation *g)
{
    for (size_t i = 0; i < g->n_choices; i++)
        if (g->answers[i].finish == WEIR_FINISH_TIMEOUT) return true;
    return false;
}

/* What a timeout ended was not answered to the end. */
static void count_success(weir_generation *g)
{
    if (weir_generation_is_late(g)) return;
    weir_metrics *const metrics = &g->exchange->server->metrics;
    const weir_usage usage = weir_generation_usage(g);
    weir_metrics_add(&metrics->success[success_of(g)], 1);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_WHOLE, weir_clock_ns() - g->exchange->start_ns);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_PROMPT_TOKENS, usage.n_prompt);
    weir_metrics_observe(metrics, WEIR_HISTOGRAM_ANSWER_TOKENS, usage.n_answer);
}

/* For the prompts of the next turns. */
static void remember_calls(const weir_generation *g)
{
    for (size_t i = 0; i < g->n_choices; i++) {
        size_t n;
        const weir_tool_call *const calls = weir_answer_calls(&g->answers[i], &n);
        for (size_t k = 0; k < n; k++)
            if (calls[k].id == NULL)
                weir_call_memory_put(
                    g->exchange->server->calls, weir_generation_call_id(g, i, k).text,
                    calls[k].arguments
                );
    }
}

static void set_timeout_error(weir_generation *g)
{
    (void)!weir_api_fail(
        &g->exchange->error, 408, "timeout", "timeout",
        "the timeout of %.3f s passed before the answer was complete; `%s` has what was computed",
        (double)g->request.timeout_ns * 1e-9,
        g->api->answer_field != NULL ? g->api->answer_field : "choices"
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
    if (failed && g->api->name_error != NULL) g->api->name_error(&x->error);
    const bool is_late = !failed && weir_generation_is_late(g);
    if (is_late) set_timeout_error(g);
    const weir_status status = failed ? WEIR_OK : g->api->whole(&text, g);
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
    weir_generation_start_prompts(g);
    (void)pthread_mutex_lock(&x->lock);
    const bool ends = weir_generation_is_over(g) && !g->ended;
    const bool cancelled = g->cancelled || (ends && weir_generation_is_late(g));
    const bool streams =
        g->request.stream && (x->ready == WEIR_READY_STREAM || g->failure.status == 0);
    if (ends) {
        g->ended = true;
        if (g->failure.status == 0) {
            count_success(g);
            remember_calls(g);
        } else {
            weir_generation_cancel(g);
        }
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
        weir_memory_give(g->prompts[i].embedding);
        weir_logprob_list_free(&g->prompts[i].logprobs);
    }
    for (size_t i = 0; i < g->n_choices; i++) weir_answer_free(&g->answers[i]);
    weir_beginning_close(&g->beginning);
    weir_beginning_close(&g->files.beginning);
    weir_grammar_release(g->grammar);
    weir_buffer_free(&g->out);
    if (g->api_data != NULL) g->api->free_data(g->api_data);
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
        sum.is_cut = sum.is_cut || u->is_cut;
        sum.n_drafted += u->n_drafted;
        sum.n_accepted += u->n_accepted;
        sum.n_rows += u->n_rows;
        sum.kv_bytes += u->kv_bytes;
        sum.n_evicted += u->n_evicted;
        weir_bank_stats_add(&sum.banks, &u->banks);
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
