/* engine/serve/prompts.c - starts the prompts of a generation: each becomes a job after its files
 * were read, or ends at the request's deadline. Workers. */
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/serve/generation.h"
#include "engine/text/turns.h"

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
        .want_embedding = r->embeds,
        .pooling = facts->pooling,
        .want_logits = r->ranks,
        .cache_prompt = r->cache_prompt,
        .n_top_logprobs = r->n_top_logprobs,
        .sampling = r->sampling,
        .grammar = g->grammar,
        .thought = g->thought,
        .client = x->key,
        .priority = r->priority + (x->key >= 0 ? x->server->access.priority[x->key] : 0),
        .deadline_ns = g->deadline_ns,
        .cache_salt = weir_generation_salt(g),
        .n_kept = g->beginning.n_kept,
        .session = r->session != NULL ? g->own.name : NULL,
        .unused = g->files.unused,
        .policy = r->policy,
        .kv_budget = r->kv_budget,
        .callback = weir_generation_on_event,
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
    if (!r->echo && !r->keep_ids) weir_ids_free(&prompt->ids); /* the job has its own */
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
    const char *const param = weir_generation_prompt_field(g);
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

/* ---- the deadline ---------------------------------------------------------------------------- */
/* The engine ends the prompts that are jobs between two steps, and says what they took. If it has
 * not after this, it is in a long step. */
enum { PATIENCE_NS = 100000000 };

/* True if all prompts end, those that are jobs, too. */
static bool ends_all(const weir_generation *g, int64_t now_ns)
{
    return now_ns >= g->deadline_ns + PATIENCE_NS;
}

bool weir_generation_is_due(const weir_generation *g, int64_t now_ns)
{
    return g->deadline_ns != 0 && now_ns >= g->deadline_ns && !g->cancelled &&
           !weir_generation_is_over(g) && (g->n_started < g->n_prompts || ends_all(g, now_ns));
}

/* Prompts that are not jobs end here, whether a file of theirs is still being read or not. Returns
 * false if the deadline has not passed. */
static bool end_at_deadline(weir_generation *g)
{
    weir_exchange *const x = g->exchange;
    weir_status status = WEIR_OK;
    const int64_t now_ns = weir_clock_ns();
    (void)pthread_mutex_lock(&x->lock);
    const bool is_due = weir_generation_is_due(g, now_ns);
    for (size_t i = ends_all(g, now_ns) ? 0 : g->n_started; is_due && i < g->n_prompts; i++) {
        const weir_status ended =
            g->prompts[i].done ? WEIR_OK : weir_prompt_end_late(g, &g->prompts[i]);
        if (status == WEIR_OK) status = ended;
    }
    if (is_due) g->n_started = g->n_prompts;
    if (status != WEIR_OK && g->failure.status == 0)
        weir_api_from_status(&g->failure, status, NULL);
    (void)pthread_mutex_unlock(&x->lock);
    if (is_due) weir_generation_abandon(g);
    return is_due;
}

/* ---- starting -------------------------------------------------------------------------------- */
/* Finds the next prompt; NULL: none may start now. As many run as there are slots. The rest waits
 * here, so one request cannot fill the queue. */
static weir_prompt *next_prompt(weir_generation *g)
{
    weir_exchange *const x = g->exchange;
    const size_t at_once = (size_t)(x->server->limits.n_slots / g->request.n > 0
                                        ? x->server->limits.n_slots / g->request.n
                                        : 1);
    (void)pthread_mutex_lock(&x->lock);
    const bool starts = g->failure.status == 0 && !g->cancelled && g->n_started < g->n_prompts &&
                        g->n_started - g->n_done < at_once;
    weir_prompt *const prompt = starts ? &g->prompts[g->n_started] : NULL;
    (void)pthread_mutex_unlock(&x->lock);
    return prompt;
}

/* Returns false if it cannot start: the request fails, or tries again later. */
static bool start(weir_generation *g, weir_prompt *prompt, weir_status status, weir_error *error)
{
    weir_exchange *const x = g->exchange;
    (void)pthread_mutex_lock(&x->lock);
    g->n_started++;
    (void)pthread_mutex_unlock(&x->lock);
    if (status == WEIR_OK) status = submit(g, prompt, error);
    if (status == WEIR_OK) return true;
    (void)pthread_mutex_lock(&x->lock);
    g->n_started--;
    /* The timer or the next finished job tries again. */
    g->queue_was_full = status == WEIR_EFULL && g->n_started > 0;
    if (!g->queue_was_full) submit_failure(g, prompt, status, error);
    (void)pthread_mutex_unlock(&x->lock);
    return false;
}

void weir_generation_start_prompts(weir_generation *g)
{
    for (;;) {
        weir_error error = { 0 };
        weir_status status = WEIR_OK;
        if (end_at_deadline(g) || weir_generation_is_reading(g)) return;
        if (!g->has_prompts && !weir_generation_read_prompts(g)) return;
        weir_prompt *const prompt = next_prompt(g);
        if (prompt == NULL || !weir_generation_read(g, prompt, &status, &error)) return;
        if (!start(g, prompt, status, &error)) return;
    }
}
