/* engine/formats/arena.c - bump allocation from chunks. Strings are packed without padding. */
#include "engine/formats/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"

enum { CHUNK_BYTES = 64 << 10 };

struct weir_arena_chunk {
    struct weir_arena_chunk *next;
    alignas(16) unsigned char bytes[];
};

static void *take(weir_arena *arena, size_t n, size_t alignment)
{
    size_t at;
    if (!weir_align_size(&at, arena->used, alignment)) return NULL;
    if (arena->chunks == NULL || at > arena->size || n > arena->size - at) {
        const size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
        size_t total;
        if (!weir_add_size(&total, size, sizeof(struct weir_arena_chunk))) return NULL;
        struct weir_arena_chunk *const chunk = weir_memory_take(total);
        if (chunk == NULL) return NULL;
        chunk->next = arena->chunks;
        *arena = (weir_arena){ .chunks = chunk, .size = size };
        at = 0;
    }
    arena->used = at + n;
    return arena->chunks->bytes + at;
}

void *weir_arena_take(weir_arena *arena, size_t n) { return take(arena, n, 16); }

char *weir_arena_text(weir_arena *arena, const void *bytes, size_t length)
{
    char *const text = length < SIZE_MAX ? take(arena, length + 1, 1) : NULL;
    if (text == NULL) return NULL;
    if (length > 0) memcpy(text, bytes, length);
    text[length] = '\0';
    return text;
}

void weir_arena_free(weir_arena *arena)
{
    while (arena->chunks != NULL) {
        struct weir_arena_chunk *const next = arena->chunks->next;
        weir_memory_give(arena->chunks);
        arena->chunks = next;
    }
    *arena = (weir_arena){ 0 };
}
