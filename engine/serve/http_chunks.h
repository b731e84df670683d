/* engine/serve/http_chunks.h - strict, incremental parser of chunked request bodies (RFC 9112,
 * 7.1). Pure: no socket, no allocation.
 *
 * A size is 1 to 15 hexadecimal digits. Extensions are skipped, up to 256 bytes a line; trailers
 * are skipped, up to 4 KiB in total. Lines end with CR LF. */
#pragma once
#include "engine/serve/http_head.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_chunk_state {
    WEIR_CHUNK_SIZE,
    WEIR_CHUNK_EXTENSION,
    WEIR_CHUNK_SIZE_LF,
    WEIR_CHUNK_DATA,
    WEIR_CHUNK_DATA_CR,
    WEIR_CHUNK_DATA_LF,
    WEIR_CHUNK_TRAILER,
    WEIR_CHUNK_TRAILER_LF,
    WEIR_CHUNK_END,
} weir_chunk_state;

/* Zero-initialise. */
typedef struct weir_http_chunks {
    weir_chunk_state state;
    uint64_t left; /* of this chunk's data */
    size_t digits, line, trailers;
} weir_http_chunks;

/* Consumes *used of the bytes [n], up to the end of the next piece of data; the last *n_data of
 * them are data. MORE: call again with what follows. DONE: the body is complete. */
weir_http_progress weir_http_chunks_read(
    weir_http_chunks *chunks, const char *bytes, size_t n, size_t *used, size_t *n_data,
    weir_http_problem *problem
);

#ifdef __cplusplus
}
#endif
