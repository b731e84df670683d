/* engine/serve/off_fields.h - fields of other servers that this one lacks: values with which they
 * have no effect are accepted, others are errors with their name. */
#pragma once
#include <jansson.h>

#include "engine/sample/sampler.h"
#include "engine/serve/errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number from `least` to `most` has no effect. */
typedef struct weir_off_field {
    const char *key;
    double least, most;
} weir_off_field;

/* Checks `object`; absent and null fields are off.
 * errors : 400, "unsupported_parameter" for a value that would have an effect */
WEIR_MUST_CHECK weir_status weir_off_fields_check(
    const json_t *object, const weir_off_field *fields, size_t n_fields, weir_api_error *error
);
/* repeat_last_n: penalties here are over the whole text, so only -1 fits them. */
WEIR_MUST_CHECK weir_status
weir_last_n_check(const json_t *object, const weir_sampling *sampling, weir_api_error *error);

#ifdef __cplusplus
}
#endif
