/* engine/serve/call_memory.c - a ring of calls, the oldest first. */
#include "engine/serve/call_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_call {
    uint64_t hash; /* of the id */
    char *id; /* owned, with the arguments behind its NUL */
    size_t n; /* bytes of both, with their NULs */
} kept_call;

struct weir_call_memory {
    weir_memory_tracker *tracker;
    pthread_mutex_t lock; /* of what follows */
    kept_call calls[WEIR_CALLS_KEPT];
    size_t first, count, bytes;
};

weir_status weir_call_memory_open(
    weir_call_memory **out, weir_memory_tracker *tracker, weir_error *error
)
{
    weir_call_memory *const memory = calloc(1, sizeof *memory);
    if (memory == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a list of calls");
    memory->tracker = tracker;
    (void)pthread_mutex_init(&memory->lock, NULL);
    *out = memory;
    return WEIR_OK;
}

static void forget_oldest(weir_call_memory *memory)
{
    kept_call *const oldest = &memory->calls[memory->first];
    memory->bytes -= oldest->n;
    weir_memory_give(oldest->id);
    *oldest = (kept_call){ 0 };
    memory->first = (memory->first + 1) % WEIR_CALLS_KEPT;
    memory->count--;
}

void weir_call_memory_close(weir_call_memory *memory)
{
    if (memory == NULL) return;
    weir_memory_tracker *const before = weir_memory_tracker_set(memory->tracker);
    while (memory->count > 0) forget_oldest(memory);
    (void)weir_memory_tracker_set(before);
    (void)pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static uint64_t hash_of(const char *id)
{
    uint64_t hash = 14695981039346656037U;
    for (; *id != '\0'; id++) hash = (hash ^ (unsigned char)*id) * 1099511628211U;
    return hash;
}

/* Requires the lock. */
static void put(weir_call_memory *memory, const char *id, const char *arguments)
{
    const size_t n_id = strlen(id) + 1, n_arguments = strlen(arguments) + 1, n = n_id + n_arguments;
    if (n > WEIR_CALLS_KEPT_BYTES) return;
    while (memory->count == WEIR_CALLS_KEPT || memory->bytes + n > WEIR_CALLS_KEPT_BYTES)
        forget_oldest(memory);
    char *const text = weir_memory_take(n);
    if (text == NULL) return;
    memcpy(text, id, n_id);
    memcpy(text + n_id, arguments, n_arguments);
    memory->calls[(memory->first + memory->count++) % WEIR_CALLS_KEPT] =
        (kept_call){ .hash = hash_of(id), .id = text, .n = n };
    memory->bytes += n;
}

void weir_call_memory_put(weir_call_memory *memory, const char *id, const char *arguments)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(memory->tracker);
    (void)pthread_mutex_lock(&memory->lock);
    put(memory, id, arguments);
    (void)pthread_mutex_unlock(&memory->lock);
    (void)weir_memory_tracker_set(before);
}

weir_status weir_call_memory_get(
    weir_call_memory *memory, const char *id, weir_buffer *out, bool *found
)
{
    const uint64_t hash = hash_of(id);
    weir_status status = WEIR_OK;
    *found = false;
    (void)pthread_mutex_lock(&memory->lock);
    for (size_t i = memory->count; i-- > 0 && !*found;) {
        const kept_call *const call = &memory->calls[(memory->first + i) % WEIR_CALLS_KEPT];
        *found = call->hash == hash && strcmp(call->id, id) == 0;
        if (*found) status = weir_buffer_text(out, call->id + strlen(id) + 1);
    }
    (void)pthread_mutex_unlock(&memory->lock);
    return status;
}
