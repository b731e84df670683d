/* tools/load/due.h - the conversations that wait for their time: a heap, the earliest first; equal
 * times in the order of their numbers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct weir_due {
    int64_t ns;
    int32_t conversation;
} weir_due;

typedef struct weir_due_heap {
    weir_due *entries; /* borrowed; room for every conversation */
    int32_t n;
} weir_due_heap;

static inline bool weir_due_before(const weir_due *a, const weir_due *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->conversation < b->conversation;
}

static inline void weir_due_push(weir_due_heap *heap, weir_due entry)
{
    int32_t at = heap->n++;
    while (at > 0 && weir_due_before(&entry, &heap->entries[(at - 1) / 2])) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
}

/* Removes the earliest one; the heap is not empty. */
static inline weir_due weir_due_pop(weir_due_heap *heap)
{
    const weir_due first = heap->entries[0], last = heap->entries[--heap->n];
    int32_t at = 0;
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n &&
            weir_due_before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!weir_due_before(&heap->entries[child], &last)) break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    if (heap->n > 0) heap->entries[at] = last;
    return first;
}
