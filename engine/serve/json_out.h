/* engine/serve/json_out.h - writes JSON into a buffer. The writer places the commas; strings become
 * valid UTF-8. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first failure (out of memory) is kept in `status` and later calls do nothing, so a whole
 * object is written and checked once. */
typedef struct weir_json_out {
    weir_buffer *buffer;
    weir_status status;
    bool comma; /* the next value needs a comma */
} weir_json_out;

void weir_json_open(weir_json_out *out, char bracket); /* '{' or '[' */
void weir_json_close(weir_json_out *out, char bracket); /* '}' or ']' */
void weir_json_key(weir_json_out *out, const char *key);
void weir_json_string(weir_json_out *out, const char *text);
/* Writes a string: ill-formed UTF-8 becomes U+FFFD, control characters are escaped. */
void weir_json_bytes(weir_json_out *out, const char *bytes, size_t n);
void weir_json_integer(weir_json_out *out, int64_t value);
/* Writes a number; -9999 if it is not finite, because JSON has no infinity. */
void weir_json_number(weir_json_out *out, double value);
void weir_json_bool(weir_json_out *out, bool value);
void weir_json_null(weir_json_out *out);
void weir_json_raw(weir_json_out *out, const char *json, size_t n); /* appends one JSON value */

/* Members of the open object. */
void weir_json_put_string(weir_json_out *out, const char *key, const char *text);
void weir_json_put_integer(weir_json_out *out, const char *key, int64_t value);
void weir_json_put_number(weir_json_out *out, const char *key, double value);
void weir_json_put_bool(weir_json_out *out, const char *key, bool value);

#ifdef __cplusplus
}
#endif
