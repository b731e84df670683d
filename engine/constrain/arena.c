/* engine/constrain/arena.c - memory of one compilation. */
#include "engine/constrain/arena.h"

#include <stdint.h>

#include "engine/base/memory.h"

typedef struct weir_scratch_chunk {
    struct weir_scratch_chunk *next;
    size_t size;
} weir_scratch_chunk;

enum { CHUNK = 8192 };

void *weir_scratch_take(weir_scratch *scratch, size_t n)
{
    if (n > SIZE_MAX / 4) return NULL;
    n = (n + 15) & ~(size_t)15;
    if (scratch->chunks == NULL || scratch->chunks->size - scratch->used < n) {
        const size_t header = (sizeof(weir_scratch_chunk) + 15) & ~(size_t)15;
        const size_t size = header + (n > CHUNK ? n : CHUNK);
        weir_scratch_chunk *const chunk = weir_memory_take(size);
        if (chunk == NULL) return NULL;
        *chunk = (weir_scratch_chunk){ .next = scratch->chunks, .size = size };
        scratch->chunks = chunk;
        scratch->used = header;
    }
    void *const piece = (char *)scratch->chunks + scratch->used;
    scratch->used += n;
    return piece;
}

void weir_scratch_free(weir_scratch *scratch)
{
    while (scratch->chunks != NULL) {
        weir_scratch_chunk *const next = scratch->chunks->next;
        weir_memory_give(scratch->chunks);
        scratch->chunks = next;
    }
    scratch->used = 0;
}
