/* engine/base/memory.h - allocation that is charged to a tracker, for sizes that depend on a
 * request or a file.
 *
 * Each thread has a current tracker or none. The tracker is charged before the allocation; a block
 * stays with its tracker, whichever thread resizes or frees it. If the tracker refuses, the
 * allocation returns NULL, as if memory had run out. Without a tracker nothing is charged. Blocks
 * come from malloc and are charged as malloc rounds them, headers included. If the tracker is a
 * heap (heap.h), blocks come from the heap, which charges what it maps. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Its functions are called from any thread. It must outlive every block charged to it. */
typedef struct weir_memory_tracker {
    bool (*charge)(
        struct weir_memory_tracker *tracker, size_t bytes
    ); /* false: refused, nothing charged */
    void (*refund)(struct weir_memory_tracker *tracker, size_t bytes);
    struct weir_heap *heap; /* allocator of the blocks; NULL: malloc */
} weir_memory_tracker;

/* Sets the calling thread's tracker (NULL: none). Returns the previous one. */
weir_memory_tracker *weir_memory_tracker_set(weir_memory_tracker *tracker);
weir_memory_tracker *weir_memory_tracker_get(void);

/* Aligned to 16 bytes. Returns NULL if the tracker refuses, memory runs out or the size
 * overflows. */
void *weir_memory_take(size_t bytes);
void *weir_memory_take_zero(size_t count, size_t size);
/* On failure returns NULL and leaves `memory` unchanged. Old and new size are both charged while
 * the block moves; for large blocks of a heap only the difference. */
void *weir_memory_resize(void *memory, size_t bytes);
char *weir_memory_text(const char *text); /* returns a copy */
void weir_memory_give(void *memory); /* NULL-safe */

/* A tracker with a fixed budget that is already charged elsewhere. */
typedef struct weir_memory_budget {
    weir_memory_tracker tracker;
    size_t left;
} weir_memory_budget;
void weir_memory_budget_init(weir_memory_budget *budget, size_t bytes);

/* Charges an upper bound for memory that a library allocates itself, for as long as the hold
 * lives. */
typedef struct weir_hold {
    weir_memory_tracker *tracker;
    size_t bytes;
} weir_hold;
bool weir_hold_take(weir_hold *hold, size_t bytes); /* hold: zeroed or given back; false: refused */
void weir_hold_give(weir_hold *hold); /* idempotent */

#ifdef __cplusplus
}
#endif
