/* engine/formats/arena.h - memory that lives as long as a directory: many small pieces, freed
 * together. */
#pragma once
#include <stddef.h>

/* Zero-initialise; weir_arena_free releases it. Pieces never move. */
typedef struct weir_arena {
    struct weir_arena_chunk *chunks; /* owned */
    size_t used, size; /* of the newest chunk */
} weir_arena;

void *weir_arena_take(weir_arena *arena, size_t n); /* aligned to 16; NULL when memory is short */
/* Returns a NUL-terminated copy, NULL when memory runs out. */
char *weir_arena_text(weir_arena *arena, const void *bytes, size_t length);
void weir_arena_free(weir_arena *arena);
