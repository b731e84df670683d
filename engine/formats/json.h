/* engine/formats/json.h - JSON text from outside into jansson values, and back: with the limits of
 * files, of requests and of texts inside of texts.
 *
 * Refused: what is past the limits, duplicate keys, invalid UTF-8, lone surrogates, raw control
 * characters, NUL in a key, numbers that do not fit, anything after the value. A string may hold
 * \u0000: read it with json_string_length. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_JSON_DEPTH = 64, WEIR_JSON_VALUES = 1 << 20, WEIR_JSON_KEYS = 1 << 16 };

/* Nested arrays and objects; values and keys of the whole text. */
typedef struct weir_json_limits {
    size_t depth, values, keys;
} weir_json_limits;
extern const weir_json_limits weir_json_file; /* the largest tokenizer files hold 1.2M values */
extern const weir_json_limits weir_json_request; /* what a client sends, and texts inside of it */

/* From now on jansson takes memory from weir_memory_*, so that the running thread's payer pays for
 * every value. For programs, before their first use of jansson; a library leaves its host's alone.
 * What jansson returns for free() (json_dumps) is not to be used then: weir_json_text is. */
void weir_json_use_memory(void);
/* Whether jansson was refused memory on this thread since it was asked last. */
bool weir_json_ran_out(void);

/* Why a text is refused. */
typedef enum weir_json_fault {
    WEIR_JSON_FINE,
    WEIR_JSON_SYNTAX,
    WEIR_JSON_TOO_DEEP,
    WEIR_JSON_TOO_MANY_VALUES,
    WEIR_JSON_TOO_MANY_KEYS,
    WEIR_JSON_LARGE_INTEGER, /* does not fit 64 bits */
    WEIR_JSON_LARGE_NUMBER, /* does not fit a double */
    WEIR_JSON_NO_MEMORY,
} weir_json_fault;
typedef struct weir_json_place {
    const char *reason; /* of WEIR_JSON_SYNTAX */
    size_t offset, line, column; /* offset from 0, the others from 1 */
    char key[48]; /* the top-level key whose value it is in, printable; "": none */
} weir_json_place;
/* Any JSON value, also a scalar. `place` (may be NULL) is filled on a fault.
 * owner  : the caller gives *out back with json_decref */
weir_json_fault weir_json_build(
    json_t **out, weir_json_place *place, const char *text, size_t n, const weir_json_limits *limits
);

/* The same. `name` begins the error text: "name:line:column: reason".
 * errors : EFORMAT; ENOMEM */
WEIR_MUST_CHECK weir_status weir_json_parse_within(
    json_t **out, const char *text, size_t n, const char *name, const weir_json_limits *limits,
    weir_error *error
);
/* By the limits of files, at most `max_depth` levels deep. */
WEIR_MUST_CHECK weir_status weir_json_parse(
    json_t **out, const char *text, size_t n, const char *name, size_t max_depth, weir_error *error
);
/* A whole file of at most `limit` bytes, by the limits of files.
 * errors : ENOTFOUND, EIO, EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_json_read_file(json_t **out, const char *path, size_t limit, weir_error *error);
/* The same of what a user names on a command line (weir_file_read_input). */
WEIR_MUST_CHECK weir_status
weir_json_read_input(json_t **out, const char *path, size_t limit, weir_error *error);

/* Appends `value` as text; flags: JSON_COMPACT and others of json_dumps.
 * errors : ENOMEM; EINVAL: jansson cannot write it */
WEIR_MUST_CHECK weir_status weir_json_write(weir_buffer *out, const json_t *value, size_t flags);
/* json_dumps, given back with weir_memory_give. NULL: value is NULL, or one of these errors. */
char *weir_json_text(const json_t *value, size_t flags);

#ifdef __cplusplus
}
#endif
