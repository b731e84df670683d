/* engine/base/heap.h - the memory of one request: an allocator whose memory returns to the system
 * when the request ends.
 *
 * A heap maps memory from the system: chunks for small blocks, a separate mapping for each large
 * one. Every mapping is charged to the tracker first and in full, so a heap never uses more memory
 * than was charged. A chunk without live blocks is unmapped. All functions are thread-safe. With
 * AddressSanitizer, blocks come from malloc so that errors are detected; they are charged as
 * usual. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_heap weir_heap;

/* Opens a heap. `tracker` (may be NULL: not charged) must outlive it. Returns NULL if the tracker
 * refuses or memory runs out. */
weir_heap *weir_heap_open(weir_memory_tracker *tracker);
/* Ends the heap now, or when its last block is freed. No allocation may follow. NULL-safe. */
void weir_heap_close(weir_heap *heap);
/* The tracker to pass to weir_memory_tracker_set: the thread's weir_memory_* calls then allocate
 * from this heap. */
weir_memory_tracker *weir_heap_tracker(weir_heap *heap);
/* For tests: bytes mapped and charged now. NULL: the sum over all heaps of the process. */
size_t weir_heap_mapped(const weir_heap *heap);

/* Called by memory.c only, for weir_memory_* with a heap as tracker. */
void *weir_heap_take(weir_heap *heap, size_t bytes, bool zero);
void *weir_heap_resize(weir_heap *heap, void *memory, size_t bytes);
void weir_heap_give(weir_heap *heap, void *memory);

#ifdef __cplusplus
}
#endif
