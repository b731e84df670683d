/* engine/serve/request_fields.h - the fields that request bodies may have: which are read, which
 * are taken without effect, which ask for what this server cannot do, and which are unknown. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/serve/errors.h"
#include "engine/serve/json_out.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bodies, as bits: a field may belong to several. */
typedef enum weir_body {
    WEIR_BODY_CHAT = 1,
    WEIR_BODY_COMPLETION = 2,
    WEIR_BODY_TOKENIZE = 4,
    WEIR_BODY_DETOKENIZE = 8,
    WEIR_BODY_SESSION_SAVE = 16,
    WEIR_BODY_SESSION_RESTORE = 32,
    WEIR_BODY_STATE = 64,
    WEIR_BODY_STATE_QUERY = 128,
    WEIR_BODY_STATE_MERGE = 256,
} weir_body;

typedef enum weir_field_use {
    WEIR_FIELD_READ,
    WEIR_FIELD_IGNORED, /* its type is checked; it has no effect here, by design */
    WEIR_FIELD_UNSUPPORTED, /* 400, unless it is null or false */
} weir_field_use;

/* WEIR_FIELD_ANY: checked by the reader of the field. */
typedef enum weir_field_type {
    WEIR_FIELD_ANY,
    WEIR_FIELD_STRING,
    WEIR_FIELD_OBJECT,
    WEIR_FIELD_BOOL
} weir_field_type;

typedef struct weir_field_row {
    const char *key;
    unsigned bodies;
    weir_field_use use;
    weir_field_type type;
} weir_field_row;

/* The whole table. docs/api.md names every key of it, which a test compares. */
const weir_field_row *weir_field_rows(size_t *count);

enum { WEIR_UNKNOWN_NAMED = 8, WEIR_WARNING_BYTES = 256 };

typedef struct weir_unknown_fields {
    size_t count;
    weir_quoted name[WEIR_UNKNOWN_NAMED]; /* the first of them; printable ASCII */
    const char *nearest[WEIR_UNKNOWN_NAMED]; /* a key that was perhaps meant, or NULL */
} weir_unknown_fields;

/* Refuses unsupported fields, ignored ones of a wrong type, and unknown ones that begin with kv_ or
 * are nearest to one that does; other unknown ones are added to *unknown. */
WEIR_MUST_CHECK weir_status weir_fields_check(
    const json_t *root, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
);
/* 400 "unsupported_parameter" about this key. */
WEIR_MUST_CHECK weir_status weir_api_unsupported(weir_api_error *error, const char *key);
void weir_unknown_add(weir_unknown_fields *unknown, const char *name, const char *nearest);

/* Adds one sentence to `warning`, "; " between two; what does not fit ends with "...". */
void weir_warning_add(char warning[WEIR_WARNING_BYTES], const char *text);
/* Adds a sentence with the names; nothing when there are none. */
void weir_warning_unknown(char warning[WEIR_WARNING_BYTES], const weir_unknown_fields *unknown);
/* The names, as an array. */
void weir_unknown_write(weir_json_out *json, const weir_unknown_fields *unknown);

#ifdef __cplusplus
}
#endif
