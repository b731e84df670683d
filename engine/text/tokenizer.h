/* engine/text/tokenizer.h - byte-level BPE: text to ids and back.
 *
 * Immutable after open, so any thread may use it. Built from tokenizer.json (+
 * tokenizer_config.json) or from GGUF metadata. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_tokenizer weir_tokenizer;

typedef struct weir_ids {
    int32_t *data;
    size_t count, capacity;
} weir_ids;
void weir_ids_free(weir_ids *ids);
WEIR_MUST_CHECK weir_status weir_ids_add(weir_ids *ids, int32_t id);

WEIR_MUST_CHECK weir_status
weir_tokenizer_open_json(weir_tokenizer **out, const char *tokenizer_json_path, weir_error *error);
WEIR_MUST_CHECK weir_status weir_tokenizer_open_gguf(
    weir_tokenizer **out, const weir_tensor_directory *directory, weir_error *error
);
/* GGUF metadata for a GGUF file, tokenizer.json in the folder for safetensors; ENOTFOUND when there
 * is none. */
WEIR_MUST_CHECK weir_status weir_tokenizer_open(
    weir_tokenizer **out, const weir_tensor_directory *directory, weir_error *error
);
void weir_tokenizer_close(weir_tokenizer *tokenizer);

/* Ids 0 .. size-1; padding names are not counted at the end */
size_t weir_tokenizer_size(const weir_tokenizer *tokenizer);
const char *weir_tokenizer_chat_template(const weir_tokenizer *tokenizer); /* Jinja text or NULL */
/* For tests and goldens: -1: none; it is added only if add_bos. */
int32_t weir_tokenizer_bos(const weir_tokenizer *tokenizer);
bool weir_tokenizer_add_bos(const weir_tokenizer *tokenizer);
/* "" when there is none: the template's bos_token */
const char *weir_tokenizer_bos_text(const weir_tokenizer *tokenizer);
const char *weir_tokenizer_eos_text(const weir_tokenizer *tokenizer);
/* The union of all end-of-generation ids known from tokenizer_config, generation_config, config and
 * GGUF (spec/models.md 4.5, 6). */
const int32_t *weir_tokenizer_stop_ids(const weir_tokenizer *tokenizer, size_t *count);
/* Literal token, -1: none */
int32_t weir_tokenizer_find(const weir_tokenizer *tokenizer, const char *token, size_t length);

/* A span [begin, end) of bytes of the text in which added tokens are not matched: text of a user
 * (spec/text goldens, `ids_safe`). */
typedef struct weir_span {
    size_t begin, end;
} weir_span;

typedef struct weir_encode_options {
    bool add_special; /* BOS in front if the model wants one                      */
    bool parse_special; /* match added tokens in the text                           */
    const weir_span *plain; /* ascending, disjoint; NULL: none                          */
    size_t n_plain;
} weir_encode_options;

/* Appends the ids of text [length]; the text may hold NULs. Ill-formed UTF-8: each maximal
 * ill-formed part is read as U+FFFD. */
WEIR_MUST_CHECK weir_status weir_tokenizer_encode(
    const weir_tokenizer *tokenizer, weir_ids *out, const char *text, size_t length,
    const weir_encode_options *options, weir_error *error
);
/* For tests and goldens: byte lengths of the pre-tokenizer's pieces of the normalised text, added tokens ignored (golden
 * `pre`). */
WEIR_MUST_CHECK weir_status weir_tokenizer_pieces(
    const weir_tokenizer *tokenizer, weir_ids *lengths, const char *text, size_t length,
    weir_error *error
);
/* Raw bytes of one token (perhaps not UTF-8), borrowed; empty for ids out of range. *special: a
 * control token. */
const char *weir_tokenizer_token_bytes(
    const weir_tokenizer *tokenizer, int32_t id, size_t *length, bool *special
);
/* The name of a token in the vocabulary is unique; decode = bytes joined, ill-formed UTF-8 replaced
 * by U+FFFD. */
WEIR_MUST_CHECK weir_status weir_tokenizer_decode(
    const weir_tokenizer *tokenizer, weir_buffer *out, const int32_t *ids, size_t n,
    bool skip_special
);

/* Streaming detokenizer: emits every complete code point at once, holds back bytes that may still
 * become one, writes one U+FFFD for each maximal part that never can. A plain struct: copy it to
 * fork a stream. */
typedef struct weir_detokenizer {
    unsigned char held[4];
    int n_held;
} weir_detokenizer;
/* Appends to `out` (valid UTF-8) what can be emitted after these bytes. */
WEIR_MUST_CHECK weir_status
weir_detokenizer_push(weir_detokenizer *stream, weir_buffer *out, const char *bytes, size_t n);
WEIR_MUST_CHECK weir_status weir_detokenizer_finish(weir_detokenizer *stream, weir_buffer *out);

#ifdef __cplusplus
}
#endif
