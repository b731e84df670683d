/* offload/dispatch_internal.h - the function that all typed entries (ops.c) call. */
#pragma once
#include "offload/dispatch.h"

/* Runs the first row that accepts; while planning, records what it needs. Returns EUNSUPPORTED if
 * no row accepts. */
WEIR_MUST_CHECK weir_status weir_stream_call(weir_stream *stream, weir_op op, const void *args);
