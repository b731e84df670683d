/* engine/serve/http_head.h - the head of an HTTP/1.1 request (RFC 9112), read strictly and as its
 * bytes come. Pure: no socket, no allocation.
 *
 * Refused, each as soon as its bytes are there: bare CR or LF, NUL and other control characters,
 * folded fields, a space before the colon, empty names, a second field of those that the server
 * reads, targets that are no path, versions other than 1.0 and 1.1, two statements of the length of
 * the body. Whoever reads the request in front of us and sees another one in the same bytes is how
 * requests are smuggled, so nothing is repaired. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fields that the server reads. All but Connection may stand once. */
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

/* Why a request is refused: an HTTP status and a sentence. */
typedef struct weir_http_problem {
    int status;
    const char *text;
} weir_http_problem;

typedef enum weir_http_progress {
    WEIR_HTTP_MORE,
    WEIR_HTTP_DONE,
    WEIR_HTTP_BAD
} weir_http_progress;

/* All offsets are into the bytes that were read; zero-initialise. */
typedef struct weir_http_head {
    size_t limit;         /* most bytes of all fields; set it before the first call */
    size_t scanned, line; /* bytes looked at; begin of the line that is being read */
    size_t fields; /* where the first field begins; 0: the request line is not complete */
    uint32_t n_fields;
    int minor; /* HTTP/1.minor */
    bool keep_alive; /* the connection may serve another request */
    bool chunked;
    int64_t length; /* Content-Length; -1: none */
    size_t method, target;
    size_t value[WEIR_HTTP_FIELD_COUNT]; /* 0: absent */
} weir_http_head;

/* Goes on reading bytes [n], of which the first head->scanned were seen before. DONE: the head is
 * complete and took head->scanned bytes; method, target and values are NUL-terminated in place.
 * BAD: *problem says why. */
weir_http_progress weir_http_head_read(
    weir_http_head *head, char *bytes, size_t n, weir_http_problem *problem
);
/* NULL: absent. */
static inline const char *weir_http_value(
    const weir_http_head *head, const char *bytes, weir_http_field field
)
{
    return head->value[field] != 0 ? bytes + head->value[field] : NULL;
}

#ifdef __cplusplus
}
#endif
