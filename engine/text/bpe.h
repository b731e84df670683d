/* engine/text/bpe.h - byte-pair encoding of one piece of text (Sennrich et al. 2016): repeatedly
 * joins the neighbours whose merge has the lowest rank, the leftmost on ties.
 *
 * A heap over a linked list takes O(n log n) in the length of the piece, so a megabyte without a
 * space is no attack. */
#pragma once
#include "engine/text/pair_map.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_symbol {
    int32_t id, joined; /* its token; the token it makes with the next symbol */
    uint32_t rank, previous, next; /* rank of that merge and neighbours; UINT32_MAX: none */
} weir_symbol;

/* `joined` of a symbol that never merges. */
enum { WEIR_SYMBOL_FROZEN = -2 };

/* Where merges come from. Either `pairs`: (left, right) to rank and joined id. Or `pieces`
 * (SentencePiece): two symbols merge if their joined text is a piece, whose rank is ranks[id]; the
 * index of a symbol is then the offset of its first byte in text [n]. */
typedef struct weir_bpe_merges {
    const weir_pair_map *pairs;
    const weir_vocabulary *pieces;
    const uint32_t *ranks;
    size_t longest; /* bytes of a piece */
    const char *text;
    size_t n;
    /* [size of the vocabulary] bytes of the left part when an unused piece was last found; NULL:
     * there are no unused pieces. */
    uint32_t *splits;
} weir_bpe_merges;

/* Scratch memory of one thread, reused for each piece. Zero-initialise. */
typedef struct weir_bpe_scratch {
    weir_symbol *symbols;
    /* Rank in the high half, position in the low half. Stale entries are dropped when popped. */
    uint64_t *heap;
    size_t symbols_capacity, heap_capacity, heap_size;
    uint64_t steps; /* heap entries popped so far, a measure of work for tests */
} weir_bpe_scratch;

void weir_bpe_scratch_free(weir_bpe_scratch *scratch);

/* Reserves symbols [n <= 2^30] and empties the heap.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_bpe_reserve(weir_bpe_scratch *scratch, size_t n);
/* Merges the list of n symbols, linked by `previous` and `next`, that begins at symbol 0. */
void weir_bpe_merge(weir_bpe_scratch *scratch, const weir_bpe_merges *merges);

/* Appends the ids of `piece` [n <= 2^30]. byte_ids: the token of each byte. merges: (left, right)
 * to rank and joined id.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_bpe_encode(
    weir_bpe_scratch *scratch, weir_ids *out, const weir_pair_map *merges,
    const int32_t byte_ids[256], const char *piece, size_t n
);

#ifdef __cplusplus
}
#endif
