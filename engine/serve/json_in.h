/* engine/serve/json_in.h - strict parsing of request bodies and typed access to their fields, with
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

/* Parses text [n], which must be an object, within the limits of requests (engine/formats/json.h).
 * The caller owns *out.
 * errors : EINVAL (400); ENOMEM (503) */
WEIR_MUST_CHECK weir_status
weir_json_read(json_t **out, const char *text, size_t n, weir_api_error *error);

/* If the field is absent or null, *out is unchanged. Booleans, strings and fractions are not
 * integers. */
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
/* The string is borrowed. A NUL inside is an error. */
WEIR_MUST_CHECK weir_status
weir_field_text(const json_t *object, const char *key, const char **out, weir_api_error *error);
/* Returns the value; NULL if absent or null. */
const json_t *weir_field(const json_t *object, const char *key);

#ifdef __cplusplus
}
#endif
