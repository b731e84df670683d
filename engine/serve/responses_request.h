/* engine/serve/responses_request.h - a request to /v1/responses, read as the chat that it stands
 * for. Errors name fields of /v1/responses. */
#pragma once
#include "engine/serve/openai_request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What replies need of the request besides its chat. Zero-initialise. */
typedef struct weir_responses {
    weir_buffer echo; /* the members of a Response that repeat the request, without braces */
    bool has_summary; /* reasoning is sent as its summary */
    bool has_encrypted; /* items of reasoning carry it in encrypted_content too */
    /* Progress of a stream. */
    int64_t n_events;
    size_t n_items; /* that are complete */
    size_t sent; /* end of what was sent of the next item */
    bool has_begun, has_item; /* response.created was sent; the next item was added */
    char last_words[512];
} weir_responses;

/* Reads the body text [n], text[n] == 0. *out and *more are set only on success. */
WEIR_MUST_CHECK weir_status weir_responses_read(
    weir_openai_request *out, weir_responses *more, const char *text, size_t n,
    const weir_request_limits *limits, weir_api_error *error
);
void weir_responses_free(void *more); /* weir_api.free_data: also the struct; NULL-safe */
/* weir_api.name_error */
void weir_responses_name_error(weir_api_error *error);

/* A second reference. NULL for NULL. */
static inline json_t *weir_json_share(const json_t *value) { return json_incref((json_t *)value); }

/* ---- parts (responses_input.c, responses_tools.c) -------------------------------------------- */

/* *out: new messages of a chat for `instructions` and `input`. System messages at the beginning are
 * joined; reasoning, text and calls that follow each other are one message. */
WEIR_MUST_CHECK weir_status
weir_responses_messages(json_t **out, const json_t *root, weir_api_error *error);
/* *out: new tools of a chat, *functions: the same as they were sent. Tools that are no functions
 * are left out and added to `unknown`. */
WEIR_MUST_CHECK weir_status weir_responses_tools(
    json_t **out, json_t **functions, const json_t *tools, weir_unknown_fields *unknown,
    weir_api_error *error
);
/* *out: a new tool_choice of a chat. */
WEIR_MUST_CHECK weir_status
weir_responses_choice(json_t **out, const json_t *choice, weir_api_error *error);

/* What encrypted_content of this server begins with: the reasoning follows. */
#define WEIR_RESPONSES_REASONING "weir:"

#ifdef __cplusplus
}
#endif
