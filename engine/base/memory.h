/* engine/base/memory.h - memory that somebody pays for, where its size follows a request or a file.
 *
 * A thread has a payer, or none. The payer is asked before a block is taken; a block stays with the
 * payer that it began with, whoever resizes it or gives it back on whatever thread. A refusal looks
 * like a machine without memory: NULL. Without a payer nothing is counted. Blocks come from malloc,
 * and counted is what malloc takes: the block, its header here and malloc's own, rounded as malloc
 * rounds. A heap (heap.h) as payer gives blocks of its own and is charged for what it maps. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called from any thread. Outlives every block that it paid for. */
typedef struct weir_payer {
    bool (*charge)(struct weir_payer *payer, size_t bytes); /* false: refused, nothing is charged */
    void (*refund)(struct weir_payer *payer, size_t bytes);
    struct weir_heap *heap; /* where blocks come from, NULL: malloc */
} weir_payer;

/* The running thread's payer from now on, NULL: none. Returns the one before. */
weir_payer *weir_payer_set(weir_payer *payer);
weir_payer *weir_payer_get(void);

/* 16-byte aligned; NULL when refused, when the system has none, or when the size does not fit. */
void *weir_memory_take(size_t bytes);
void *weir_memory_take_zero(size_t count, size_t size);
/* NULL: `memory` is as it was. Both sizes are charged while it moves; of a heap's large blocks only
 * the difference. */
void *weir_memory_resize(void *memory, size_t bytes);
char *weir_memory_text(const char *text); /* a copy */
void weir_memory_give(void *memory); /* NULL-safe */

/* A payer with so many bytes to spend, which somebody else has booked. */
typedef struct weir_purse {
    weir_payer payer;
    size_t left;
} weir_purse;
void weir_purse_init(weir_purse *purse, size_t bytes);

/* For memory that others allocate: a bound of it is held by the running thread's payer while it
 * lives. */
typedef struct weir_hold {
    weir_payer *payer;
    size_t bytes;
} weir_hold;
bool weir_hold_take(weir_hold *hold, size_t bytes); /* hold: zero, or given; false: refused */
void weir_hold_give(weir_hold *hold); /* idempotent */

#ifdef __cplusplus
}
#endif
