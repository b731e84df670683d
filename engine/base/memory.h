/* engine/base/memory.h - allocation that is charged to a payer, for sizes that depend on a request
 * or a file.
 *
 * Each thread has a current payer or none. The payer is charged before the allocation; a block
 * stays with its payer, whichever thread resizes or frees it. If the payer refuses, the
 * allocation returns NULL, as if memory had run out. Without a payer nothing is charged. Blocks
 * come from malloc and are charged as malloc rounds them, headers included. If the payer is a
 * heap (heap.h), blocks come from the heap, which charges what it maps. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Its functions are called from any thread. It must outlive every block charged to it. */
typedef struct weir_payer {
    bool (*charge)(struct weir_payer *payer, size_t bytes); /* false: refused, nothing charged */
    void (*refund)(struct weir_payer *payer, size_t bytes);
    struct weir_heap *heap; /* allocator of the blocks; NULL: malloc */
} weir_payer;

/* Sets the calling thread's payer (NULL: none). Returns the previous one. */
weir_payer *weir_payer_set(weir_payer *payer);
weir_payer *weir_payer_get(void);

/* Aligned to 16 bytes. Returns NULL if the payer refuses, memory runs out or the size overflows. */
void *weir_memory_take(size_t bytes);
void *weir_memory_take_zero(size_t count, size_t size);
/* On failure returns NULL and leaves `memory` unchanged. Old and new size are both charged while
 * the block moves; for large blocks of a heap only the difference. */
void *weir_memory_resize(void *memory, size_t bytes);
char *weir_memory_text(const char *text); /* returns a copy */
void weir_memory_give(void *memory); /* NULL-safe */

/* A payer with a fixed budget that is already charged elsewhere. */
typedef struct weir_purse {
    weir_payer payer;
    size_t left;
} weir_purse;
void weir_purse_init(weir_purse *purse, size_t bytes);

/* Charges an upper bound for memory that a library allocates itself, for as long as the hold
 * lives. */
typedef struct weir_hold {
    weir_payer *payer;
    size_t bytes;
} weir_hold;
bool weir_hold_take(weir_hold *hold, size_t bytes); /* hold: zeroed or given back; false: refused */
void weir_hold_give(weir_hold *hold); /* idempotent */

#ifdef __cplusplus
}
#endif
