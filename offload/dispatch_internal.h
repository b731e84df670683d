/* offload/dispatch_internal.h - what the typed entries (ops.c) end in. */
#pragma once
#include "offload/dispatch.h"

/* Runs the first row that accepts, or notes what it takes while planning. EUNSUPPORTED: no row
 * does. */
WEIR_MUST_CHECK weir_status weir_stream_call(weir_stream *stream, weir_op op, const void *args);
