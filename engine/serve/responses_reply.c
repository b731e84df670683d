/* engine/serve/responses_reply.c - POST /v1/responses: the reply without a stream, and the objects
 * that events share with it. */
#include "engine/serve/responses_reply.h"

#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/serve/sse.h"

/* ---- statuses -------------------------------------------------------------------------------- */

/* Why an answer is incomplete; NULL: it is not. */
static const char *reason_of(const weir_generation *g)
{
    const char *const reason = weir_answer_reason(&g->answers[0]);
    return strcmp(reason, "length") == 0    ? "max_output_tokens"
           : strcmp(reason, "timeout") == 0 ? "timeout"
                                            : NULL;
}

bool weir_response_is_incomplete(const weir_generation *g) { return reason_of(g) != NULL; }

/* ---- items ----------------------------------------------------------------------------------- */

static bool is_over(const weir_generation *g) { return g->answers[0].finish != WEIR_FINISH_NONE; }

static bool has_partial_call(const weir_generation *g, weir_partial_call *call)
{
    return !is_over(g) && weir_chat_parser_partial(g->answers[0].parser, call);
}

size_t weir_response_items(const weir_generation *g)
{
    weir_partial_call call;
    size_t n;
    (void)weir_answer_parts(&g->answers[0], &n);
    if (has_partial_call(g, &call)) return n + 1;
    return n == 0 && is_over(g) ? 1 : n;
}

static void take_call(weir_response_item *item, const weir_answer *answer, size_t number)
{
    size_t n;
    const weir_tool_call *const call = &weir_answer_calls(answer, &n)[number];
    item->call = number;
    item->name = call->name;
    item->own_id = call->id;
    item->text = call->arguments;
    item->n = strlen(call->arguments);
}

/* The call that is being written, after the complete ones. */
static weir_response_item partial_item(
    const weir_answer *answer, size_t index, const weir_partial_call *call
)
{
    size_t n;
    (void)weir_answer_calls(answer, &n);
    return (weir_response_item){ .kind = WEIR_PART_CALL,
                                 .index = index,
                                 .is_open = true,
                                 .call = n,
                                 .name = call->name,
                                 .own_id = call->id,
                                 .text = call->arguments,
                                 .n = call->n };
}

static void take_text(
    weir_response_item *item, const weir_buffer *text, const weir_answer_part *part
)
{
    item->text = text->data != NULL ? text->data + part->begin : "";
    item->n = part->end - part->begin;
}

weir_response_item weir_response_item_at(const weir_generation *g, size_t index)
{
    const weir_answer *const answer = &g->answers[0];
    const weir_answer_part empty = { .kind = WEIR_PART_CONTENT };
    size_t n;
    const weir_answer_part *const parts = weir_answer_parts(answer, &n);
    const weir_answer_part *const part = index < n ? &parts[index] : &empty;
    weir_partial_call call;
    const bool has_partial = has_partial_call(g, &call);
    if (index == n && has_partial) return partial_item(answer, index, &call);
    weir_response_item item = { .kind = part->kind, .index = index };
    item.is_open = part->kind != WEIR_PART_CALL && index + 1 == n && !has_partial && !is_over(g);
    switch (part->kind) {
    case WEIR_PART_REASONING: take_text(&item, &answer->reasoning, part); break;
    case WEIR_PART_CONTENT: take_text(&item, &answer->content, part); break;
    case WEIR_PART_CALL: take_call(&item, answer, part->begin); break;
    case WEIR_PART_KINDS: break;
    }
    return item;
}

static const char *prefix_of(weir_part_kind kind)
{
    return kind == WEIR_PART_REASONING ? "rs" : kind == WEIR_PART_CONTENT ? "msg" : "fc";
}

void weir_response_item_id(
    char out[WEIR_RESPONSE_ID], const weir_generation *g, const weir_response_item *item
)
{
    (void)snprintf(
        out, WEIR_RESPONSE_ID, "%s_%s_%zu", prefix_of(item->kind),
        g->id + strlen(g->api->id_prefix), item->index
    );
}

/* A call that was cut is not the JSON of an object. */
static bool is_whole_call(const weir_response_item *item)
{
    json_t *value = NULL;
    const weir_json_fault fault =
        weir_json_build(&value, NULL, item->text, item->n, &weir_json_request);
    json_decref(value);
    return fault == WEIR_JSON_FINE;
}

/* Only what was being written when the answer was cut is incomplete. */
static const char *status_of(const weir_generation *g, const weir_response_item *item, bool whole)
{
    const bool is_cut = g->failure.status != 0 || reason_of(g) != NULL ||
                        weir_answer_stopped_in_call(&g->answers[0]);
    const bool is_last = item->index + 1 == weir_response_items(g);
    if (!whole) return "in_progress";
    if (!is_cut || !is_last) return "completed";
    return item->kind == WEIR_PART_CALL && is_whole_call(item) ? "completed" : "incomplete";
}

void weir_response_part_write(
    weir_json_out *json, const weir_generation *g, weir_part_kind kind, const char *text, size_t n
)
{
    const char *const thought =
        weir_responses_of(g)->has_summary ? "summary_text" : "reasoning_text";
    weir_json_open(json, '{');
    weir_json_put_string(json, "type", kind == WEIR_PART_CONTENT ? "output_text" : thought);
    weir_json_key(json, "text");
    weir_json_bytes(json, text, n);
    if (kind == WEIR_PART_CONTENT) {
        weir_json_key(json, "annotations");
        weir_json_open(json, '[');
        weir_json_close(json, ']');
        weir_json_key(json, "logprobs");
        weir_json_open(json, '[');
        weir_json_close(json, ']');
    }
    weir_json_close(json, '}');
}

/* Writes `key` with an array of the item's text, or an empty one. */
static void write_texts(
    weir_json_out *json, const weir_generation *g, const char *key, const weir_response_item *item,
    bool with_text
)
{
    weir_json_key(json, key);
    weir_json_open(json, '[');
    if (with_text) weir_response_part_write(json, g, item->kind, item->text, item->n);
    weir_json_close(json, ']');
}

/* A client that sends only this part back has lost nothing. */
static void write_encrypted(weir_json_out *json, const weir_response_item *item)
{
    weir_buffer text = { 0 };
    weir_status status = weir_buffer_text(&text, WEIR_RESPONSES_REASONING);
    if (status == WEIR_OK) status = weir_buffer_add(&text, item->text, item->n);
    weir_json_key(json, "encrypted_content");
    if (status == WEIR_OK)
        weir_json_bytes(json, text.data, text.size);
    else if (json->status == WEIR_OK)
        json->status = status;
    weir_buffer_free(&text);
}

static void write_reasoning(
    weir_json_out *json, const weir_generation *g, const weir_response_item *item, bool whole
)
{
    const bool has_summary = weir_responses_of(g)->has_summary;
    weir_json_put_string(json, "type", "reasoning");
    write_texts(json, g, "summary", item, whole && has_summary);
    if (!has_summary) write_texts(json, g, "content", item, whole);
    if (whole && weir_responses_of(g)->has_encrypted) write_encrypted(json, item);
}

static void write_call(
    weir_json_out *json, const weir_generation *g, const weir_response_item *item, bool whole
)
{
    const weir_call_id made = weir_generation_call_id(g, 0, item->call);
    weir_json_put_string(json, "type", "function_call");
    weir_json_put_string(json, "call_id", item->own_id != NULL ? item->own_id : made.text);
    weir_json_put_string(json, "name", item->name);
    weir_json_key(json, "arguments");
    weir_json_bytes(json, item->text, whole ? item->n : 0);
}

void weir_response_item_write(
    weir_json_out *json, const weir_generation *g, const weir_response_item *item, bool whole
)
{
    char id[WEIR_RESPONSE_ID];
    weir_response_item_id(id, g, item);
    weir_json_open(json, '{');
    weir_json_put_string(json, "id", id);
    switch (item->kind) {
    case WEIR_PART_REASONING: write_reasoning(json, g, item, whole); break;
    case WEIR_PART_CONTENT:
        weir_json_put_string(json, "type", "message");
        weir_json_put_string(json, "role", "assistant");
        write_texts(json, g, "content", item, whole);
        break;
    case WEIR_PART_CALL: write_call(json, g, item, whole); break;
    case WEIR_PART_KINDS: break;
    }
    weir_json_put_string(json, "status", status_of(g, item, whole));
    weir_json_close(json, '}');
}

/* ---- the Response ---------------------------------------------------------------------------- */

static void write_null(weir_json_out *json, const char *key)
{
    weir_json_key(json, key);
    weir_json_null(json);
}

/* Of a reply with another status than 200, which is a timeout's, also for clients that read only
 * errors. */
static void write_error(weir_json_out *json, const weir_generation *g, bool has_ended)
{
    const weir_api_error *const failure = &g->failure;
    if (has_ended && failure->status != 0) {
        weir_json_key(json, "error");
        weir_json_open(json, '{');
        weir_json_put_string(json, "code", failure->code != NULL ? failure->code : failure->type);
        weir_json_put_string(json, "message", failure->message);
        weir_json_close(json, '}');
    } else if (has_ended && !g->request.stream && weir_generation_is_late(g)) {
        weir_api_error_member(json, &g->exchange->error);
    } else {
        write_null(json, "error");
    }
}

static void write_status(weir_json_out *json, const weir_generation *g, bool has_ended)
{
    const bool has_failed = has_ended && g->failure.status != 0;
    const char *const reason = has_ended && !has_failed ? reason_of(g) : NULL;
    weir_json_put_string(
        json, "status",
        !has_ended       ? "in_progress"
        : has_failed     ? "failed"
        : reason != NULL ? "incomplete"
                         : "completed"
    );
    write_error(json, g, has_ended);
    if (reason == NULL) {
        write_null(json, "incomplete_details");
        return;
    }
    weir_json_key(json, "incomplete_details");
    weir_json_open(json, '{');
    weir_json_put_string(json, "reason", reason);
    weir_json_close(json, '}');
}

static void write_usage(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    weir_json_key(json, "usage");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "input_tokens", usage.n_prompt);
    weir_json_key(json, "input_tokens_details");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "cached_tokens", usage.n_cached);
    weir_json_close(json, '}');
    weir_json_put_integer(json, "output_tokens", usage.n_answer);
    weir_json_key(json, "output_tokens_details");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "reasoning_tokens", g->answers[0].n_reasoning_tokens);
    weir_json_close(json, '}');
    weir_json_put_integer(json, "total_tokens", (int64_t)usage.n_prompt + usage.n_answer);
    weir_reply_usage_notes(json, g);
    weir_json_close(json, '}');
}

static void write_output(weir_json_out *json, const weir_generation *g, bool has_ended)
{
    const size_t n = has_ended ? weir_response_items(g) : 0;
    weir_json_key(json, "output");
    weir_json_open(json, '[');
    for (size_t i = 0; i < n; i++) {
        const weir_response_item item = weir_response_item_at(g, i);
        weir_response_item_write(json, g, &item, true);
    }
    weir_json_close(json, ']');
}

/* Without the digits that a float adds. */
static double decimal(float value) { return round((double)value * 1e6) / 1e6; }

void weir_response_write(weir_json_out *json, const weir_generation *g, bool has_ended)
{
    const weir_server_options *const options = &g->exchange->server->options;
    const weir_buffer *const echo = &weir_responses_of(g)->echo;
    weir_json_open(json, '{');
    weir_json_put_string(json, "id", g->id);
    weir_json_put_string(json, "object", "response");
    weir_json_put_integer(json, "created_at", g->created);
    weir_json_put_string(json, "model", options->model_name);
    weir_json_put_string(json, "system_fingerprint", options->fingerprint);
    write_status(json, g, has_ended);
    write_output(json, g, has_ended);
    if (has_ended)
        write_usage(json, g);
    else
        write_null(json, "usage");
    weir_json_put_number(json, "temperature", decimal(g->request.sampling.temperature));
    weir_json_put_number(json, "top_p", decimal(g->request.sampling.top_p));
    weir_json_raw(json, echo->data, echo->size);
    weir_reply_notes(json, g);
    if (has_ended) weir_reply_timings(json, g);
    weir_json_close(json, '}');
}

/* ---- the API --------------------------------------------------------------------------------- */

static weir_status read_request(
    weir_generation *g, const char *text, size_t n, weir_api_error *error
)
{
    g->api_data = weir_memory_take_zero(1, sizeof(weir_responses));
    if (g->api_data == NULL) return weir_api_no_memory(error);
    const weir_request_limits *const limits = &g->exchange->server->limits;
    return weir_responses_read(&g->request, g->api_data, text, n, limits, error);
}

static weir_status write_whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    weir_response_write(&json, g, true);
    return json.status;
}

static const weir_api api = {
    .id_prefix = "resp_",
    .chat = true,
    .has_parts = true,
    .tells_failure = true,
    .answer_field = "output",
    .read = read_request,
    .name_error = weir_responses_name_error,
    .whole = write_whole,
    .events = weir_response_events,
    .ping = weir_sse_ping,
    .last_words = weir_response_last_words,
    .free_data = weir_responses_free,
};

void weir_generate_response(weir_exchange *x) { weir_generate(x, &api); }
