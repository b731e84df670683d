/* engine/serve/reply.c - the JSON of chats and completions: whole objects and stream chunks. */
#include <math.h>
#include <string.h>

#include "engine/serve/generation.h"
#include "engine/serve/sse.h"

/* ---- parts of all forms ---------------------------------------------------------------------- */

static const char *text_of(const weir_buffer *buffer)
{
    return buffer->data != NULL ? buffer->data : "";
}

static void write_head(weir_json_out *json, const weir_generation *g, bool chunk)
{
    const weir_server_options *const options = &g->exchange->server->options;
    const char *const object = !g->request.chat ? "text_completion"
                               : chunk          ? "chat.completion.chunk"
                                                : "chat.completion";
    const struct {
        const char *key, *value;
    } texts[] = {
        { "id", g->id },
        { "object", object },
        { "model", options->model_name },
        { "system_fingerprint", options->fingerprint },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        weir_json_put_string(json, texts[i].key, texts[i].value);
    weir_json_put_integer(json, "created", g->created);
    weir_reply_notes(json, g);
}

static void write_usage(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    int64_t reasoning = 0;
    for (size_t i = 0; i < g->n_choices; i++) reasoning += g->answers[i].n_reasoning_tokens;
    weir_json_key(json, "usage");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "prompt_tokens", usage.n_prompt);
    weir_json_put_integer(json, "completion_tokens", usage.n_answer);
    weir_json_put_integer(json, "total_tokens", (int64_t)usage.n_prompt + usage.n_answer);
    weir_json_key(json, "prompt_tokens_details");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "cached_tokens", usage.n_cached);
    weir_json_put_integer(json, "matched_tokens", usage.n_matched);
    if (usage.reuse != NULL) weir_json_put_string(json, "reuse", usage.reuse);
    weir_json_close(json, '}');
    weir_json_key(json, "completion_tokens_details");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "reasoning_tokens", reasoning);
    weir_json_close(json, '}');
    weir_reply_usage_notes(json, g);
    weir_json_close(json, '}');
}

static void write_reasoning(
    weir_json_out *json, const weir_generation *g, const weir_buffer *reasoning
)
{
    const weir_reasoning_field field = g->exchange->server->options.reasoning_field;
    if (field != WEIR_REASONING) {
        weir_json_key(json, "reasoning_content");
        weir_json_bytes(json, text_of(reasoning), reasoning->size);
    }
    if (field != WEIR_REASONING_CONTENT) {
        weir_json_key(json, "reasoning");
        weir_json_bytes(json, text_of(reasoning), reasoning->size);
    }
}

static void write_call_head(
    weir_json_out *json, const weir_generation *g, size_t choice, size_t i, const char *own
)
{
    const weir_call_id id = weir_generation_call_id(g, choice, i);
    weir_json_put_string(json, "id", own != NULL ? own : id.text);
    weir_json_put_string(json, "type", "function");
}

static void write_function(weir_json_out *json, const char *name, const char *arguments, size_t n)
{
    weir_json_key(json, "function");
    weir_json_open(json, '{');
    if (name != NULL) weir_json_put_string(json, "name", name);
    weir_json_key(json, "arguments");
    weir_json_bytes(json, arguments, n);
    weir_json_close(json, '}');
}

static void write_calls(weir_json_out *json, const weir_generation *g, size_t choice)
{
    size_t n;
    const weir_tool_call *const calls = weir_answer_calls(&g->answers[choice], &n);
    weir_json_key(json, "tool_calls");
    weir_json_open(json, '[');
    for (size_t i = 0; i < n; i++) {
        weir_json_open(json, '{');
        write_call_head(json, g, choice, i, calls[i].id);
        write_function(json, calls[i].name, calls[i].arguments, strlen(calls[i].arguments));
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

/* A stream sends id and name of a call first, then its arguments as they are written. */
static void write_call_delta(
    weir_json_out *json, const weir_generation *g, size_t choice, bool arguments
)
{
    const weir_answer *const answer = &g->answers[choice];
    const size_t i = answer->n_calls_sent, sent = answer->n_arguments_sent;
    weir_partial_call call = { NULL, NULL, "", 0 };
    bool is_complete;
    (void)weir_answer_next_call(answer, &call, &is_complete);
    weir_json_key(json, "tool_calls");
    weir_json_open(json, '[');
    weir_json_open(json, '{');
    weir_json_put_integer(json, "index", (int64_t)i);
    if (!arguments) write_call_head(json, g, choice, i, call.id);
    if (arguments)
        write_function(json, NULL, call.arguments + sent, call.n - sent);
    else
        write_function(json, call.name, "", 0);
    weir_json_close(json, '}');
    weir_json_close(json, ']');
}

/* Sets offsets into the echoed text, and adds a place without value for a first token without a
 * score. */
static weir_status place_prompt_logprobs(weir_generation *g, weir_prompt *prompt)
{
    weir_logprob_list placed = { .width = prompt->logprobs.width };
    const weir_logprob_list *from = &prompt->logprobs;
    const size_t missing = prompt->ids.count > from->count ? 1 : 0; /* a timeout cuts the end */
    int64_t offset = 0;
    weir_status status = WEIR_OK;
    weir_detokenizer bytes = { 0 };
    weir_buffer text = { 0 };
    for (size_t i = 0; i < prompt->ids.count && status == WEIR_OK; i++) {
        const bool known = i > 0 && i - missing < from->count;
        status = weir_logprob_list_add(
            &placed, prompt->ids.data[i], known ? from->logprob[i - missing] : NAN,
            known ? from->top + (i - missing) * from->width : NULL,
            known ? from->n_top[i - missing] : 0, offset
        );
        weir_buffer_clear(&text);
        if (status == WEIR_OK)
            status = weir_detokenizer_token(
                &bytes, g->exchange->server->options.tokenizer, &text, prompt->ids.data[i], false
            );
        if (text.size > 0) offset += weir_code_points(text.data, text.size);
    }
    weir_buffer_free(&text);
    weir_logprob_list_free(status == WEIR_OK ? &prompt->logprobs : &placed);
    if (status == WEIR_OK) prompt->logprobs = placed;
    return status;
}

static void write_logprobs(weir_json_out *json, weir_generation *g, size_t choice, bool with_prompt)
{
    weir_answer *const answer = &g->answers[choice];
    weir_prompt *const prompt = &g->prompts[choice / (size_t)g->request.n];
    const weir_tokenizer *const tokenizer = g->exchange->server->options.tokenizer;
    weir_json_key(json, "logprobs");
    if (!g->request.logprobs) {
        weir_json_null(json);
    } else if (g->request.chat) {
        weir_json_open(json, '{');
        weir_json_key(json, "content");
        weir_logprob_list_write_chat(json, &answer->logprobs, answer->n_logprobs_sent, tokenizer);
        weir_json_key(json, "refusal");
        weir_json_null(json);
        weir_json_close(json, '}');
    } else {
        weir_logprob_list_write_completion(
            json, with_prompt ? &prompt->logprobs : NULL, &answer->logprobs,
            answer->n_logprobs_sent, tokenizer
        );
    }
    answer->n_logprobs_sent = answer->logprobs.count;
}

static void write_finish(weir_json_out *json, const char *reason)
{
    weir_json_key(json, "finish_reason");
    if (reason != NULL)
        weir_json_string(json, reason);
    else
        weir_json_null(json);
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void write_message(weir_json_out *json, const weir_generation *g, size_t choice)
{
    const weir_answer *const answer = &g->answers[choice];
    size_t n_calls;
    (void)weir_answer_calls(answer, &n_calls);
    weir_json_key(json, "message");
    weir_json_open(json, '{');
    weir_json_put_string(json, "role", "assistant");
    weir_json_key(json, "content");
    if (n_calls > 0 && answer->content.size == 0)
        weir_json_null(json);
    else
        weir_json_bytes(json, text_of(&answer->content), answer->content.size);
    weir_json_key(json, "refusal");
    weir_json_null(json);
    if (answer->reasoning.size > 0) write_reasoning(json, g, &answer->reasoning);
    if (n_calls > 0) write_calls(json, g, choice);
    weir_json_close(json, '}');
}

static void write_echoed_text(
    weir_json_out *json, const weir_buffer *echo, const weir_buffer *content
)
{
    weir_buffer both = { 0 };
    weir_status status = weir_buffer_add(&both, text_of(echo), echo->size);
    if (status == WEIR_OK) status = weir_buffer_add(&both, text_of(content), content->size);
    weir_json_key(json, "text");
    if (status == WEIR_OK)
        weir_json_bytes(json, both.data, both.size);
    else if (json->status == WEIR_OK)
        json->status = status;
    weir_buffer_free(&both);
}

weir_status weir_reply_whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    write_head(&json, g, false);
    weir_json_key(&json, "choices");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < g->n_choices; i++) {
        weir_prompt *const prompt = &g->prompts[i / (size_t)g->request.n];
        if (g->request.echo && g->request.logprobs && i % (size_t)g->request.n == 0)
            WEIR_TRY(place_prompt_logprobs(g, prompt));
        weir_json_open(&json, '{');
        weir_json_put_integer(&json, "index", (int64_t)i);
        if (g->request.chat)
            write_message(&json, g, i);
        else
            write_echoed_text(&json, &prompt->echo, &g->answers[i].content);
        write_logprobs(&json, g, i, g->request.echo);
        write_finish(&json, weir_answer_reason(&g->answers[i]));
        weir_json_close(&json, '}');
    }
    weir_json_close(&json, ']');
    write_usage(&json, g);
    weir_reply_timings(&json, g);
    if (weir_generation_is_late(g)) weir_api_error_member(&json, &g->exchange->error);
    weir_json_close(&json, '}');
    return json.status;
}

/* ---- stream chunks --------------------------------------------------------------------------- */

typedef enum chunk {
    CHUNK_ROLE,
    CHUNK_REASONING,
    CHUNK_CONTENT,
    CHUNK_CALL,
    CHUNK_ARGUMENTS,
    CHUNK_FINISH
} chunk;

static void write_delta(weir_json_out *json, const weir_generation *g, size_t choice, chunk kind)
{
    const weir_answer *const answer = &g->answers[choice];
    weir_json_key(json, "delta");
    weir_json_open(json, '{');
    switch (kind) {
    case CHUNK_ROLE:
        weir_json_put_string(json, "role", "assistant");
        weir_json_put_string(json, "content", "");
        break;
    case CHUNK_REASONING: write_reasoning(json, g, &answer->reasoning); break;
    case CHUNK_CONTENT:
        weir_json_key(json, "content");
        weir_json_bytes(json, text_of(&answer->content), answer->content.size);
        break;
    case CHUNK_CALL:
    case CHUNK_ARGUMENTS: write_call_delta(json, g, choice, kind == CHUNK_ARGUMENTS); break;
    case CHUNK_FINISH: break;
    }
    weir_json_close(json, '}');
}

/* For completions CHUNK_ROLE carries the echoed prompt. */
static void write_text(weir_json_out *json, const weir_generation *g, size_t choice, chunk kind)
{
    const weir_buffer *const echo = &g->prompts[choice / (size_t)g->request.n].echo,
                             *const content = &g->answers[choice].content;
    const weir_buffer *const text = kind == CHUNK_ROLE ? echo : content;
    weir_json_key(json, "text");
    weir_json_bytes(json, text_of(text), kind == CHUNK_FINISH ? 0 : text->size);
}

static weir_status write_chunk(weir_buffer *out, weir_generation *g, size_t choice, chunk kind)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(weir_sse_begin(out));
    weir_json_open(&json, '{');
    write_head(&json, g, true);
    weir_json_key(&json, "choices");
    weir_json_open(&json, '[');
    weir_json_open(&json, '{');
    weir_json_put_integer(&json, "index", (int64_t)choice);
    if (g->request.chat)
        write_delta(&json, g, choice, kind);
    else
        write_text(&json, g, choice, kind);
    const bool logprobs = kind == CHUNK_CONTENT || (kind == CHUNK_ROLE && !g->request.chat);
    if (logprobs && g->request.logprobs) {
        write_logprobs(&json, g, choice, kind == CHUNK_ROLE);
    } else {
        weir_json_key(&json, "logprobs");
        weir_json_null(&json);
    }
    write_finish(&json, kind == CHUNK_FINISH ? weir_answer_reason(&g->answers[choice]) : NULL);
    weir_json_close(&json, '}');
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    WEIR_TRY(json.status);
    return weir_sse_end(out);
}

/* What is new of the calls. */
static weir_status write_new_calls(weir_buffer *out, weir_generation *g, size_t choice)
{
    weir_answer *const answer = &g->answers[choice];
    weir_partial_call call;
    bool is_complete = true;
    while (is_complete && weir_answer_next_call(answer, &call, &is_complete)) {
        if (!answer->call_begun) WEIR_TRY(write_chunk(out, g, choice, CHUNK_CALL));
        answer->call_begun = true;
        if (call.n > answer->n_arguments_sent)
            WEIR_TRY(write_chunk(out, g, choice, CHUNK_ARGUMENTS));
        answer->n_arguments_sent = call.n;
        if (!is_complete) break;
        answer->n_calls_sent++;
        answer->n_arguments_sent = 0;
        answer->call_begun = false;
    }
    return WEIR_OK;
}

/* The first chunk of a choice. *sent is false while the prompt's log-probabilities are
 * incomplete. */
static weir_status write_first(weir_buffer *out, weir_generation *g, size_t choice)
{
    weir_answer *const answer = &g->answers[choice];
    weir_prompt *const prompt = &g->prompts[choice / (size_t)g->request.n];
    const bool with_logprobs = g->request.echo && g->request.logprobs;
    if (with_logprobs && !prompt->scored) return WEIR_OK;
    if (with_logprobs && choice % (size_t)g->request.n == 0)
        WEIR_TRY(place_prompt_logprobs(g, prompt));
    answer->role_sent = true;
    return g->request.chat || g->request.echo ? write_chunk(out, g, choice, CHUNK_ROLE) : WEIR_OK;
}

/* *is_first: the first chunk of a chat was written, which is a piece of its own. */
static weir_status write_choice(weir_buffer *out, weir_generation *g, size_t choice, bool *is_first)
{
    weir_answer *const answer = &g->answers[choice];
    /* Clients that measure take the first chunk of a chat for its first token. */
    const bool has_begun = answer->n_tokens > 0 || answer->finish != WEIR_FINISH_NONE;
    if (answer->finish_sent || (g->request.chat && !has_begun)) return WEIR_OK;
    if (!answer->role_sent) {
        WEIR_TRY(write_first(out, g, choice));
        if (g->request.chat) *is_first = answer->role_sent;
    }
    if (!answer->role_sent || *is_first) return WEIR_OK;
    if (answer->reasoning.size > 0) {
        WEIR_TRY(write_chunk(out, g, choice, CHUNK_REASONING));
        weir_buffer_clear(&answer->reasoning);
    }
    if (answer->content.size > 0 || answer->n_logprobs_sent < answer->logprobs.count) {
        WEIR_TRY(write_chunk(out, g, choice, CHUNK_CONTENT));
        weir_buffer_clear(&answer->content);
    }
    WEIR_TRY(write_new_calls(out, g, choice));
    if (answer->finish == WEIR_FINISH_NONE) return WEIR_OK;
    answer->finish_sent = true;
    return write_chunk(out, g, choice, CHUNK_FINISH);
}

static weir_status write_usage_chunk(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(weir_sse_begin(out));
    weir_json_open(&json, '{');
    write_head(&json, g, true);
    weir_json_key(&json, "choices");
    weir_json_open(&json, '[');
    weir_json_close(&json, ']');
    write_usage(&json, g);
    weir_reply_timings(&json, g);
    weir_json_close(&json, '}');
    WEIR_TRY(json.status);
    return weir_sse_end(out);
}

weir_status weir_reply_events(weir_buffer *out, weir_generation *g)
{
    if (g->failure.status != 0) return weir_reply_failure(out, g);
    const size_t n_begun = g->n_started * (size_t)g->request.n; /* prompts start in order */
    const bool is_shown = g->admitted || g->ended; /* a timeout may end what was not admitted */
    bool has_first = false;
    for (size_t i = 0; is_shown && i < n_begun && i < g->n_choices; i++) {
        bool is_first = false;
        WEIR_TRY(write_choice(out, g, i, &is_first));
        has_first = has_first || is_first;
    }
    if (!g->ended || has_first) return WEIR_OK; /* the rest is the next piece */
    if (g->request.include_usage) WEIR_TRY(write_usage_chunk(out, g));
    WEIR_TRY(weir_sse_done(out));
    g->end_sent = true;
    return WEIR_OK;
}

const char *weir_reply_last_words(weir_generation *g)
{
    (void)g;
    return "data: {\"error\":{\"message\":\"no memory for the rest of this answer within "
           "memory.host; try again\",\"type\":\"server_error\",\"param\":null,"
           "\"code\":\"out_of_memory\"}}\n\n";
}
