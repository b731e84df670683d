#include "engine/base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/block.h"
#include "engine/base/checked.h"
#include "engine/base/heap.h"

/* glibc: 8 bytes before each block; sizes are multiples of 16, at least 32. */
enum { MALLOC_HEADER = 8, MALLOC_STEP = 16 };

static _Thread_local weir_memory_tracker *current;

weir_memory_tracker *weir_memory_tracker_set(weir_memory_tracker *tracker)
{
    weir_memory_tracker *const before = current;
    current = tracker;
    return before;
}

weir_memory_tracker *weir_memory_tracker_get(void) { return current; }

static bool charge_budget(weir_memory_tracker *tracker, size_t bytes)
{
    weir_memory_budget *const budget = (weir_memory_budget *)tracker;
    size_t left = __atomic_load_n(&budget->left, __ATOMIC_RELAXED);
    while (left >= bytes)
        if (__atomic_compare_exchange_n(
                &budget->left, &left, left - bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED
            ))
            return true;
    return false;
}

static void refund_budget(weir_memory_tracker *tracker, size_t bytes)
{
    (void)__atomic_fetch_add(&((weir_memory_budget *)tracker)->left, bytes, __ATOMIC_RELAXED);
}

void weir_memory_budget_init(weir_memory_budget *budget, size_t bytes)
{
    *budget = (weir_memory_budget){ .tracker = { .charge = charge_budget, .refund = refund_budget },
                                    .left = bytes };
}

static bool cost_of(size_t *cost, size_t bytes)
{
    return weir_add_size(cost, bytes, sizeof(weir_block) + MALLOC_HEADER) &&
           weir_align_size(cost, *cost, MALLOC_STEP);
}

static void *begin(weir_block *block, weir_memory_tracker *tracker, size_t cost)
{
    if (block == NULL) {
        if (tracker != NULL) tracker->refund(tracker, cost);
        return NULL;
    }
    *block = (weir_block){ .tracker = tracker, .tag = cost };
    return block + 1;
}

void *weir_memory_take(size_t bytes)
{
    size_t cost;
    if (current != NULL && current->heap != NULL)
        return weir_heap_take(current->heap, bytes, false);
    if (!cost_of(&cost, bytes)) return NULL;
    if (current != NULL && !current->charge(current, cost)) return NULL;
    return begin(malloc(sizeof(weir_block) + bytes), current, cost);
}

void *weir_memory_take_zero(size_t count, size_t size)
{
    size_t bytes, cost;
    if (!weir_mul_size(&bytes, count, size)) return NULL;
    if (current != NULL && current->heap != NULL) return weir_heap_take(current->heap, bytes, true);
    if (!cost_of(&cost, bytes)) return NULL;
    if (current != NULL && !current->charge(current, cost)) return NULL;
    return begin(calloc(1, sizeof(weir_block) + bytes), current, cost);
}

void *weir_memory_resize(void *memory, size_t bytes)
{
    if (memory == NULL) return weir_memory_take(bytes);
    weir_block *const old = (weir_block *)memory - 1;
    weir_memory_tracker *const tracker = old->tracker;
    const size_t before = old->tag;
    size_t cost;
    if (tracker != NULL && tracker->heap != NULL)
        return weir_heap_resize(tracker->heap, memory, bytes);
    if (!cost_of(&cost, bytes) || (tracker != NULL && !tracker->charge(tracker, cost))) return NULL;
    void *const grown = begin(realloc(old, sizeof(weir_block) + bytes), tracker, cost);
    if (grown != NULL && tracker != NULL) tracker->refund(tracker, before);
    return grown;
}

char *weir_memory_text(const char *text)
{
    const size_t n = strlen(text) + 1;
    char *const copy = weir_memory_take(n);
    if (copy != NULL) memcpy(copy, text, n);
    return copy;
}

void weir_memory_give(void *memory)
{
    if (memory == NULL) return;
    weir_block *const block = (weir_block *)memory - 1;
    weir_memory_tracker *const tracker = block->tracker;
    const size_t charged = block->tag;
    if (tracker != NULL && tracker->heap != NULL) {
        weir_heap_give(tracker->heap, memory);
        return;
    }
    free(block);
    if (tracker != NULL) tracker->refund(tracker, charged);
}

bool weir_hold_take(weir_hold *hold, size_t bytes)
{
    if (current == NULL) return true;
    if (!current->charge(current, bytes)) return false;
    *hold = (weir_hold){ .tracker = current, .bytes = bytes };
    return true;
}

void weir_hold_give(weir_hold *hold)
{
    if (hold->tracker != NULL) hold->tracker->refund(hold->tracker, hold->bytes);
    *hold = (weir_hold){ 0 };
}
