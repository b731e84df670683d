/* engine/serve/generation_open.c - from a request body to a generation: reads the request,
 * tokenises prompts to fit the window, prepares the answers. Runs on a worker. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "engine/serve/generation.h"
#include "engine/serve/sse.h"

/* ---- prompts --------------------------------------------------------------------------------- */

static weir_status read_chat_prompt(weir_generation *g, weir_api_error *error)
{
    const weir_server *const server = g->exchange->server;
    weir_buffer text = { 0 };
    const char *const first =
        json_string_value(json_object_get(json_array_get(g->request.messages, 0), "role"));
    g->prompts[0].has_preamble =
        g->request.tools != NULL || (first != NULL && strcmp(first, "system") == 0);
    const weir_status status =
        weir_chat_prompt(&g->prompts[0].ids, server, &g->request, &text, error);
    if (status == WEIR_OK && g->request.wants_thought && !weir_chat_reads_effort(server))
        weir_warning_add(
            g->exchange->warning,
            "reasoning_effort has no effect: the chat template does not read it"
        );
    if (status == WEIR_OK && text.size > 0)
        g->reasoning = weir_reasoning_after(text.data, text.size, server->reasons);
    weir_buffer_free(&text);
    return status;
}

static weir_status read_ids(weir_ids *ids, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        WEIR_TRY(weir_ids_add(ids, (int32_t)json_integer_value(json_array_get(list, i))));
    return WEIR_OK;
}

static weir_status read_completion_prompt(
    weir_generation *g, weir_prompt *prompt, const json_t *source, weir_api_error *error
)
{
    const weir_server *const server = g->exchange->server;
    weir_status status = WEIR_OK;
    if (json_is_string(source)) {
        const weir_encode_options options = { .add_special = g->request.state == NULL,
                                              .add_end = g->request.embeds,
                                              .parse_special = true };
        const char *const string = json_string_value(source);
        const size_t n = json_string_length(source);
        WEIR_TRY(weir_text_encode(
            &prompt->ids, server, string, n, &options, weir_generation_prompt_field(g), error
        ));
        if (g->request.echo)
            status = weir_buffer_add(
                &prompt->echo, json_string_value(source), json_string_length(source)
            );
    } else {
        status = read_ids(&prompt->ids, source);
        if (status == WEIR_OK && g->request.echo)
            status = weir_tokenizer_decode(
                server->options.tokenizer, &prompt->echo, prompt->ids.data, prompt->ids.count, false
            );
    }
    if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
    return status;
}

/* Leaves room for max_tokens, at most half of the window; without a limit, a quarter. Of the rest,
 * a quarter keeps the beginning with the instructions, three quarters the end. */
static void truncate_middle(weir_prompt *prompt, int32_t window, int64_t max_tokens)
{
    const int64_t half = window / 2, room = max_tokens < 0      ? window / 4
                                            : max_tokens < half ? max_tokens
                                                                : half;
    const size_t keep = (size_t)(window - room), head = keep / 4, tail = keep - head,
                 n = prompt->ids.count;
    if (n <= (size_t)window || keep == 0) return;
    memmove(prompt->ids.data + head, prompt->ids.data + n - tail, tail * sizeof *prompt->ids.data);
    prompt->ids.count = keep;
    prompt->n_truncated = (int32_t)(n - keep);
}

static weir_status check_length(
    const weir_generation *g, const weir_prompt *prompt, const char *param, weir_api_error *error
)
{
    const weir_engine_facts *const facts =
        weir_service_facts_of(g->exchange->server->options.service);
    const int64_t n = (int64_t)prompt->ids.count;
    weir_error why = { 0 };
    if (n > facts->window) return weir_api_too_long(error, param, n, facts->window);
    if (weir_service_check_budget(facts, n, g->request.n, &why) == WEIR_OK) return WEIR_OK;
    return weir_api_over_budget(
        error, param, why.text, n, weir_service_row_limit(facts, g->request.n)
    );
}

static weir_status check_session(const weir_generation *g, weir_api_error *error)
{
    if (g->request.session == NULL || g->exchange->server->options.sessions != NULL) return WEIR_OK;
    return weir_api_fail(
        error, 400, "unsupported_parameter", "session",
        "session: sessions are off; start the server with sessions.dir"
    );
}

static weir_status check_state(const weir_generation *g, weir_api_error *error)
{
    if (g->request.state == NULL || g->exchange->server->options.states != NULL) return WEIR_OK;
    return weir_api_fail(
        error, 400, "unsupported_parameter", "state",
        "state: no database of states is served; start the server with states.dir"
    );
}

/* The state was read. */
static weir_status take_beginning(weir_generation *g, weir_api_error *error)
{
    if (g->request.state == NULL) return WEIR_OK;
    WEIR_TRY(weir_generation_end_beginning(g, error));
    if (!weir_state_is_exact(&g->beginning.info) &&
        (!g->request.cache_prompt || g->request.policy != NULL))
        return weir_api_bad(
            error, "state",
            "a state that is packed or merged cannot be computed again: it "
            "excludes cache_prompt false and kv_policy"
        );
    return WEIR_OK;
}

static weir_status add_beginning(
    weir_prompt *prompt, const weir_beginning *beginning, weir_api_error *error
)
{
    weir_status status = WEIR_OK;
    for (int32_t i = 0; i < beginning->n_tokens && status == WEIR_OK; i++)
        status = weir_ids_add(&prompt->ids, beginning->tokens[i]);
    if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
    return status;
}

static weir_status read_prompts(weir_generation *g, weir_api_error *error)
{
    const int32_t limit = weir_service_row_limit(
        weir_service_facts_of(g->exchange->server->options.service), g->request.n
    );
    const char *const param = weir_generation_prompt_field(g);
    for (size_t i = 0; i < g->n_prompts; i++) {
        weir_prompt *const prompt = &g->prompts[i];
        prompt->generation = g;
        prompt->score = -1;
        prompt->logprobs.width = (size_t)g->request.n_top_logprobs;
        WEIR_TRY(add_beginning(prompt, &g->beginning, error));
        const json_t *const source =
            g->request.chat ? NULL : weir_openai_prompt_at(g->request.prompt, i);
        if (g->request.chat)
            WEIR_TRY(read_chat_prompt(g, error));
        else if (g->api->encode != NULL)
            WEIR_TRY(g->api->encode(g, &prompt->ids, source, error));
        else
            WEIR_TRY(read_completion_prompt(g, prompt, source, error));
        if (prompt->ids.count == (size_t)g->beginning.n_tokens)
            return weir_api_bad(error, param, "the prompt has no tokens");
        if (g->request.truncate_middle && !g->request.echo && g->request.state == NULL)
            truncate_middle(prompt, limit, g->request.max_tokens);
        WEIR_TRY(check_length(g, prompt, param, error));
    }
    return WEIR_OK;
}

static weir_status make_answers(weir_generation *g)
{
    const weir_server *const server = g->exchange->server;
    const bool some = g->holds_calls && g->request.callable != NULL;
    const weir_chat_parser_options options = { .format = server->format,
                                               .tools =
                                                   some ? g->request.callable : g->request.tools,
                                               .one_call = g->request.one_call,
                                               .is_sure = g->holds_calls,
                                               .only_calls =
                                                   g->holds_calls && g->request.must_call };
    for (size_t i = 0; i < g->n_choices; i++) {
        weir_answer *const answer = &g->answers[i];
        answer->tokenizer = server->options.tokenizer;
        answer->stop.list = &g->request.stop;
        answer->one_call = g->request.one_call && !g->request.must_call;
        answer->has_parts = g->api->has_parts;
        answer->keep_ids = g->request.keep_ids;
        answer->want_logprobs = g->request.logprobs;
        answer->logprobs.width = (size_t)g->request.n_top_logprobs;
        if (g->request.chat) WEIR_TRY(weir_chat_parser_open(&answer->parser, &options));
    }
    return WEIR_OK;
}

/* What they take from the prompts. */
static void begin_answers(weir_generation *g)
{
    for (size_t i = 0; i < g->n_choices; i++) {
        weir_answer *const answer = &g->answers[i];
        const weir_buffer *const echo = &g->prompts[i / (size_t)g->request.n].echo;
        if (answer->parser != NULL) weir_chat_parser_start(answer->parser, g->reasoning);
        if (g->request.echo)
            answer->n_code_points = echo->size > 0 ? weir_code_points(echo->data, echo->size) : 0;
    }
}

/* ---- prompts --------------------------------------------------------------------------------- */

static weir_status make_prompts(weir_generation *g, weir_api_error *error)
{
    WEIR_TRY(take_beginning(g, error));
    WEIR_TRY(read_prompts(g, error));
    weir_openai_request_forget_prompt(&g->request);
    WEIR_TRY(weir_generation_begin_grammar(g, error));
    begin_answers(g);
    g->has_prompts = true;
    return WEIR_OK;
}

bool weir_generation_read_prompts(weir_generation *g)
{
    weir_exchange *const x = g->exchange;
    weir_api_error error = { 0 };
    (void)pthread_mutex_lock(&x->lock);
    const bool is_over = weir_generation_is_over(g) || g->cancelled;
    (void)pthread_mutex_unlock(&x->lock);
    if (is_over) return false;
    const weir_status status = make_prompts(g, &error);
    if (status == WEIR_OK) return true;
    if (error.status == 0) weir_api_from_status(&error, status, NULL);
    (void)pthread_mutex_lock(&x->lock);
    if (g->failure.status == 0) g->failure = error;
    (void)pthread_mutex_unlock(&x->lock);
    return false;
}

/* ---- requests -------------------------------------------------------------------------------- */

static weir_status fill(weir_generation *g, weir_api_error *error)
{
    weir_exchange *const x = g->exchange;
    WEIR_TRY(g->api->read(g, x->body.data != NULL ? x->body.data : "", x->body.size, error));
    weir_exchange_drop_body(x);
    weir_exchange_warn(x, &g->request.unknown);
    const size_t n_prompts = g->request.chat ? 1 : weir_openai_prompt_count(g->request.prompt);
    g->reasoning.state = WEIR_THINK_CONTENT;
    g->created = weir_clock_unix_seconds();
    if (g->request.timeout_ns > 0) g->deadline_ns = x->start_ns + g->request.timeout_ns;
    uint64_t random[2] = { 0, 0 };
    (void)!getrandom(random, sizeof random, 0);
    (void)snprintf(
        g->id, sizeof g->id, "%s%016llx%08llx", g->api->id_prefix, (unsigned long long)random[0],
        (unsigned long long)(random[1] & 0xffffffff)
    );
    g->prompts = weir_memory_take_zero(n_prompts, sizeof *g->prompts);
    g->answers = weir_memory_take_zero(n_prompts * (size_t)g->request.n, sizeof *g->answers);
    if (g->prompts == NULL || g->answers == NULL) return weir_api_no_memory(error);
    g->n_prompts = n_prompts;
    g->n_choices = n_prompts * (size_t)g->request.n;
    g->own = weir_exchange_own(
        x, g->request.cache_salt, g->request.session != NULL ? g->request.session : ""
    );
    WEIR_TRY(check_session(g, error));
    WEIR_TRY(check_state(g, error));
    WEIR_TRY(weir_generation_open_grammar(g, error));
    const weir_status status = make_answers(g);
    if (status != WEIR_OK) weir_api_from_status(error, status, NULL);
    return status != WEIR_OK || g->request.state != NULL ? status : make_prompts(g, error);
}

void weir_generate(weir_exchange *x, const weir_api *api)
{
    weir_generation *const g = weir_memory_take_zero(1, sizeof *g);
    if (g == NULL) {
        weir_reply_status(x, WEIR_ENOMEM);
        return;
    }
    g->exchange = x;
    g->api = api;
    const weir_status status = fill(g, &x->error);
    if (status != WEIR_OK) {
        if (api->name_error != NULL) api->name_error(&x->error);
        weir_generation_free(g);
        weir_reply_error(x);
        return;
    }
    (void)pthread_mutex_lock(&x->lock);
    x->generation = g;
    g->cancelled = x->gone;
    (void)pthread_mutex_unlock(&x->lock);
    if (g->request.state != NULL) weir_generation_open_beginning(g);
    weir_generation_advance(x);
}

/* ---- chats and completions ------------------------------------------------------------------- */

static weir_status read_request(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    const weir_request_limits *const limits = &g->exchange->server->limits;
    return weir_openai_request_read(&g->request, g->api->chat, text, n, limits, error);
}

static const weir_api chat_api = {
    .id_prefix = "chatcmpl-",
    .chat = true,
    .read = read_request,
    .whole = weir_reply_whole,
    .events = weir_reply_events,
    .ping = weir_sse_ping,
    .last_words = weir_reply_last_words,
};
static const weir_api completion_api = {
    .id_prefix = "cmpl-",
    .read = read_request,
    .whole = weir_reply_whole,
    .events = weir_reply_events,
    .ping = weir_sse_ping,
    .last_words = weir_reply_last_words,
};

void weir_generate_chat(weir_exchange *x) { weir_generate(x, &chat_api); }
void weir_generate_completion(weir_exchange *x) { weir_generate(x, &completion_api); }
