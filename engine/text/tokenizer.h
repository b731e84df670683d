/* engine/text/tokenizer.h - text to ids and back: byte-level BPE, and SentencePiece vocabularies
 * (BPE or unigram over characters, with byte fallback).
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
/* Reads the metadata of a GGUF file, or for safetensors tokenizer.json in the folder. ENOTFOUND if
 * there is none. */
WEIR_MUST_CHECK weir_status weir_tokenizer_open(
    weir_tokenizer **out, const weir_tensor_directory *directory, weir_error *error
);
void weir_tokenizer_close(weir_tokenizer *tokenizer);

/* Ids are 0 .. size-1; padding at the end is not counted. */
size_t weir_tokenizer_size(const weir_tokenizer *tokenizer);
const char *weir_tokenizer_chat_template(const weir_tokenizer *tokenizer); /* Jinja text or NULL */
/* The template's bos_token; "" if there is none. */
const char *weir_tokenizer_bos_text(const weir_tokenizer *tokenizer);
const char *weir_tokenizer_eos_text(const weir_tokenizer *tokenizer);
/* All end-of-generation ids from tokenizer_config, generation_config, config and GGUF. */
const int32_t *weir_tokenizer_stop_ids(const weir_tokenizer *tokenizer, size_t *count);
/* The id of a literal token; -1: none. */
int32_t weir_tokenizer_find(const weir_tokenizer *tokenizer, const char *token, size_t length);

bool weir_tokenizer_has_charsmap(const weir_tokenizer *tokenizer); /* in its normalizer */
/* Appends it in the form of precompiled_charsmap; nothing if there is none. */
WEIR_MUST_CHECK weir_status
weir_tokenizer_charsmap(const weir_tokenizer *tokenizer, weir_buffer *out);

/* Bytes [begin, end) of the text in which added tokens are not matched: user text. */
typedef struct weir_span {
    size_t begin, end;
} weir_span;

typedef struct weir_encode_options {
    bool add_special; /* prepend BOS if the model uses one */
    bool add_end; /* append what ends a text that gets an embedding, if the model uses one */
    bool parse_special; /* match added tokens in the text                           */
    const weir_span *plain; /* ascending, disjoint; NULL: none                          */
    size_t n_plain;
} weir_encode_options;

/* Appends the ids of text [length], which may contain NUL. Each maximal ill-formed part of UTF-8 is
 * read as U+FFFD. */
WEIR_MUST_CHECK weir_status weir_tokenizer_encode(
    const weir_tokenizer *tokenizer, weir_ids *out, const char *text, size_t length,
    const weir_encode_options *options, weir_error *error
);
/* The bytes of a token, borrowed; they may not be UTF-8. Empty if the id is out of range. *special:
 * it is a control token. */
const char *weir_tokenizer_token_bytes(
    const weir_tokenizer *tokenizer, int32_t id, size_t *length, bool *special
);
/* Appends the joined bytes of the tokens, with ill-formed UTF-8 replaced by U+FFFD. */
WEIR_MUST_CHECK weir_status weir_tokenizer_decode(
    const weir_tokenizer *tokenizer, weir_buffer *out, const int32_t *ids, size_t n,
    bool skip_special
);

/* Streaming detokenizer: emits every complete code point at once, holds bytes that may still become
 * one, and writes one U+FFFD for each maximal part that cannot (byte pieces: for each byte). A
 * plain struct: copy it to fork a stream. */
typedef struct weir_detokenizer {
    unsigned char held[4];
    int n_held;
    /* The tokens begin a text: a decoder that drops a space there drops it. Not for tokens that
     * continue a prompt, whose space belongs to the whole text. */
    bool at_start;
    bool per_byte; /* each ill-formed byte becomes U+FFFD */
    int n_dropped; /* spaces at the start */
} weir_detokenizer;
/* Adds bytes and appends the text that is complete, as valid UTF-8. */
WEIR_MUST_CHECK weir_status
weir_detokenizer_push(weir_detokenizer *stream, weir_buffer *out, const char *bytes, size_t n);
/* Adds a token. Unlike its bytes, a token says where a run of byte pieces ends, and what is dropped
 * at the start of a text. */
WEIR_MUST_CHECK weir_status weir_detokenizer_token(
    weir_detokenizer *stream, const weir_tokenizer *tokenizer, weir_buffer *out, int32_t id,
    bool skip_special
);
WEIR_MUST_CHECK weir_status weir_detokenizer_finish(weir_detokenizer *stream, weir_buffer *out);

#ifdef __cplusplus
}
#endif
