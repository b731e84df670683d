/* engine/base/heap.h - the memory of one request: an allocator of its own, whose memory goes back
 * to the system when the request is over.
 *
 * A heap maps memory from the system: chunks for small blocks, a mapping for each large one. Its
 * payer is asked before a mapping is made and is charged for all of it, so what a heap holds of the
 * process's memory is never more than what was charged. A chunk without live blocks is unmapped.
 * Any thread may take, resize and give back. With AddressSanitizer each block is malloc's, so that
 * errors are found; it is charged all the same. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_heap weir_heap;

/* `payer` (may be NULL: nobody) outlives the heap. NULL: the payer refuses, or there is no
 * memory. */
weir_heap *weir_heap_open(weir_payer *payer);
/* Nothing more is taken from it. It ends now, or when its last block is given back. NULL-safe. */
void weir_heap_close(weir_heap *heap);
/* For weir_payer_set: weir_memory_* of that thread take from this heap. */
weir_payer *weir_heap_payer(weir_heap *heap);
/* For tests: bytes mapped, and charged, now. NULL: by all heaps of the process. */
size_t weir_heap_mapped(const weir_heap *heap);

/* memory.c calls these: weir_memory_* with the heap as payer. */
void *weir_heap_take(weir_heap *heap, size_t bytes, bool zero);
void *weir_heap_resize(weir_heap *heap, void *memory, size_t bytes);
void weir_heap_give(weir_heap *heap, void *memory);

#ifdef __cplusplus
}
#endif
