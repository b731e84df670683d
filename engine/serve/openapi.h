/* engine/serve/openapi.h - the description of the API, made of the tables that requests are checked
 * against (field_rows.c) and dispatched by (routes.c). */
#pragma once
#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes an OpenAPI 3.1 document. */
WEIR_MUST_CHECK weir_status weir_openapi_write(weir_buffer *out, const char *version);

#ifdef __cplusplus
}
#endif
