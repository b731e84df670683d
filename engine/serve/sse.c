/* engine/serve/sse.c - the kinds of frames. */
#include "engine/serve/sse.h"

weir_status weir_sse_begin(weir_buffer *out) { return weir_buffer_text(out, "data: "); }
weir_status weir_sse_event(weir_buffer *out, const char *name)
{
    return weir_buffer_format(out, "event: %s\ndata: ", name);
}
weir_status weir_sse_end(weir_buffer *out) { return weir_buffer_text(out, "\n\n"); }
weir_status weir_sse_ping(weir_buffer *out) { return weir_buffer_text(out, ": ping\n\n"); }
weir_status weir_sse_done(weir_buffer *out) { return weir_buffer_text(out, "data: [DONE]\n\n"); }
