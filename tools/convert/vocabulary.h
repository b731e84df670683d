/* tools/convert/vocabulary.h - the tokens of a tokenizer.json on their way to GGUF: shared by the
 * files that write them. */
#pragma once
#include <jansson.h>

#include "engine/base/buffer.h"
#include "tools/convert/tokenizer_keys.h"

#define KEY "tokenizer.ggml."

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
    bool is_pieces; /* SentencePiece with byte fallback */
    bool has_scattered_merges; /* merges of one piece are not together in the list */
    weir_error *error;
} vocabulary;

void weir_put_tokens(const vocabulary *v);
/* Appends a merge as "left right" to the cleared buffer. */
WEIR_MUST_CHECK weir_status
weir_merge_text(const vocabulary *v, weir_buffer *out, const json_t *merge);
WEIR_MUST_CHECK weir_status weir_put_merges(const vocabulary *v);
/* Refuses a tokenizer.json with a normalizer that is not among `known` (ended by NULL).
 * errors : EUNSUPPORTED with its name */
WEIR_MUST_CHECK weir_status
weir_check_normalizer(const vocabulary *v, const json_t *component, const char *const *known);
/* tokenizer_pieces.c: the model and what belongs to it, of SentencePiece. */
WEIR_MUST_CHECK weir_status weir_put_pieces(vocabulary *v);
