/* engine/text/jinja/arena.c - see arena.h. */
#include "engine/text/jinja/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"

/* A block with its headers is 32 KiB, which a heap maps without waste. */
enum { BLOCK_BYTES = (32 << 10) - 48, LARGE_BYTES = 4 << 10 };

struct weir_jinja_block {
    alignas(16) weir_jinja_block *next;
    weir_jinja_block *previous;
    size_t size; /* whole block, header included */
};

static weir_status block_open(weir_jinja_arena *arena, weir_jinja_block **out, size_t size)
{
    size_t total = 0;
    if (!weir_add_size(&total, size, sizeof(weir_jinja_block))) return WEIR_EFULL;
    if (total > arena->limit || arena->used > arena->limit - total) return WEIR_EFULL;
    weir_jinja_block *block = weir_memory_take_zero(1, total);
    if (!block) return WEIR_ENOMEM;
    block->size = total;
    block->next = arena->blocks;
    if (arena->blocks) arena->blocks->previous = block;
    arena->blocks = block;
    arena->used += total;
    *out = block;
    return WEIR_OK;
}

static void block_close(weir_jinja_arena *arena, weir_jinja_block *block)
{
    if (block->previous)
        block->previous->next = block->next;
    else
        arena->blocks = block->next;
    if (block->next) block->next->previous = block->previous;
    arena->used -= block->size;
    weir_memory_give(block);
}

weir_status weir_jinja_alloc(weir_jinja_arena *arena, void *out, size_t size)
{
    weir_jinja_block *block = NULL;
    void *piece = NULL;
    if (!weir_align_size(&size, size ? size : 1, 16)) return WEIR_EFULL;
    if (size >= LARGE_BYTES) {
        WEIR_TRY(block_open(arena, &block, size));
        piece = block + 1;
    } else {
        if ((size_t)(arena->current_end - arena->current) < size) {
            WEIR_TRY(block_open(arena, &block, BLOCK_BYTES));
            arena->current = (char *)(block + 1);
            arena->current_end = arena->current + BLOCK_BYTES;
        }
        piece = arena->current;
        arena->current += size;
    }
    memcpy(out, &piece, sizeof piece);
    return WEIR_OK;
}

weir_status weir_jinja_grow(
    weir_jinja_arena *arena, void *items, size_t *capacity, size_t count, size_t extra,
    size_t element
)
{
    size_t needed = 0, bytes = 0;
    void *old = NULL, *grown = NULL;
    memcpy(&old, items, sizeof old);
    if (!weir_add_size(&needed, count, extra)) return WEIR_EFULL;
    if (needed <= *capacity) return WEIR_OK;
    if (needed < count + count / 2) needed = count + count / 2;
    if (needed < 8) needed = 8;
    if (!weir_mul_size(&bytes, needed, element)) return WEIR_EFULL;
    WEIR_TRY(weir_jinja_alloc(arena, &grown, bytes));
    if (count) memcpy(grown, old, count * element);
    if (*capacity * element >= LARGE_BYTES) block_close(arena, (weir_jinja_block *)old - 1);
    memcpy(items, &grown, sizeof grown);
    *capacity = needed;
    return WEIR_OK;
}

void weir_jinja_arena_free(weir_jinja_arena *arena)
{
    while (arena->blocks) block_close(arena, arena->blocks);
    *arena = (weir_jinja_arena){ .limit = arena->limit };
}
