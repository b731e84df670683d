/* engine/formats/safetensors.h - reader of one safetensors file. Private to engine/formats and its
 * tests. */
#pragma once
#include <jansson.h>

#include "engine/formats/directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the tensors of one file. `bytes` must outlive the directory, `source` is the index of the
 * file and `name` begins error messages. After an error the directory may be half filled and can
 * only be closed.
 * wanted : NULL, or an object of tensor name to file name: adds only tensors mapped to
 * `wanted_file`. */
typedef struct weir_safetensors_args {
    const unsigned char *bytes;
    size_t n;
    const char *name;
    int32_t source;
    const json_t *wanted;
    const char *wanted_file;
} weir_safetensors_args;
WEIR_MUST_CHECK weir_status weir_safetensors_parse(
    weir_tensor_directory *directory, const weir_safetensors_args *args, weir_error *error
);

#ifdef __cplusplus
}
#endif
