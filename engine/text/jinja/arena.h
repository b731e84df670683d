/* engine/text/jinja/arena.h - memory of one parse or one rendering: allocated in pieces, freed at
 * once, with a limit.
 *
 * Large pieces are separate blocks, so that a growing buffer frees its old memory. Not
 * thread-safe. */
#pragma once
#include <stddef.h>

#include "engine/base/error.h"

typedef struct weir_jinja_block weir_jinja_block;
typedef struct weir_jinja_arena {
    weir_jinja_block *blocks; /* all blocks, newest first; small pieces are cut from `current` */
    char *current, *current_end;
    size_t used, limit; /* bytes allocated, and their limit */
} weir_jinja_arena;

/* Allocates zeroed memory, aligned to 16. EFULL: past the limit; ENOMEM: the system has none. */
WEIR_MUST_CHECK weir_status weir_jinja_alloc(weir_jinja_arena *arena, void *out, size_t size);
/* Grows an array of `element` bytes each to hold `count` + `extra` elements. Updates *items and
 * *capacity. Amortised O(1) per element. */
WEIR_MUST_CHECK weir_status weir_jinja_grow(
    weir_jinja_arena *arena, void *items, size_t *capacity, size_t count, size_t extra,
    size_t element
);
void weir_jinja_arena_free(weir_jinja_arena *arena);
