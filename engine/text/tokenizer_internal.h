/* engine/text/tokenizer_internal.h - the tokenizer's struct and the building steps that both file
 * formats share. */
#pragma once
#include "engine/text/bpe.h"
#include "engine/text/pair_map.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/spm.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_MERGES = 1 << 22,
    WEIR_STOP_IDS = 64,
    WEIR_TEXT_BYTES = 1 << 28, /* of one text: positions fit 32 bits after normalisation */
};

struct weir_tokenizer {
    weir_vocabulary vocabulary;
    weir_trie normalized; /* added tokens that are found in normalised text, as they are there */
    weir_normalizer normalizer; /* of byte-level BPE; pieces have theirs in spm */
    weir_pair_map merges; /* (left, right) to rank and joined id */
    weir_pretokenizer pretokenizer;
    weir_spm *spm; /* NULL: byte-level BPE */
    /* -1 for bytes that never occur in UTF-8 and are not in the vocabulary; of a SentencePiece
     * vocabulary its byte pieces. */
    int32_t byte_ids[256];
    size_t size; /* without padding at the end */
    bool ignore_merges, add_bos;
    int32_t bos, eos;
    int32_t end; /* after a text that gets an embedding; -1: nothing */
    int32_t stop[WEIR_STOP_IDS];
    size_t n_stop;
    char *chat_template;
    weir_buffer scratch; /* used while building */
};

weir_tokenizer *weir_tokenizer_new(void); /* NULL: no memory */
static inline const weir_normalizer *weir_tokenizer_normalizer(const weir_tokenizer *tokenizer)
{
    return tokenizer->spm != NULL ? &tokenizer->spm->normalizer : &tokenizer->normalizer;
}
/* Adds the next merge in rank. Both names and the joined one must be base tokens. Merges into
 * special tokens are dropped, because text never makes those. */
WEIR_MUST_CHECK weir_status weir_tokenizer_add_merge(
    weir_tokenizer *tokenizer, uint32_t rank, const char *left, size_t left_length,
    const char *right, size_t right_length, weir_error *error
);
/* Adds "left right", separated by the first space after the first byte. */
WEIR_MUST_CHECK weir_status weir_tokenizer_add_merge_text(
    weir_tokenizer *tokenizer, uint32_t rank, const char *text, size_t length, weir_error *error
);
/* Adds an end-of-generation id. Ignores ids without a token. */
void weir_tokenizer_add_stop(weir_tokenizer *tokenizer, int64_t id);
WEIR_MUST_CHECK weir_status weir_tokenizer_set_template(
    weir_tokenizer *tokenizer, const char *text, size_t length, weir_error *error
);
/* Makes this a SentencePiece vocabulary, before it has tokens. */
WEIR_MUST_CHECK weir_status
weir_tokenizer_make_spm(weir_tokenizer *tokenizer, weir_spm_kind kind, weir_error *error);
/* Makes the table of added tokens in normalised text, once their names are no more needed. */
WEIR_MUST_CHECK weir_status
weir_tokenizer_normalize_added(weir_tokenizer *tokenizer, weir_error *error);
/* Its last step: checks byte pieces, sets ranks, tables and the bytes of tokens. */
WEIR_MUST_CHECK weir_status weir_spm_finish(weir_tokenizer *tokenizer, weir_error *error);
/* The last step: sets byte tokens, size and well-known stop ids. */
WEIR_MUST_CHECK weir_status weir_tokenizer_finish(weir_tokenizer *tokenizer, weir_error *error);
/* True for "[PAD123]": a row that pads the matrix. */
bool weir_tokenizer_is_padding(const char *name, size_t length);

#ifdef __cplusplus
}
#endif
