/* engine/formats/foreign.h - what a file is that is no model: people give downloads that failed,
 * other formats and folders' parts. */
#pragma once
#include <stddef.h>

#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "a ZIP archive, ..." with what to do about it; NULL when the bytes are not recognised as
 * something else. A file that begins as GGUF or safetensors is never something else. */
const char *weir_foreign_kind(const unsigned char *bytes, size_t n);
/* The container that the first bytes speak of; false when they speak of none. */
bool weir_container_of(weir_container *out, const unsigned char *bytes, size_t n);

#ifdef __cplusplus
}
#endif
