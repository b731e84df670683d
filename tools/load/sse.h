/* tools/load/sse.h - incremental reader of server-sent events (WHATWG HTML, 9.2). Comments and
 * fields other than data are skipped. An event may have at most 4 MiB. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_SSE_EVENT_BYTES = 4 << 20 };

/* Zero-initialise; weir_sse_reader_free releases it. */
typedef struct weir_sse_reader {
    weir_buffer line, data;
    bool has_data; /* of the event that is read */
    bool after_cr; /* a LF is the rest of the line end */
} weir_sse_reader;

/* Called with the data of an event; the text is NUL-terminated and borrowed. */
typedef weir_status (*weir_sse_event)(void *user, const char *data, size_t n);

/* Reads bytes [n] in any pieces. Returns EFORMAT if an event is too long, ENOMEM, or what the
 * callback returned if that was not OK. */
WEIR_MUST_CHECK weir_status weir_sse_read(
    weir_sse_reader *reader, const char *bytes, size_t n, weir_sse_event on_event, void *user
);
void weir_sse_reader_clear(weir_sse_reader *reader); /* keeps the memory */
void weir_sse_reader_free(weir_sse_reader *reader); /* idempotent */

#ifdef __cplusplus
}
#endif
