/* engine/serve/sse.h - frames of an event stream. Uses only `data:` lines and comments, one line
 * each, ended by one blank line: what clients of OpenAI's API can read. Where an API names its
 * events, an `event:` line comes first. */
#pragma once
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Begin and end a frame around text appended by the caller, which must contain no line end (JSON
 * from weir_json_out never does). */
WEIR_MUST_CHECK weir_status weir_sse_begin(weir_buffer *out);
/* The beginning of a frame with a name. */
WEIR_MUST_CHECK weir_status weir_sse_event(weir_buffer *out, const char *name);
WEIR_MUST_CHECK weir_status weir_sse_end(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_sse_ping(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_sse_done(weir_buffer *out);

#ifdef __cplusplus
}
#endif
