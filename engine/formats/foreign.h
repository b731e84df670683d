/* engine/formats/foreign.h - says what a file is that is not a model: failed downloads, other
 * formats, parts of folders. */
#pragma once
#include <stddef.h>

#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A description such as "a ZIP archive, ..." with advice; NULL if the bytes are not recognised.
 * Never applies to a file that begins as GGUF or safetensors. */
const char *weir_foreign_kind(const unsigned char *bytes, size_t n);
/* Detects the container from the first bytes. Returns false if they match none. */
bool weir_container_of(weir_container *out, const unsigned char *bytes, size_t n);

#ifdef __cplusplus
}
#endif
