/* engine/formats/config_meta.h - config.json as metadata of a directory. Private to engine/formats
 * and its tests. */
#pragma once
#include <jansson.h>

#include "engine/formats/directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the values of `root` under dotted keys: first those of its text_config, then the root's own.
 * Nulls are skipped. Everything is copied. `name` begins the error message. */
WEIR_MUST_CHECK weir_status weir_config_meta_add(
    weir_tensor_directory *directory, const json_t *root, const char *name, weir_error *error
);

#ifdef __cplusplus
}
#endif
