/* tools/load/http_reply.h - incremental reader of HTTP/1.1 replies (RFC 9112), from any server.
 * Pure: no socket, no allocation.
 *
 * Bounds: 8 KiB a line of the head, 64 KiB the head. Interim replies (1xx) are skipped. Chunks are
 * read by engine/serve/http_chunks.h. */
#pragma once
#include "engine/serve/http_chunks.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_REPLY_LINE_BYTES = 8 << 10, WEIR_REPLY_HEAD_BYTES = 64 << 10 };

typedef enum weir_reply_state {
    WEIR_REPLY_HEAD,
    WEIR_REPLY_SIZED, /* a body of Content-Length */
    WEIR_REPLY_CHUNKED,
    WEIR_REPLY_TO_END, /* the body ends with the connection */
    WEIR_REPLY_OVER
} weir_reply_state;

/* Zero-initialise. */
typedef struct weir_http_reply {
    weir_reply_state state;
    int status; /* 0: the status line has not been read */
    bool keep_alive; /* the connection can be used again after this reply */
    bool is_event_stream; /* Content-Type: text/event-stream */
    bool is_chunked;
    int64_t length; /* Content-Length; -1: none */
    uint64_t left; /* of a sized body */
    weir_http_chunks chunks;
    size_t n_head, n_line;
    char line[WEIR_REPLY_LINE_BYTES];
} weir_http_reply;

/* Consumes *used of the bytes [n], up to the end of the next piece of the body; the last *n_data of
 * them are that piece. MORE: call again with what follows. DONE: the reply is complete. BAD: *why
 * says what is wrong with it, a static text. */
weir_http_progress weir_http_reply_read(
    weir_http_reply *reply, const char *bytes, size_t n, size_t *used, size_t *n_data,
    const char **why
);
/* The connection was closed. Returns true if that completes the reply. */
bool weir_http_reply_end(weir_http_reply *reply);

#ifdef __cplusplus
}
#endif
