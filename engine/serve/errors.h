/* engine/serve/errors.h - the answer to a refused request: an HTTP status and OpenAI's error
 * object. */
#pragma once
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/serve/json_out.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_api_error {
    int status; /* HTTP status; 0: no error */
    const char *type, *code; /* static strings; code may be NULL */
    char param[64]; /* "": null. The top-level key, optionally followed by a path */
    char message[1000];
    int64_t n_prompt_tokens, n_ctx; /* both set if a prompt is too long, else 0 */
    int retry_after; /* seconds; 0: no Retry-After header */
} weir_api_error;

/* Fill `error` and return EINVAL, so a check ends in one line. `param` and `code` may be NULL; the
 * type follows from the status. */
WEIR_MUST_CHECK weir_status weir_api_fail(
    weir_api_error *error, int status, const char *code, const char *param, const char *format, ...
) __attribute__((format(printf, 5, 6)));
/* Status 400 about one field. */
WEIR_MUST_CHECK weir_status
weir_api_bad(weir_api_error *error, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Uses the two phrases that clients look for, and both numbers. */
WEIR_MUST_CHECK weir_status
weir_api_too_long(weir_api_error *error, const char *param, int64_t n_prompt_tokens, int64_t n_ctx);
/* Like weir_api_too_long, for a budget of KV memory. `text` comes from the service and begins with
 * the code. */
WEIR_MUST_CHECK weir_status weir_api_over_budget(
    weir_api_error *error, const char *param, const char *text, int64_t n_prompt_tokens,
    int64_t n_ctx
);
/* A failure inside the engine: 503 if out of memory, else 500. */
void weir_api_from_status(weir_api_error *error, weir_status status, const char *text);
/* The same for ENOMEM, which it returns. */
WEIR_MUST_CHECK weir_status weir_api_no_memory(weir_api_error *error);

/* What an engine status means in one API. */
typedef struct weir_api_case {
    weir_status status;
    int http;
    const char *code, *param; /* static strings, may be NULL */
} weir_api_case;
/* Fills `error` from the entry for `status`, or like weir_api_from_status if there is none. Returns
 * `status`, or EINVAL. */
WEIR_MUST_CHECK weir_status weir_api_by_case(
    weir_api_error *error, const weir_api_case *cases, size_t n_cases, weir_status status,
    const char *text
);

/* A field of a chat or completion, and the one of another API that becomes it. */
typedef struct weir_api_name {
    const char *chat, *here;
} weir_api_name;
/* Replaces these names in `param`, and in the message where they begin it or a path, or have a '_'.
 */
void weir_api_rename(weir_api_error *error, const weir_api_name *names, size_t n_names);

/* Writes "error":{...} into an open object. */
void weir_api_error_member(weir_json_out *json, const weir_api_error *error);
/* Writes {"error":{...}}. */
WEIR_MUST_CHECK weir_status weir_api_error_write(weir_buffer *out, const weir_api_error *error);

/* Up to 60 bytes of `text` for quoting client input; everything but printable ASCII becomes '?'. */
typedef struct weir_quoted {
    char text[64];
} weir_quoted;
weir_quoted weir_quote(const char *text);

#ifdef __cplusplus
}
#endif
