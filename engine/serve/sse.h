/* engine/serve/sse.h - frames of an event stream. Only `data:` lines and comments, one line each,
 * ended by one blank line: what clients of OpenAI's API can read (spec/serving.md 2.1). */
#pragma once
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Frames what is appended between begin and end; the text must hold no line end (JSON from
 * weir_json_out never does). */
WEIR_MUST_CHECK weir_status weir_sse_begin(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_sse_end(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_sse_ping(weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_sse_done(weir_buffer *out);

#ifdef __cplusplus
}
#endif
