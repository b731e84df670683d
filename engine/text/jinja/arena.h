/* engine/text/jinja/arena.h - memory of one parse or one rendering: given out piece by piece, given
 * back all at once, with a limit.
 *
 * Large pieces are blocks of their own, so that a growing buffer gives its old memory back. Not
 * thread-safe. */
#pragma once
#include <stddef.h>

#include "engine/base/error.h"

typedef struct weir_jinja_block weir_jinja_block;
typedef struct weir_jinja_arena {
    weir_jinja_block *blocks; /* all blocks, newest first; the small pieces come from `current` */
    char *current, *current_end;
    size_t used, limit; /* bytes taken from the system, and the most that may be taken */
} weir_jinja_arena;

/* Zeroed, aligned to 16. EFULL past the limit, ENOMEM when the system has none. */
WEIR_MUST_CHECK weir_status weir_jinja_alloc(weir_jinja_arena *arena, void *out, size_t size);
/* Grows an array of `element` bytes each so that `count` + `extra` elements fit; *items and
 * *capacity change. Amortised O(1) an element. */
WEIR_MUST_CHECK weir_status weir_jinja_grow(
    weir_jinja_arena *arena, void *items, size_t *capacity, size_t count, size_t extra,
    size_t element
);
void weir_jinja_arena_free(weir_jinja_arena *arena);
