/* engine/serve/anthropic_reply.c - an answer as content blocks (thinking, text, tool_use), whole or
 * as named events. A request has one answer. */
#include "engine/serve/anthropic_reply.h"

#include <string.h>

#include "engine/serve/anthropic_error.h"
#include "engine/serve/kv_out.h"
#include "engine/serve/sse.h"

static weir_anthropic_answer *answer_of(const weir_generation *g) { return g->api_data; }

static void put_text(weir_json_out *json, const char *key, const weir_buffer *text)
{
    weir_json_key(json, key);
    weir_json_bytes(json, text->data != NULL ? text->data : "", text->size);
}

/* ---- why it ended, and what it took ---------------------------------------------------------- */

static const char *stop_reason(const weir_generation *g)
{
    const weir_answer *const answer = &g->answers[0];
    size_t n_calls;
    (void)weir_answer_calls(answer, &n_calls);
    if (answer->stop.matched && (n_calls == 0 || weir_answer_stopped_in_call(answer)))
        return "stop_sequence";
    if (answer->finish == WEIR_FINISH_LENGTH)
        return answer->n_tokens < g->request.max_tokens ? "model_context_window_exceeded"
                                                        : "max_tokens";
    return n_calls > 0 ? "tool_use" : "end_turn";
}

/* Members of the open object. Before the end both are null. */
static void write_stop(weir_json_out *json, const weir_generation *g, bool is_end)
{
    const weir_stop_matcher *const stop = &g->answers[0].stop;
    const char *const reason = is_end ? stop_reason(g) : NULL;
    weir_json_key(json, "stop_reason");
    if (reason != NULL)
        weir_json_string(json, reason);
    else
        weir_json_null(json);
    weir_json_key(json, "stop_sequence");
    if (reason != NULL && strcmp(reason, "stop_sequence") == 0)
        weir_json_bytes(json, stop->list->text[stop->which], stop->list->length[stop->which]);
    else
        weir_json_null(json);
}

/* Every prompt is cached, and nothing is charged for it: there is no cache_creation. */
static void write_usage(weir_json_out *json, const weir_generation *g, bool is_end)
{
    const weir_usage usage = weir_generation_usage(g);
    const weir_engine_facts *const facts =
        weir_service_facts_of(g->exchange->server->options.service);
    weir_json_key(json, "usage");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "input_tokens", (int64_t)usage.n_prompt - usage.n_cached);
    weir_json_put_integer(json, "cache_creation_input_tokens", 0);
    weir_json_put_integer(json, "cache_read_input_tokens", usage.n_cached);
    weir_json_put_integer(json, "output_tokens", is_end ? usage.n_answer : 0);
    if (is_end) {
        weir_json_key(json, "output_tokens_details");
        weir_json_open(json, '{');
        weir_json_put_integer(json, "thinking_tokens", g->answers[0].n_reasoning_tokens);
        weir_json_close(json, '}');
        weir_usage_kv_write(json, facts, &usage);
    }
    weir_json_close(json, '}');
}

/* Begins a message, up to its content. */
static void write_head(weir_json_out *json, const weir_generation *g)
{
    weir_json_put_string(json, "id", g->id);
    weir_json_put_string(json, "type", "message");
    weir_json_put_string(json, "role", "assistant");
    weir_json_put_string(json, "model", g->exchange->server->options.model_name);
    if (weir_generation_truncated(g) > 0)
        weir_json_put_integer(json, "truncated_tokens", weir_generation_truncated(g));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Clients drop thinking that has no signature, and then send a prompt that differs from what was
 * computed. Nothing is signed here: it is the answer's id. */
static void write_thinking(weir_json_out *json, const weir_generation *g, const weir_buffer *text)
{
    static const weir_buffer none = { 0 };
    weir_json_open(json, '{');
    weir_json_put_string(json, "type", "thinking");
    put_text(json, "thinking", answer_of(g)->omits_thinking ? &none : text);
    weir_json_put_string(json, "signature", g->id);
    weir_json_close(json, '}');
}

static void write_text(weir_json_out *json, const weir_buffer *text)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "type", "text");
    put_text(json, "text", text);
    weir_json_close(json, '}');
}

/* Begins a call, up to its input. own: the id that the model gave it; NULL: none. */
static void write_call_head(
    weir_json_out *json, const weir_generation *g, size_t i, const char *own, const char *name
)
{
    const weir_call_id id = weir_generation_call_id(g, 0, i);
    weir_json_put_string(json, "type", "tool_use");
    weir_json_put_string(json, "id", own != NULL ? own : id.text);
    weir_json_put_string(json, "name", name);
    weir_json_key(json, "input");
}

static void write_call(
    weir_json_out *json, const weir_generation *g, size_t i, const weir_tool_call *call
)
{
    weir_json_open(json, '{');
    write_call_head(json, g, i, call->id, call->name);
    weir_reply_input(json, call->arguments);
    weir_json_close(json, '}');
}

/* ---- whole answers --------------------------------------------------------------------------- */

static void write_content(weir_json_out *json, const weir_generation *g)
{
    const weir_answer *const answer = &g->answers[0];
    size_t n_calls;
    const weir_tool_call *const calls = weir_answer_calls(answer, &n_calls);
    const bool thinks = answer->reasoning.size > 0;
    weir_json_key(json, "content");
    weir_json_open(json, '[');
    if (thinks) write_thinking(json, g, &answer->reasoning);
    /* Clients read the text of an answer without looking whether there is one. */
    if (answer->content.size > 0 || (!thinks && n_calls == 0)) write_text(json, &answer->content);
    for (size_t i = 0; i < n_calls; i++) write_call(json, g, i, &calls[i]);
    weir_json_close(json, ']');
}

weir_status weir_anthropic_whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    write_head(&json, g);
    write_content(&json, g);
    write_stop(&json, g, true);
    write_usage(&json, g, true);
    weir_json_close(&json, '}');
    return json.status;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Begins an event, whose object stays open. */
static weir_status begin(weir_json_out *json, weir_buffer *out, const char *name)
{
    *json = (weir_json_out){ .buffer = out };
    WEIR_TRY(weir_sse_event(out, name));
    weir_json_open(json, '{');
    weir_json_put_string(json, "type", name);
    return WEIR_OK;
}

static weir_status end(weir_json_out *json)
{
    weir_json_close(json, '}');
    WEIR_TRY(json->status);
    return weir_sse_end(json->buffer);
}

weir_status weir_anthropic_ping(weir_buffer *out)
{
    weir_json_out json;
    WEIR_TRY(begin(&json, out, "ping"));
    return end(&json);
}

static weir_status write_start(weir_buffer *out, const weir_generation *g)
{
    weir_json_out json;
    WEIR_TRY(begin(&json, out, "message_start"));
    weir_json_key(&json, "message");
    weir_json_open(&json, '{');
    write_head(&json, g);
    weir_json_key(&json, "content");
    weir_json_open(&json, '[');
    weir_json_close(&json, ']');
    write_stop(&json, g, false);
    write_usage(&json, g, false);
    weir_json_close(&json, '}');
    return end(&json);
}

/* Begins an event about the last block. */
static weir_status begin_block(
    weir_json_out *json, weir_buffer *out, const weir_generation *g, const char *name
)
{
    WEIR_TRY(begin(json, out, name));
    weir_json_put_integer(json, "index", answer_of(g)->n_blocks - 1);
    return WEIR_OK;
}

/* `text`: of the kind that `type` and `key` name. */
static weir_status write_delta(
    weir_buffer *out, const weir_generation *g, const char *type, const char *key,
    const weir_buffer *text
)
{
    weir_json_out json;
    WEIR_TRY(begin_block(&json, out, g, "content_block_delta"));
    weir_json_key(&json, "delta");
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "type", type);
    put_text(&json, key, text);
    weir_json_close(&json, '}');
    return end(&json);
}

static weir_status write_block_stop(weir_buffer *out, const weir_generation *g)
{
    weir_json_out json;
    WEIR_TRY(begin_block(&json, out, g, "content_block_stop"));
    return end(&json);
}

/* Completes the open block, if any. */
static weir_status close_block(weir_buffer *out, weir_generation *g)
{
    const weir_buffer signature = { .data = g->id, .size = strlen(g->id) };
    if (answer_of(g)->open_block == WEIR_ANTHROPIC_NONE) return WEIR_OK;
    if (answer_of(g)->open_block == WEIR_ANTHROPIC_THINKING)
        WEIR_TRY(write_delta(out, g, "signature_delta", "signature", &signature));
    answer_of(g)->open_block = WEIR_ANTHROPIC_NONE;
    return write_block_stop(out, g);
}

static weir_status write_block_start(
    weir_buffer *out, const weir_generation *g, weir_anthropic_block kind
)
{
    static const weir_buffer none = { 0 };
    weir_json_out json;
    WEIR_TRY(begin_block(&json, out, g, "content_block_start"));
    weir_json_key(&json, "content_block");
    if (kind == WEIR_ANTHROPIC_TEXT) {
        write_text(&json, &none);
    } else {
        weir_json_open(&json, '{');
        weir_json_put_string(&json, "type", "thinking");
        weir_json_put_string(&json, "thinking", "");
        weir_json_put_string(&json, "signature", "");
        weir_json_close(&json, '}');
    }
    return end(&json);
}

static weir_status open_block(weir_buffer *out, weir_generation *g, weir_anthropic_block kind)
{
    if (answer_of(g)->open_block == kind) return WEIR_OK;
    WEIR_TRY(close_block(out, g));
    answer_of(g)->n_blocks++;
    answer_of(g)->open_block = kind;
    return write_block_start(out, g, kind);
}

static weir_status begin_call(weir_buffer *out, weir_generation *g, const weir_partial_call *call)
{
    weir_json_out json;
    WEIR_TRY(close_block(out, g));
    answer_of(g)->n_blocks++;
    answer_of(g)->open_block = WEIR_ANTHROPIC_CALL;
    WEIR_TRY(begin_block(&json, out, g, "content_block_start"));
    weir_json_key(&json, "content_block");
    weir_json_open(&json, '{');
    write_call_head(&json, g, g->answers[0].n_calls_sent, call->id, call->name);
    weir_json_open(&json, '{');
    weir_json_close(&json, '}');
    weir_json_close(&json, '}');
    return end(&json);
}

/* What is new of the calls, each of which is a block; or of the one that was begun. */
static weir_status write_new_calls(weir_buffer *out, weir_generation *g, bool only_begun)
{
    weir_answer *const answer = &g->answers[0];
    weir_partial_call call;
    bool is_complete = true;
    while (is_complete && (answer->call_begun || !only_begun) &&
           weir_answer_next_call(answer, &call, &is_complete)) {
        const size_t sent = answer->n_arguments_sent;
        const weir_buffer rest = { .data = (char *)(uintptr_t)(call.arguments + sent),
                                   .size = call.n - sent };
        if (!answer->call_begun) WEIR_TRY(begin_call(out, g, &call));
        answer->call_begun = true;
        if (rest.size > 0) WEIR_TRY(write_delta(out, g, "input_json_delta", "partial_json", &rest));
        answer->n_arguments_sent = call.n;
        if (!is_complete) break;
        WEIR_TRY(close_block(out, g));
        answer->n_calls_sent++;
        answer->n_arguments_sent = 0;
        answer->call_begun = false;
    }
    return WEIR_OK;
}

static weir_status write_blocks(weir_buffer *out, weir_generation *g)
{
    weir_answer *const answer = &g->answers[0];
    WEIR_TRY(write_new_calls(out, g, true)); /* before the text behind it */
    if (answer->reasoning.size > 0) {
        WEIR_TRY(open_block(out, g, WEIR_ANTHROPIC_THINKING));
        if (!answer_of(g)->omits_thinking)
            WEIR_TRY(write_delta(out, g, "thinking_delta", "thinking", &answer->reasoning));
        weir_buffer_clear(&answer->reasoning);
    }
    if (answer->content.size > 0) {
        WEIR_TRY(open_block(out, g, WEIR_ANTHROPIC_TEXT));
        WEIR_TRY(write_delta(out, g, "text_delta", "text", &answer->content));
        weir_buffer_clear(&answer->content);
    }
    return write_new_calls(out, g, false);
}

static weir_status write_end(weir_buffer *out, weir_generation *g)
{
    weir_json_out json;
    if (answer_of(g)->n_blocks == 0) WEIR_TRY(open_block(out, g, WEIR_ANTHROPIC_TEXT));
    WEIR_TRY(close_block(out, g));
    WEIR_TRY(begin(&json, out, "message_delta"));
    weir_json_key(&json, "delta");
    weir_json_open(&json, '{');
    write_stop(&json, g, true);
    weir_json_close(&json, '}');
    write_usage(&json, g, true);
    WEIR_TRY(end(&json));
    WEIR_TRY(begin(&json, out, "message_stop"));
    WEIR_TRY(end(&json));
    g->end_sent = true;
    return WEIR_OK;
}

static weir_status write_failure(weir_buffer *out, weir_generation *g)
{
    WEIR_TRY(weir_sse_event(out, "error"));
    WEIR_TRY(weir_anthropic_error_write(out, &g->failure, g->exchange->id));
    WEIR_TRY(weir_sse_end(out));
    g->end_sent = true; /* without memory, a shorter message follows */
    return WEIR_OK;
}

const char *weir_anthropic_last_words(weir_generation *g)
{
    (void)g;
    return "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
           "\"message\":\"no memory for the rest of this answer within memory.host; try again\"}}"
           "\n\n";
}

weir_status weir_anthropic_events(weir_buffer *out, weir_generation *g)
{
    weir_answer *const answer = &g->answers[0];
    if (g->failure.status != 0) return write_failure(out, g);
    if (!g->admitted && !g->ended) return WEIR_OK;
    if (!answer->role_sent) {
        WEIR_TRY(write_start(out, g));
        answer->role_sent = true;
    }
    WEIR_TRY(write_blocks(out, g));
    return g->ended ? write_end(out, g) : WEIR_OK;
}
