/* engine/toolcalls/value.h - reads one value byte by byte and writes it as JSON: JSON itself, the
 * arguments of a Python call, or Gemma's notation. No byte is looked at twice. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_value_dialect {
    WEIR_VALUE_JSON, /* RFC 8259; written as it stands */
    WEIR_VALUE_PYTHON, /* literals; (a=1, b="x") is an object */
    WEIR_VALUE_GEMMA, /* {key:<|"|>text<|"|>,other:1}: strings have no escapes */
} weir_value_dialect;

enum { WEIR_VALUE_DEPTH = 1024 }; /* no less than weir_grammar_limits.depth */

typedef enum weir_value_end {
    WEIR_VALUE_MORE, /* all text was read, the value goes on */
    WEIR_VALUE_DONE,
    WEIR_VALUE_BAD, /* no value begins like this */
} weir_value_end;

/* Zero-initialise, then set `dialect`. */
typedef struct weir_value_scanner {
    weir_value_dialect dialect;
    int state; /* of value.c */
    size_t depth;
    uint8_t kind[WEIR_VALUE_DEPTH]; /* of the open arrays and objects */
    bool in_key; /* the string is a key */
    bool has_comma; /* one was read and not yet written */
    char quote; /* that ends the string */
    int n_matched; /* bytes of Gemma's quote */
    int n_hex; /* digits that an escape still needs */
    uint32_t code; /* of the escape */
    bool is_wide; /* the escape is \U */
    int number; /* state within a number */
    char word[8];
    size_t n_word;
} weir_value_scanner;

/* Reads text [n] up to the end of the value: *used bytes. Appends JSON to `out`; after BAD what was
 * appended has no meaning. A number or word at the top ends before the first byte that is not part
 * of it, which is not used.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_value_scan(
    weir_value_scanner *scanner, weir_buffer *out, const char *text, size_t n, size_t *used,
    weir_value_end *end
);
/* True if text [n] without the white space around it is one JSON value; *first is its first
 * byte.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_value_is_json(bool *is_json, char *first, const char *text, size_t n);
/* Appends text [n] as a JSON string with its quotes. */
WEIR_MUST_CHECK weir_status weir_value_quote(weir_buffer *out, const char *text, size_t n);

#ifdef __cplusplus
}
#endif
