/* engine/text/unigram.h - the unigram language model of SentencePiece (Kudo 2018): of all ways to
 * write a text as pieces, the one with the largest sum of scores (Viterbi).
 *
 * O(n) nodes of 16 bytes, O(n * longest piece) steps. Sums are rounded as the original rounds them,
 * because in long texts that decides between pieces. */
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_unigram {
    const weir_vocabulary *vocabulary;
    const weir_trie *trie;
    const double *scores; /* by id */
    double unknown_score; /* of a character without a piece */
    size_t longest; /* bytes of a piece */
    bool is_single; /* sums are float32 as in sentencepiece, else float64 as in tokenizers */
} weir_unigram;

/* The best way to write the text up to a position: its last piece. */
typedef struct weir_unigram_node {
    double sum;
    uint32_t start; /* of the piece; UINT32_MAX: no way yet */
    int32_t id; /* -1: a character without a piece */
} weir_unigram_node;

/* Scratch memory of one thread. Zero-initialise. */
typedef struct weir_unigram_scratch {
    weir_unigram_node *nodes;
    size_t capacity;
    double sum; /* of what was encoded before: words of one text go on with it */
} weir_unigram_scratch;

void weir_unigram_scratch_free(weir_unigram_scratch *scratch);

/* True if the user-defined piece [begin, end) may be used. */
typedef bool weir_unigram_allows(void *context, size_t begin, size_t end, int32_t id);
typedef weir_status weir_unigram_sink(void *context, size_t begin, size_t end, int32_t id);

/* Calls sink for the pieces of `text` [n <= 2^30], in order; id -1: a character without one.
 * errors : ENOMEM, those of the sink */
WEIR_MUST_CHECK weir_status weir_unigram_encode(
    weir_unigram_scratch *scratch, const weir_unigram *model, const char *text, size_t n,
    weir_unigram_allows *allows, weir_unigram_sink *sink, void *context
);

#ifdef __cplusplus
}
#endif
