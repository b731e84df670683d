/* engine/serve/request_fields.h - the fields of request bodies: supported, ignored, unsupported and
 * unknown ones. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/serve/errors.h"
#include "engine/serve/json_out.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of bodies, as bits: a field may belong to several. */
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
    WEIR_BODY_RESPONSES = 512,
    WEIR_BODY_MESSAGES = 1024, /* of Anthropic's API */
    WEIR_BODY_LLAMA = 1 << 16, /* llama-server's /completion */
    WEIR_BODY_INFILL = 1 << 17,
    WEIR_BODY_SLOT = 1 << 18,
    WEIR_BODY_OLLAMA_CHAT = 1 << 19,
    WEIR_BODY_OLLAMA_GENERATE = 1 << 20,
    WEIR_BODY_OLLAMA_SHOW = 1 << 21,
    WEIR_BODY_OLLAMA_EMBED = 1 << 22,
    WEIR_BODY_OLLAMA_EMBEDDINGS = 1 << 23,
    WEIR_BODY_EMBEDDINGS = 1 << 24,
    WEIR_BODY_RERANK = 1 << 25,
} weir_body;

/* Sets of bodies that the table of fields and the table of their meanings both name. */
enum {
    WEIR_BODIES_LLAMA = WEIR_BODY_LLAMA | WEIR_BODY_INFILL,
    /* The text has one of three forms. */
    WEIR_BODIES_WITH_TEXT = WEIR_BODY_TOKENIZE | WEIR_BODY_SESSION_SAVE | WEIR_BODY_STATE,
};

typedef enum weir_field_use {
    WEIR_FIELD_READ,
    WEIR_FIELD_IGNORED, /* its type is checked, it has no effect */
    WEIR_FIELD_OFF, /* a number of its range has no effect; 400 for any other */
    WEIR_FIELD_UNSUPPORTED, /* 400 unless null or false */
} weir_field_use;

/* WEIR_FIELD_FORM: the code that reads the field checks it; openapi_schemas.json describes it. */
typedef enum weir_field_type {
    WEIR_FIELD_ANY,
    WEIR_FIELD_STRING,
    WEIR_FIELD_OBJECT,
    WEIR_FIELD_BOOL,
    WEIR_FIELD_INTEGER,
    WEIR_FIELD_NUMBER,
    WEIR_FIELD_FORM,
} weir_field_type;

#define WEIR_FIELD_LARGE 0x1p63 /* `most` of integers of 64 bits */

typedef struct weir_field_row {
    const char *key;
    unsigned bodies;
    weir_field_use use;
    weir_field_type type;
    const char *form; /* of FORM: the name of its schema */
    /* Of numbers, both 0: no limits. Code may know narrower ones: token ids, choices. `above`:
     * `least` is not included. Of strings `most` bytes; 0: no limit. */
    double least, most;
    bool above;
    bool raised_by_keys; /* with API keys `least` is 0, which the reader checks */
    const char
        *initial; /* JSON of its default, or '$' and a key of the configuration; NULL: none */
    unsigned needed; /* bodies that must have it */
} weir_field_row;

/* The whole table (field_rows.c). A field may have several rows, for different bodies. */
const weir_field_row *weir_field_rows(size_t *count);
/* What a field that is read means in one of these bodies, for people (field_meanings.c); NULL: no
 * such field. */
const char *weir_field_meaning(const char *key, unsigned bodies);
bool weir_field_has_range(const weir_field_row *row); /* of a number */

enum { WEIR_UNKNOWN_NAMED = 8, WEIR_WARNING_BYTES = 256 };

typedef struct weir_unknown_fields {
    size_t count;
    weir_quoted name[WEIR_UNKNOWN_NAMED]; /* the first few; printable ASCII */
    const char *nearest[WEIR_UNKNOWN_NAMED]; /* the nearest known key, or NULL */
} weir_unknown_fields;

/* Refuses unsupported fields, ignored fields of a wrong type, and unknown ones that begin with kv_
 * or are nearest to one that does. Adds other unknown fields to *unknown. */
WEIR_MUST_CHECK weir_status weir_fields_check(
    const json_t *root, weir_body body, weir_unknown_fields *unknown, weir_api_error *error
);
/* True if the field is read in all of these bodies, and means the same. */
bool weir_field_is_read(const char *key, unsigned bodies);
/* Error 400 "unsupported_parameter" for this key. */
WEIR_MUST_CHECK weir_status weir_api_unsupported(weir_api_error *error, const char *key);
void weir_unknown_add(weir_unknown_fields *unknown, const char *name, const char *nearest);

/* Appends a sentence to `warning`, separated by "; ". If it does not fit, the warning ends with
 * "...". */
void weir_warning_add(char warning[WEIR_WARNING_BYTES], const char *text);
/* Appends a sentence with the names, if any. */
void weir_warning_unknown(char warning[WEIR_WARNING_BYTES], const weir_unknown_fields *unknown);
/* Writes the names as an array. */
void weir_unknown_write(weir_json_out *json, const weir_unknown_fields *unknown);

#ifdef __cplusplus
}
#endif
