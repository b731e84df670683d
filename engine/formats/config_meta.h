/* engine/formats/config_meta.h - config.json as metadata of a directory. Private to engine/formats
 * and its tests. */
#pragma once
#include <jansson.h>

#include "engine/formats/directory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the values below `root` under dotted keys: those of its text_config first, then the root's
 * own. Nulls are left out. Everything is copied; `name` begins error texts. */
WEIR_MUST_CHECK weir_status weir_config_meta_add(
    weir_tensor_directory *directory, const json_t *root, const char *name, weir_error *error
);

#ifdef __cplusplus
}
#endif
