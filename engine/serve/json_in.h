/* engine/serve/json_in.h - strict reading of request bodies, and typed access to their fields with
 * errors that name the field. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/json.h"
#include "engine/serve/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads one object out of text [n], by the limits of requests (engine/formats/json.h). *out is
 * owned by the caller.
 * errors : EINVAL (400); ENOMEM (503) */
WEIR_MUST_CHECK weir_status
weir_json_read(json_t **out, const char *text, size_t n, weir_api_error *error);

/* Absent and null leave *out as it is. Booleans, strings and fractions are no integers. */
WEIR_MUST_CHECK weir_status
weir_field_bool(const json_t *object, const char *key, bool *out, weir_api_error *error);
WEIR_MUST_CHECK weir_status weir_field_integer(
    const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out,
    weir_api_error *error
);
WEIR_MUST_CHECK weir_status weir_field_number(
    const json_t *object, const char *key, double least, double most, double *out,
    weir_api_error *error
);
/* Borrowed; NUL inside is refused. */
WEIR_MUST_CHECK weir_status
weir_field_text(const json_t *object, const char *key, const char **out, weir_api_error *error);
/* The value, or NULL when absent or null. */
const json_t *weir_field(const json_t *object, const char *key);

#ifdef __cplusplus
}
#endif
