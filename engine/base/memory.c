#include "engine/base/memory.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/block.h"
#include "engine/base/checked.h"
#include "engine/base/heap.h"

/* glibc: 8 bytes before each block; sizes are multiples of 16, at least 32. */
enum { MALLOC_HEADER = 8, MALLOC_STEP = 16 };

static _Thread_local weir_payer *current;

weir_payer *weir_payer_set(weir_payer *payer)
{
    weir_payer *const before = current;
    current = payer;
    return before;
}

weir_payer *weir_payer_get(void) { return current; }

static bool charge_purse(weir_payer *payer, size_t bytes)
{
    weir_purse *const purse = (weir_purse *)payer;
    size_t left = __atomic_load_n(&purse->left, __ATOMIC_RELAXED);
    while (left >= bytes)
        if (__atomic_compare_exchange_n(
                &purse->left, &left, left - bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED
            ))
            return true;
    return false;
}

static void refund_purse(weir_payer *payer, size_t bytes)
{
    (void)__atomic_fetch_add(&((weir_purse *)payer)->left, bytes, __ATOMIC_RELAXED);
}

void weir_purse_init(weir_purse *purse, size_t bytes)
{
    *purse =
        (weir_purse){ .payer = { .charge = charge_purse, .refund = refund_purse }, .left = bytes };
}

static bool cost_of(size_t *cost, size_t bytes)
{
    return weir_add_size(cost, bytes, sizeof(weir_block) + MALLOC_HEADER) &&
           weir_align_size(cost, *cost, MALLOC_STEP);
}

static void *begin(weir_block *block, weir_payer *payer, size_t cost)
{
    if (block == NULL) {
        if (payer != NULL) payer->refund(payer, cost);
        return NULL;
    }
    *block = (weir_block){ .payer = payer, .tag = cost };
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
    weir_payer *const payer = old->payer;
    const size_t before = old->tag;
    size_t cost;
    if (payer != NULL && payer->heap != NULL) return weir_heap_resize(payer->heap, memory, bytes);
    if (!cost_of(&cost, bytes) || (payer != NULL && !payer->charge(payer, cost))) return NULL;
    void *const grown = begin(realloc(old, sizeof(weir_block) + bytes), payer, cost);
    if (grown != NULL && payer != NULL) payer->refund(payer, before);
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
    weir_payer *const payer = block->payer;
    const size_t charged = block->tag;
    if (payer != NULL && payer->heap != NULL) {
        weir_heap_give(payer->heap, memory);
        return;
    }
    free(block);
    if (payer != NULL) payer->refund(payer, charged);
}

bool weir_hold_take(weir_hold *hold, size_t bytes)
{
    if (current == NULL) return true;
    if (!current->charge(current, bytes)) return false;
    *hold = (weir_hold){ .payer = current, .bytes = bytes };
    return true;
}

void weir_hold_give(weir_hold *hold)
{
    if (hold->payer != NULL) hold->payer->refund(hold->payer, hold->bytes);
    *hold = (weir_hold){ 0 };
}
