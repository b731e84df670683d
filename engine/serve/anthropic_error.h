/* engine/serve/anthropic_error.h - errors in the form of Anthropic's API. */
#pragma once
#include <stdbool.h>

#include "engine/serve/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True for the paths of Anthropic's API, of which all errors have its form. */
bool weir_anthropic_has_path(const char *path);
/* Writes {"type":"error","error":{"type","message"},"request_id"}. A prompt that is too long is
 * said in the words that clients look for. request_id: NULL to leave it out. */
WEIR_MUST_CHECK weir_status
weir_anthropic_error_write(weir_buffer *out, const weir_api_error *error, const char *request_id);

#ifdef __cplusplus
}
#endif
