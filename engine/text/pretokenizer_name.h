/* engine/text/pretokenizer_name.h - the name that GGUF has for the pre-tokenizer of a
 * tokenizer.json, for programs that write it. */
#pragma once
#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

/* root: tokenizer.json of byte-level BPE. Returns the value of tokenizer.ggml.pre whose patterns,
 * normalizer and ignore_merges are those of the file; NULL: GGUF has no name for them. */
const char *weir_pretokenizer_name(const json_t *root);

#ifdef __cplusplus
}
#endif
