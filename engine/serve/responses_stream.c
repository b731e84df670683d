/* engine/serve/responses_stream.c - the events of a stream of /v1/responses. Each item of the
 * output is added, sent in pieces and done before the next one begins. */
#include <stdio.h>

#include "engine/serve/responses_reply.h"
#include "engine/serve/sse.h"

/* ---- events ---------------------------------------------------------------------------------- */

static weir_status begin_event(weir_json_out *json, weir_generation *g, const char *type)
{
    json->comma = false;
    WEIR_TRY(json->status);
    WEIR_TRY(weir_sse_event(json->buffer, type));
    weir_json_open(json, '{');
    weir_json_put_string(json, "type", type);
    weir_json_put_integer(json, "sequence_number", weir_responses_of(g)->n_events++);
    return WEIR_OK;
}

static weir_status end_event(weir_json_out *json)
{
    weir_json_close(json, '}');
    WEIR_TRY(json->status);
    return weir_sse_end(json->buffer);
}

/* An event with the Response: as it begins, or as it has ended. */
static weir_status write_response(
    weir_buffer *out, weir_generation *g, const char *type, bool has_ended
)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(begin_event(&json, g, type));
    weir_json_key(&json, "response");
    weir_response_write(&json, g, has_ended);
    return end_event(&json);
}

/* An event with the item. */
static weir_status write_item(
    weir_buffer *out, weir_generation *g, const weir_response_item *item, bool is_done
)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(
        begin_event(&json, g, is_done ? "response.output_item.done" : "response.output_item.added")
    );
    weir_json_put_integer(&json, "output_index", (int64_t)item->index);
    weir_json_key(&json, "item");
    weir_response_item_write(&json, g, item, is_done);
    return end_event(&json);
}

/* ---- parts of an item ------------------------------------------------------------------------ */

/* The names of events and members for a kind of part. */
typedef struct part_names {
    const char *added, *delta, *done, *part_done;
    const char *index; /* of the part in its item; NULL: the item has no parts */
    const char *text; /* the whole text in the event `done` */
} part_names;

static const part_names *names_of(const weir_generation *g, weir_part_kind kind)
{
    static const part_names text = { "response.content_part.added",
                                     "response.output_text.delta",
                                     "response.output_text.done",
                                     "response.content_part.done",
                                     "content_index",
                                     "text" };
    static const part_names reasoning = { "response.content_part.added",
                                          "response.reasoning_text.delta",
                                          "response.reasoning_text.done",
                                          "response.content_part.done",
                                          "content_index",
                                          "text" };
    static const part_names summary = { "response.reasoning_summary_part.added",
                                        "response.reasoning_summary_text.delta",
                                        "response.reasoning_summary_text.done",
                                        "response.reasoning_summary_part.done",
                                        "summary_index",
                                        "text" };
    static const part_names arguments = {
        .delta = "response.function_call_arguments.delta",
        .done = "response.function_call_arguments.done",
        .text = "arguments",
    };
    if (kind == WEIR_PART_CALL) return &arguments;
    if (kind == WEIR_PART_CONTENT) return &text;
    return weir_responses_of(g)->has_summary ? &summary : &reasoning;
}

/* Begins an event about the item. */
static weir_status begin_part_event(
    weir_json_out *json, weir_generation *g, const weir_response_item *item, const char *type
)
{
    const part_names *const names = names_of(g, item->kind);
    char id[WEIR_RESPONSE_ID];
    weir_response_item_id(id, g, item);
    WEIR_TRY(begin_event(json, g, type));
    weir_json_put_string(json, "item_id", id);
    weir_json_put_integer(json, "output_index", (int64_t)item->index);
    if (names->index != NULL) weir_json_put_integer(json, names->index, 0);
    return WEIR_OK;
}

/* An event with the whole part: text [n]. */
static weir_status write_part(
    weir_buffer *out, weir_generation *g, const weir_response_item *item, const char *type, size_t n
)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(begin_part_event(&json, g, item, type));
    weir_json_key(&json, "part");
    weir_response_part_write(&json, g, item->kind, item->text, n);
    return end_event(&json);
}

/* An event with a text: a piece of the part, or all of it. */
static weir_status write_text(
    weir_buffer *out, weir_generation *g, const weir_response_item *item, const char *type,
    const char *key, const char *text, size_t n
)
{
    weir_json_out json = { .buffer = out };
    WEIR_TRY(begin_part_event(&json, g, item, type));
    weir_json_key(&json, key);
    weir_json_bytes(&json, text, n);
    if (item->kind == WEIR_PART_CONTENT) {
        weir_json_key(&json, "logprobs");
        weir_json_open(&json, '[');
        weir_json_close(&json, ']');
    }
    return end_event(&json);
}

/* ---- items ----------------------------------------------------------------------------------- */

static weir_status begin_item(weir_buffer *out, weir_generation *g, const weir_response_item *item)
{
    const part_names *const names = names_of(g, item->kind);
    WEIR_TRY(write_item(out, g, item, false));
    weir_responses_of(g)->has_item = true;
    weir_responses_of(g)->sent = 0;
    return names->added != NULL ? write_part(out, g, item, names->added, 0) : WEIR_OK;
}

/* Sends what was added since the last event. */
static weir_status send_item(weir_buffer *out, weir_generation *g, const weir_response_item *item)
{
    const size_t sent = weir_responses_of(g)->sent;
    if (sent >= item->n) return WEIR_OK;
    weir_responses_of(g)->sent = item->n;
    return write_text(
        out, g, item, names_of(g, item->kind)->delta, "delta", item->text + sent, item->n - sent
    );
}

static weir_status end_item(weir_buffer *out, weir_generation *g, const weir_response_item *item)
{
    const part_names *const names = names_of(g, item->kind);
    WEIR_TRY(write_text(out, g, item, names->done, names->text, item->text, item->n));
    if (names->part_done != NULL) WEIR_TRY(write_part(out, g, item, names->part_done, item->n));
    WEIR_TRY(write_item(out, g, item, true));
    weir_responses_of(g)->has_item = false;
    weir_responses_of(g)->n_items++;
    return WEIR_OK;
}

static weir_status write_items(weir_buffer *out, weir_generation *g)
{
    const size_t n = weir_response_items(g);
    while (weir_responses_of(g)->n_items < n) {
        const weir_response_item item = weir_response_item_at(g, weir_responses_of(g)->n_items);
        if (!weir_responses_of(g)->has_item) WEIR_TRY(begin_item(out, g, &item));
        WEIR_TRY(send_item(out, g, &item));
        if (item.is_open) break;
        WEIR_TRY(end_item(out, g, &item));
    }
    return WEIR_OK;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static weir_status write_begin(weir_buffer *out, weir_generation *g)
{
    weir_responses_of(g)->has_begun = true;
    WEIR_TRY(write_response(out, g, "response.created", false));
    return write_response(out, g, "response.in_progress", false);
}

static weir_status write_end(weir_buffer *out, weir_generation *g)
{
    const char *const type = g->failure.status != 0           ? "response.failed"
                             : weir_response_is_incomplete(g) ? "response.incomplete"
                                                              : "response.completed";
    WEIR_TRY(write_response(out, g, type, true));
    g->end_sent = true;
    return WEIR_OK;
}

weir_status weir_response_events(weir_buffer *out, weir_generation *g)
{
    const bool has_failed = g->failure.status != 0;
    if (!g->admitted && !g->ended && !has_failed) return WEIR_OK;
    if (!weir_responses_of(g)->has_begun) WEIR_TRY(write_begin(out, g));
    if (!has_failed) WEIR_TRY(write_items(out, g));
    return g->ended || has_failed ? write_end(out, g) : WEIR_OK;
}

const char *weir_response_last_words(weir_generation *g)
{
    weir_responses *const r = g->api_data;
    (void)snprintf(
        r->last_words, sizeof r->last_words,
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":%lld,"
        "\"response\":{\"id\":\"%s\",\"object\":\"response\",\"status\":\"failed\",\"output\":[],"
        "\"error\":{\"code\":\"out_of_memory\",\"message\":\"no memory for the rest of this answer "
        "within memory.host; try again\"}}}\n\n",
        (long long)r->n_events, g->id
    );
    return r->last_words;
}
