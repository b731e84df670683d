/* tools/convert/convert.h - a checkpoint written as a GGUF file, with other types where asked. */
#pragma once
#include "engine/base/error.h"
#include "tools/convert/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much of an importance matrix was used. */
typedef struct weir_importance_use {
    size_t n_quantised, n_found; /* matrices that were quantised; those with an importance */
    size_t n_missing; /* without one, in a type that needs it (weir_needs_importance) */
} weir_importance_use;

typedef struct weir_convert_options {
    const char *model; /* a safetensors checkpoint, or a GGUF file */
    const char *arch_dir; /* more architectures; NULL: none */
    const char *out; /* the GGUF file */
    const char *imatrix; /* NULL: none */
    weir_mix mix;
    bool no_tokenizer; /* a checkpoint's is left out */
    int32_t n_threads; /* 0: all cores */
} weir_convert_options;

typedef struct weir_convert_result {
    size_t n_tensors;
    uint64_t bytes; /* of the file */
    uint64_t source_bytes; /* of the same tensors in the checkpoint */
    int64_t n_elements;
    bool has_tokenizer;
    bool has_charsmap; /* applied as sentencepiece does: otherwise than tokenizers to clusters */
    char differing[80]; /* an added token next to which texts have other ids; "": none */
    weir_importance_use importance;
    size_t n_requantised; /* tensors that had another quantised type: they lose twice */
    size_t n_left_out; /* tensors of the checkpoint that the file has no place for */
    char left_out[160]; /* the first of them */
} weir_convert_result;

/* Writes the file, or leaves nothing: what is there under its name stays until the new one is
 * complete.
 * errors : those of opening the checkpoint; EUNSUPPORTED: what GGUF cannot say; EIO: no space */
WEIR_MUST_CHECK weir_status
weir_convert(weir_convert_result *result, const weir_convert_options *options, weir_error *error);

#ifdef __cplusplus
}
#endif
