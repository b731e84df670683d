/* engine/formats/json.h - JSON text from outside into jansson values: one set of limits for files, requests and headers.
 *
 * Refused: a depth past max_depth, more than 4 Mi values, duplicate keys, invalid UTF-8, lone surrogates, raw control characters, NUL in a
 * key, numbers that do not fit, anything after the value. A string may hold \u0000: read it with json_string_length. */
#pragma once
#include <jansson.h>
#include <stddef.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_JSON_DEPTH = 64 };

/* At least the memory that jansson takes for this text, while it reads and after. Counted by commas, colons and brackets; texts of chat
 * come out at some 3 times their length, lists of small lists at 100 times. */
size_t weir_json_tree_bytes(const char *bytes, size_t n);

/* Any JSON value, also a scalar. `name` begins the error text: "name:line:column: reason". max_depth: nested arrays and objects.
 * owner  : the caller gives *out back with json_decref
 * errors : EFORMAT; ENOMEM */
WEIR_MUST_CHECK weir_status weir_json_parse(json_t **out, const char *bytes, size_t n, const char *name, size_t max_depth,
                                            weir_error *error);
/* A whole file of at most `limit` bytes and WEIR_JSON_DEPTH levels.
 * errors : ENOTFOUND, EIO, EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status weir_json_read_file(json_t **out, const char *path, size_t limit, weir_error *error);

/* The same of what a user names on a command line (weir_file_read_input). */
WEIR_MUST_CHECK weir_status weir_json_read_input(json_t **out, const char *path, size_t limit, weir_error *error);

#ifdef __cplusplus
}
#endif
