/* engine/text/bpe.c - merges with a binary heap of ranks over a doubly linked list of symbols. */
#include "engine/text/bpe.h"

#include <stdbool.h>
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

weir_status weir_bpe_reserve(weir_bpe_scratch *scratch, size_t n)
{
    WEIR_DASSERT(n <= PIECE_MAX_BYTES);
    scratch->heap_size = 0;
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

/* Finds the piece that symbol i and the next one make. */
static bool find_piece(weir_bpe_scratch *scratch, const weir_bpe_merges *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    const weir_symbol *const right = &scratch->symbols[symbol->next];
    if (symbol->joined == WEIR_SYMBOL_FROZEN || right->joined == WEIR_SYMBOL_FROZEN) return false;
    const size_t end = right->next == none ? merges->n : right->next;
    if (end - i > merges->longest) return false;
    const int32_t id = weir_vocabulary_find_base(merges->pieces, merges->text + i, end - i);
    if (id < 0) return false;
    symbol->joined = id;
    symbol->rank = merges->ranks[id];
    if (merges->splits != NULL && (merges->pieces->tokens[id].flags & WEIR_TOKEN_UNUSED) != 0)
        merges->splits[id] = symbol->next - i;
    return true;
}

static bool find_pair(weir_bpe_scratch *scratch, const weir_bpe_merges *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    const weir_pair_entry *const merge = weir_pair_find(
        merges->pairs,
        weir_pair_key((uint32_t)symbol->id, (uint32_t)scratch->symbols[symbol->next].id)
    );
    if (merge == NULL) return false;
    symbol->joined = merge->id;
    symbol->rank = merge->number;
    return true;
}

/* Adds the merge of symbol i with the next one to the heap, if there is one. */
static void look(weir_bpe_scratch *scratch, const weir_bpe_merges *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    symbol->rank = none;
    if (symbol->next == none) return;
    if (merges->ranks != NULL ? find_piece(scratch, merges, i)
                              : merges->pairs != NULL && find_pair(scratch, merges, i))
        push(scratch, (uint64_t)symbol->rank << 32 | i);
}

/* Joins symbol i with the next one, which leaves the list. A heap entry is stale if the symbol's
 * rank differs. If it does not, the entry means the present pair: pieces of one rank are merged
 * from left to right, whichever pair was there when the entry was made. */
static void join(weir_bpe_scratch *scratch, const weir_bpe_merges *merges, uint32_t i)
{
    weir_symbol *const symbol = &scratch->symbols[i];
    weir_symbol *const right = &scratch->symbols[symbol->next];
    symbol->id = symbol->joined;
    symbol->next = right->next;
    right->rank = none;
    if (symbol->next != none) scratch->symbols[symbol->next].previous = i;
    if (symbol->previous != none) look(scratch, merges, symbol->previous);
    look(scratch, merges, i);
}

void weir_bpe_merge(weir_bpe_scratch *scratch, const weir_bpe_merges *merges)
{
    for (uint32_t i = 0; i != none; i = scratch->symbols[i].next) look(scratch, merges, i);
    while (scratch->heap_size > 0) {
        const uint64_t entry = pop(scratch);
        const uint32_t i = (uint32_t)entry;
        if (scratch->symbols[i].rank == (uint32_t)(entry >> 32)) join(scratch, merges, i);
    }
}

weir_status weir_bpe_encode(
    weir_bpe_scratch *scratch, weir_ids *out, const weir_pair_map *merges,
    const int32_t byte_ids[256], const char *piece, size_t n
)
{
    if (n == 0) return WEIR_OK;
    if (n == 1) return weir_ids_add(out, byte_ids[(unsigned char)piece[0]]);
    WEIR_TRY(weir_bpe_reserve(scratch, n));
    for (size_t i = 0; i < n; i++)
        scratch->symbols[i] = (weir_symbol){ .id = byte_ids[(unsigned char)piece[i]],
                                             .previous = i == 0 ? none : (uint32_t)(i - 1),
                                             .next = i + 1 == n ? none : (uint32_t)(i + 1) };
    weir_bpe_merge(scratch, &(weir_bpe_merges){ .pairs = merges });
    for (uint32_t i = 0; i != none; i = scratch->symbols[i].next)
        WEIR_TRY(weir_ids_add(out, scratch->symbols[i].id));
    return WEIR_OK;
}
