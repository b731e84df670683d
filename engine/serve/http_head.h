/* engine/serve/http_head.h - strict, incremental parser of HTTP/1.1 request heads (RFC 9112). Pure:
 * no socket, no allocation.
 *
 * Refuses, as soon as the bytes arrive: bare CR or LF, NUL and other control characters, folded
 * fields, a space before the colon, empty names, duplicates of a field that the server reads,
 * targets that are not paths, versions other than 1.0 and 1.1, conflicting body lengths. Nothing is
 * repaired: requests are smuggled where a proxy and a server read the same bytes differently. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fields that the server reads. All but Connection may appear only once. */
// clang-format off
#define WEIR_HTTP_FIELD_MAP(X) \
    X(HOST, "host") \
    X(CONTENT_LENGTH, "content-length") \
    X(TRANSFER_ENCODING, "transfer-encoding") \
    X(CONTENT_TYPE, "content-type") \
    X(CONTENT_ENCODING, "content-encoding") \
    X(AUTHORIZATION, "authorization") \
    X(API_KEY, "x-api-key") \
    X(ORIGIN, "origin") \
    X(FETCH_SITE, "sec-fetch-site") \
    X(FETCH_MODE, "sec-fetch-mode") \
    X(EXPECT, "expect") \
    X(REQUEST_ID, "x-request-id")
// clang-format on
typedef enum weir_http_field {
#define X(name, text) WEIR_HTTP_##name,
    WEIR_HTTP_FIELD_MAP(X)
#undef X
        WEIR_HTTP_FIELD_COUNT
} weir_http_field;

enum { WEIR_HTTP_MAX_FIELDS = 100, WEIR_HTTP_TARGET_BYTES = 8 << 10 };

/* Why a request is refused: HTTP status and message. */
typedef struct weir_http_problem {
    int status;
    const char *text;
} weir_http_problem;

typedef enum weir_http_progress {
    WEIR_HTTP_MORE,
    WEIR_HTTP_DONE,
    WEIR_HTTP_BAD
} weir_http_progress;

/* Offsets are into the bytes read. Zero-initialise. */
typedef struct weir_http_head {
    size_t limit; /* maximum bytes of all fields; set before the first call */
    size_t scanned, line; /* bytes scanned; begin of the current line */
    size_t fields; /* where the first field begins; 0: the request line is incomplete */
    uint32_t n_fields;
    int minor; /* HTTP/1.minor */
    bool keep_alive; /* the connection may serve another request */
    bool chunked;
    int64_t length; /* Content-Length; -1: none */
    size_t method, target;
    size_t value[WEIR_HTTP_FIELD_COUNT]; /* 0: absent */
} weir_http_head;

/* Continues with bytes [n], of which the first head->scanned were seen before. DONE: the head is
 * complete and has head->scanned bytes; method, target and values are NUL-terminated in place. BAD:
 * *problem says why. */
weir_http_progress weir_http_head_read(
    weir_http_head *head, char *bytes, size_t n, weir_http_problem *problem
);
/* Returns the field's value; NULL: absent. */
static inline const char *weir_http_value(
    const weir_http_head *head, const char *bytes, weir_http_field field
)
{
    return head->value[field] != 0 ? bytes + head->value[field] : NULL;
}

#ifdef __cplusplus
}
#endif
