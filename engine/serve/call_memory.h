/* engine/serve/call_memory.h - the arguments of calls as the model wrote them, by the ids that the
 * server gave the calls: those of the last answers. Clients send calls back with other spaces or
 * another order of keys, and the prompt would differ from what was computed. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_CALLS_KEPT = 4096, WEIR_CALLS_KEPT_BYTES = 8 << 20 };

typedef struct weir_call_memory weir_call_memory;

/* tracker: of all memory; outlives it */
WEIR_MUST_CHECK weir_status
weir_call_memory_open(weir_call_memory **out, weir_memory_tracker *tracker, weir_error *error);
void weir_call_memory_close(weir_call_memory *memory); /* NULL-safe */
/* Keeps a call, and forgets the oldest ones beyond the limits; without memory it is not kept. Any
 * thread. */
void weir_call_memory_put(weir_call_memory *memory, const char *id, const char *arguments);
/* Appends the arguments of the call; *found: it is known. Any thread.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_call_memory_get(weir_call_memory *memory, const char *id, weir_buffer *out, bool *found);

#ifdef __cplusplus
}
#endif
