/* engine/text/tokenizer_gguf.h - reading the keys tokenizer.ggml.*: what byte-level and
 * SentencePiece vocabularies share. */
#pragma once
#include "engine/text/tokenizer_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_GGUF_KEY "tokenizer.ggml."

/* Values of tokenizer.ggml.token_type. */
enum {
    WEIR_GGUF_NORMAL = 1,
    WEIR_GGUF_UNKNOWN,
    WEIR_GGUF_CONTROL,
    WEIR_GGUF_USER_DEFINED,
    WEIR_GGUF_UNUSED,
    WEIR_GGUF_BYTE
};

typedef struct weir_gguf_loader {
    const weir_tensor_directory *directory;
    weir_tokenizer *tokenizer;
    weir_error *error;
} weir_gguf_loader;

/* errors : ENOTFOUND, EFORMAT with the key */
WEIR_MUST_CHECK weir_status
weir_gguf_string(const weir_gguf_loader *loader, const char *key, weir_meta *out);
/* errors : EFORMAT with the key */
WEIR_MUST_CHECK weir_status weir_gguf_array(
    const weir_gguf_loader *loader, const char *key, weir_meta_type type, size_t limit,
    weir_meta *out
);
/* *id stays -1 if the key is absent. */
WEIR_MUST_CHECK weir_status
weir_gguf_id(const weir_gguf_loader *loader, const char *key, int32_t *id);

/* Begins a vocabulary of pieces: `model` is llama, t5 or gemma4. *add_bos: what the model implies
 * if the file does not say.
 * errors : EUNSUPPORTED (another model), those of its keys */
WEIR_MUST_CHECK weir_status
weir_gguf_open_pieces(const weir_gguf_loader *loader, const char *model, bool *add_bos);
WEIR_MUST_CHECK weir_status
weir_gguf_add_piece(const weir_gguf_loader *loader, size_t id, const weir_meta *name, int64_t type);
/* Scores and the unknown piece, after all pieces. */
WEIR_MUST_CHECK weir_status weir_gguf_load_pieces(const weir_gguf_loader *loader);

#ifdef __cplusplus
}
#endif
