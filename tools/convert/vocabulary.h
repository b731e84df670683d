/* tools/convert/vocabulary.h - the tokens of a tokenizer.json on their way to GGUF: shared by the
 * files that write them. */
#pragma once
#include <jansson.h>

#include "engine/base/buffer.h"
#include "tools/convert/tokenizer_keys.h"

#define KEY "tokenizer.ggml."
#define SPACE_SYMBOL "\xE2\x96\x81" /* U+2581 */

/* Values of tokenizer.ggml.token_type. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct token {
    const char *name; /* borrowed from the JSON; NULL: no token has the id */
    size_t length;
    int32_t type;
    float score;
} token;

typedef struct vocabulary {
    weir_gguf_writer *writer;
    const weir_tokenizer *tokenizer;
    const json_t *root, *config; /* tokenizer.json; tokenizer_config.json or NULL */
    token *tokens; /* [n] */
    int64_t n;
    bool is_pieces; /* SentencePiece with byte fallback, or unigram */
    int64_t unknown; /* the unknown piece of a unigram model; -1: another, or none */
    bool has_scattered_merges; /* merges of one piece are not together in the list */
    weir_error *error;
} vocabulary;

/* Sets the token of an id that the file has.
 * errors : EMISMATCH: past the embedding */
WEIR_MUST_CHECK weir_status
weir_set_token(const vocabulary *v, int64_t id, const char *name, size_t length, int32_t type);
bool weir_is_byte_name(const char *name, size_t length); /* <0x00> to <0xFF> */
void weir_put_tokens(const vocabulary *v);
void weir_put_scores(const vocabulary *v);
/* Appends a merge as "left right" to the cleared buffer. */
WEIR_MUST_CHECK weir_status
weir_merge_text(const vocabulary *v, weir_buffer *out, const json_t *merge);
WEIR_MUST_CHECK weir_status weir_put_merges(const vocabulary *v);
/* True if a normalizer or pre-tokenizer puts a space in front of a text. */
bool weir_adds_prefix(const json_t *root);
/* Refuses a tokenizer.json with a normalizer that is not among `known` (ended by NULL). Replace is
 * that of spaces by U+2581, Squeeze that of several spaces by one, Prepend that of U+2581.
 * errors : EUNSUPPORTED with its name */
WEIR_MUST_CHECK weir_status
weir_check_normalizer(const vocabulary *v, const json_t *component, const char *const *known);
/* tokenizer_pieces.c: the model and what belongs to it, of SentencePiece. */
WEIR_MUST_CHECK weir_status weir_put_pieces(vocabulary *v);
/* tokenizer_unigram.c: the tokens of the model, before those that are added; then the model. */
WEIR_MUST_CHECK weir_status weir_set_unigram(vocabulary *v);
WEIR_MUST_CHECK weir_status weir_put_unigram(const vocabulary *v);
