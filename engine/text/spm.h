/* engine/text/spm.h - SentencePiece vocabularies: pieces over characters, with byte fallback.
 *
 * Three models: BPE by scores (sentencepiece; GGUF's `llama`), BPE by ranks of merges (tokenizers;
 * `gemma4`), and unigram. A text of n bytes takes O(n log n) steps and scratch memory for its
 * longest word: it is cut before U+2581 where no piece reaches across. */
#pragma once
#include "engine/text/bpe.h"
#include "engine/text/spm_normalize.h"
#include "engine/text/unigram.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_PIECE_BYTES = 512 }; /* limits the cost of looking for pieces at one position */

typedef enum weir_spm_kind {
    WEIR_SPM_SCORES,
    WEIR_SPM_RANKS,
    WEIR_SPM_UNIGRAM,
} weir_spm_kind;

/* What a decoder drops at the start of a text. */
typedef enum weir_spm_start {
    WEIR_SPM_START_AS_IT_IS,
    WEIR_SPM_START_PIECE, /* a space of the first piece that is no byte (sentencepiece) */
    WEIR_SPM_START_TEXT, /* up to n_start spaces (tokenizers' Strip) */
    WEIR_SPM_START_TOKEN, /* all spaces of the first token (tokenizers' Metaspace) */
} weir_spm_start;

typedef struct weir_spm_decoder {
    weir_spm_start start;
    int n_start;
    bool unescapes; /* U+2581 becomes a space */
    bool joins_bytes; /* pieces <0xNN> become bytes */
    bool is_fused; /* while reading: the pieces are one text */
    bool is_tokenizers; /* one ill-formed byte makes U+FFFD of all bytes of its run */
} weir_spm_decoder;

/* tokenizers' Metaspace: spaces become U+2581, and one stands in front. */
typedef struct weir_metaspace {
    bool is_used, prepends, first_only, splits;
} weir_metaspace;

typedef struct weir_spm {
    weir_spm_kind kind;
    bool is_sentencepiece; /* normalizer and user-defined pieces as there, else steps */
    double *scores; /* [size of the vocabulary] */
    size_t n_scored; /* ids that the file gave scores; the others have 0 */
    uint32_t *ranks; /* of scores, the greatest first; equal scores have one rank */
    int32_t unknown; /* -1: characters without a piece are dropped */
    bool has_bytes; /* byte fallback */
    bool fuses_unknown; /* one id for several unknown characters */
    size_t longest; /* bytes of a piece */
    bool has_unused;
    bool crosses[256]; /* a piece has U+2581 after this byte */
    weir_trie pieces; /* for unigram */
    weir_trie blanks; /* user-defined pieces of white space, which also plain text has */
    weir_unigram unigram;
    weir_normalizer normalizer;
    weir_metaspace metaspace;
    weir_spm_decoder decoder;
} weir_spm;

weir_spm *weir_spm_new(void); /* NULL: no memory */
void weir_spm_free(weir_spm *spm);
/* The byte of a name <0xNN>; -1: it is none. */
int weir_spm_byte_of(const char *name, size_t length);

/* Scratch memory of one encoding. Zero-initialise. */
typedef struct weir_spm_job {
    const weir_spm *spm;
    const weir_vocabulary *vocabulary;
    const weir_pair_map *merges;
    const int32_t *byte_ids;
    weir_ids *out;
    weir_bpe_scratch *bpe;
    weir_unigram_scratch unigram;
    weir_buffer buffers[2], spans, word;
    uint32_t *splits; /* of unused pieces */
    bool after_unknown;
    /* The normal form of a text, spans of it that are plain, and the place of the word. */
    const char *text;
    const weir_span *plain;
    size_t n_plain, next_plain, at;
} weir_spm_job;
void weir_spm_job_free(weir_spm_job *job);

/* sentencepiece: normalises and encodes text [begin, end), where plain spans have no user-defined
 * pieces but white space.
 * errors : ENOMEM, EFULL (the normal form is larger than 2^30 bytes) */
WEIR_MUST_CHECK weir_status weir_spm_encode_text(
    weir_spm_job *job, const char *text, size_t begin, size_t end, const weir_span *plain,
    size_t n_plain
);
/* tokenizers: encodes a piece of normalised text. is_first: it begins the whole text. */
WEIR_MUST_CHECK weir_status
weir_spm_encode_piece(weir_spm_job *job, const char *piece, size_t n, bool is_first);

#ifdef __cplusplus
}
#endif
