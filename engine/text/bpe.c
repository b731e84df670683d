/* engine/text/bpe.c - merges with a binary heap of ranks over a doubly linked list of symbols. */
#include "engine/text/bpe.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "engine/base/error.h"
#include "engine/base/memory.h"

enum { PIECE_MAX_BYTES = 1 << 30 };
static const uint32_t none = UINT32_MAX;

void weir_bpe_scratch_free(weir_bpe_scratch *scratch)
{
    weir_memory_give(scratch->symbols);
    weir_memory_give(scratch->heap);
    *scratch = (weir_bpe_scratch){ 0 };
}

static weir_status reserve(weir_bpe_scratch *scratch, size_t n)
{
    if (n > scratch->symbols_capacity) {
        const size_t capacity = n + n / 2 + 64; /* n <= 2^30 */
        weir_symbol *const symbols =
            weir_memory_resize(scratch->symbols, capacity * sizeof *symbols);
        if (symbols == NULL) return WEIR_ENOMEM;
        scratch->symbols = symbols;
        scratch->symbols_capacity = capacity;
    }
    /* Each of the n - 1 pairs is added once, and each of at most n - 1 merges adds two new
     * pairs. */
    if (3 * n > scratch->heap_capacity) {
        const size_t capacity = 3 * (n + n / 2 + 64);
        uint64_t *const heap = weir_memory_resize(scratch->heap, capacity * sizeof *heap);
        if (heap == NULL) return WEIR_ENOMEM;
        scratch->heap = heap;
        scratch->heap_capacity = capacity;
    }
    return WEIR_OK;
}

static void push(weir_bpe_scratch *scratch, uint64_t entry)
{
    uint64_t *const heap = scratch->heap;
    size_t i = scratch->heap_size++;
    for (; i > 0 && heap[(i - 1) / 2] > entry; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static uint64_t pop(weir_bpe_scratch *scratch)
{
    uint64_t *const heap = scratch->heap;
    const uint64_t top = heap[0], last = heap[--scratch->heap_size];
    const size_t n = scratch->heap_size;
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    scratch->steps++;
    return top;
}

/* Adds the merge of symbol i with the next one to the heap, if there is one. */
static void look(weir_bpe_scratch *scratch, const weir_pair_map *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    const weir_pair_slot *const merge =
        symbol->next == none
            ? NULL
            : weir_pair_find(
                  merges,
                  weir_pair_key((uint32_t)symbol->id, (uint32_t)scratch->symbols[symbol->next].id)
              );
    symbol->rank = merge == NULL ? none : merge->number;
    if (merge == NULL) return;
    symbol->joined = merge->id;
    push(scratch, (uint64_t)merge->number << 32 | i);
}

/* Joins symbol i with the next one, which leaves the list. A rank belongs to one pair, so a heap
 * entry is stale if its rank differs. */
static void join(weir_bpe_scratch *scratch, const weir_pair_map *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    weir_symbol *const right = &scratch->symbols[symbol->next];
    symbol->id = symbol->joined;
    symbol->next = right->next;
    right->rank = none;
    if (symbol->next != none) scratch->symbols[symbol->next].previous = i;
    look(scratch, merges, i);
    if (symbol->previous != none) look(scratch, merges, symbol->previous);
}

weir_status weir_bpe_encode(
    weir_bpe_scratch *scratch, weir_ids *out, const weir_pair_map *merges,
    const int32_t byte_ids[256], const char *piece, size_t n
)
{
    WEIR_DASSERT(n <= PIECE_MAX_BYTES);
    if (n == 1) return weir_ids_add(out, byte_ids[(unsigned char)piece[0]]);
    WEIR_TRY(reserve(scratch, n));
    scratch->heap_size = 0;
    for (size_t i = 0; i < n; i++)
        scratch->symbols[i] = (weir_symbol){ .id = byte_ids[(unsigned char)piece[i]],
                                             .previous = i == 0 ? none : (uint32_t)(i - 1),
                                             .next = i + 1 == n ? none : (uint32_t)(i + 1) };
    for (size_t i = 0; i < n; i++) look(scratch, merges, (uint32_t)i);
    while (scratch->heap_size > 0) {
        const uint64_t entry = pop(scratch);
        const uint32_t i = (uint32_t)entry;
        if (scratch->symbols[i].rank == (uint32_t)(entry >> 32)) join(scratch, merges, i);
    }
    for (uint32_t i = 0; n > 0 && i != none; i = scratch->symbols[i].next)
        WEIR_TRY(weir_ids_add(out, scratch->symbols[i].id));
    return WEIR_OK;
}
