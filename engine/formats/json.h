/* engine/formats/json.h - parses untrusted JSON into jansson values and writes values as text, with
 * limits for files, for requests and for JSON inside strings.
 *
 * Refused: input past the limits, duplicate keys, invalid UTF-8, lone surrogates, raw control
 * characters, NUL in a key, numbers out of range, anything after the value. A string may contain
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

/* Depth of arrays and objects; values and keys in the whole document. */
typedef struct weir_json_limits {
    size_t depth, values, keys;
    /* Infinity and -Infinity, which Python writes, are read as DBL_MAX and -DBL_MAX: jansson has no
     * infinities. Otherwise they are refused. */
    bool reads_infinity;
} weir_json_limits;
extern const weir_json_limits weir_json_file; /* the largest tokenizer files hold 1.2M values */
extern const weir_json_limits weir_json_config; /* config.json: reads_infinity */
extern const weir_json_limits weir_json_request; /* requests, and JSON inside strings */

/* Makes jansson allocate with weir_memory_*, so that the running thread's tracker is charged for
 * every value. Call it in a program before its first use of jansson; a library must not change its
 * host's allocator. Afterwards use weir_json_text instead of json_dumps, whose result could not be
 * passed to free(). */
void weir_json_use_memory(void);
/* True if jansson was refused memory on this thread since the last call. */
bool weir_json_ran_out(void);

/* Why a document is refused. */
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
    const char *reason; /* for WEIR_JSON_SYNTAX */
    size_t offset, line, column; /* offset from 0, line and column from 1 */
    char key[48]; /* the top-level key being read, printable; "": none */
} weir_json_place;
/* Parses any JSON value, scalars included. On a fault fills `place` (may be NULL).
 * owner  : the caller releases *out with json_decref */
weir_json_fault weir_json_build(
    json_t **out, weir_json_place *place, const char *text, size_t n, const weir_json_limits *limits
);

/* Like weir_json_build, with a message "name:line:column: reason".
 * errors : EFORMAT; ENOMEM */
WEIR_MUST_CHECK weir_status weir_json_parse_within(
    json_t **out, const char *text, size_t n, const char *name, const weir_json_limits *limits,
    weir_error *error
);
/* Parses within the limits of files, at most `max_depth` levels deep. */
WEIR_MUST_CHECK weir_status weir_json_parse(
    json_t **out, const char *text, size_t n, const char *name, size_t max_depth, weir_error *error
);
/* Parses a file of at most `limit` bytes, within the limits of files.
 * errors : ENOTFOUND, EIO, EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_json_read_file(json_t **out, const char *path, size_t limit, weir_error *error);
/* Like weir_json_read_file, within weir_json_config. */
WEIR_MUST_CHECK weir_status
weir_json_read_config(json_t **out, const char *path, size_t limit, weir_error *error);
/* Like weir_json_read_file, for a path given on a command line (weir_file_read_input). */
WEIR_MUST_CHECK weir_status
weir_json_read_input(json_t **out, const char *path, size_t limit, weir_error *error);

/* Appends `value` as text; flags: JSON_COMPACT and others of json_dumps.
 * errors : ENOMEM; EINVAL: jansson cannot write it */
WEIR_MUST_CHECK weir_status weir_json_write(weir_buffer *out, const json_t *value, size_t flags);
/* Returns `value` as text, to be freed with weir_memory_give; NULL if value is NULL or on
 * failure. */
char *weir_json_text(const json_t *value, size_t flags);

#ifdef __cplusplus
}
#endif
