/* engine/serve/openapi.h - the description of the API, made of the tables that requests are checked
 * against (field_rows.c) and dispatched by (routes.c). */
#pragma once
#include <stdbool.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes an OpenAPI 3.1 document, of a server with or without API keys. */
WEIR_MUST_CHECK weir_status
weir_openapi_write(weir_buffer *out, const char *version, bool has_keys);

#ifdef __cplusplus
}
#endif
