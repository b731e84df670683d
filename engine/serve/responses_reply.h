/* engine/serve/responses_reply.h - the Response object and its items, for replies and events of
 * /v1/responses. All require the exchange's lock. */
#pragma once
#include "engine/serve/generation.h"
#include "engine/serve/responses_request.h"

static inline weir_responses *weir_responses_of(const weir_generation *g) { return g->api_data; }

/* One item of `output`: a part of the answer, or an empty text if it has none. */
typedef struct weir_response_item {
    weir_part_kind kind;
    size_t index; /* in `output` */
    bool is_open; /* it may grow */
    size_t call; /* its number, of a call */
    const char *name, *own_id; /* of a call; own_id NULL: the model gave it none */
    const char *text; /* [n]; of a call, its arguments */
    size_t n;
} weir_response_item;

/* The items so far. */
size_t weir_response_items(const weir_generation *g);
weir_response_item weir_response_item_at(const weir_generation *g, size_t index);
enum { WEIR_RESPONSE_ID = 80 };
void weir_response_item_id(
    char out[WEIR_RESPONSE_ID], const weir_generation *g, const weir_response_item *item
);
/* Writes the item as an object: as it is now, or, not `whole`, as it begins. */
void weir_response_item_write(
    weir_json_out *json, const weir_generation *g, const weir_response_item *item, bool whole
);
/* Writes the part {"type", "text"} of a message or of reasoning, with text [n]. */
void weir_response_part_write(
    weir_json_out *json, const weir_generation *g, weir_part_kind kind, const char *text, size_t n
);
bool weir_response_is_incomplete(const weir_generation *g);
/* Writes the Response: as it begins, or as it has ended. */
void weir_response_write(weir_json_out *json, const weir_generation *g, bool has_ended);

/* responses_stream.c: weir_api.events and last_words. */
WEIR_MUST_CHECK weir_status weir_response_events(weir_buffer *out, weir_generation *g);
const char *weir_response_last_words(weir_generation *g);
