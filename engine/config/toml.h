/* engine/config/toml.h - TOML documents for C: a thin C view of toml++ (toml_shim.cc).
 *
 * Limits, checked before the parser builds anything: 1 MiB of text, 65536 keys and values, 32
 * levels of nesting, 32 parts in one dotted key. Duplicate keys and tables are errors; so is a key
 * that holds NUL, since keys are handed out as C strings. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_TOML_BYTES = 1 << 20, WEIR_TOML_VALUES = 1 << 16, WEIR_TOML_DEPTH = 32 };

typedef struct weir_toml weir_toml;           /* a document, owns all nodes */
typedef struct weir_toml_node weir_toml_node; /* borrowed from its document */

typedef enum weir_toml_type {
    WEIR_TOML_TABLE,
    WEIR_TOML_ARRAY,
    WEIR_TOML_STRING,
    WEIR_TOML_INT,
    WEIR_TOML_FLOAT,
    WEIR_TOML_BOOL,
    WEIR_TOML_DATE
} weir_toml_type;

/* ECONFIG with "name:line:column: what". */
WEIR_MUST_CHECK weir_status weir_toml_parse(
    weir_toml **out, const char *text, size_t length, const char *name, weir_error *error
);
/* What `own` has, and what it lacks of `base`: tables; of tables that both have, the keys, in the
 * order of `base`; lists of both begin with those of `base`. Nothing below that is joined. Keeps
 * what it needs of both, which may be closed before it. */
WEIR_MUST_CHECK weir_status
weir_toml_join(weir_toml **out, const weir_toml *base, const weir_toml *own, weir_error *error);
void weir_toml_close(weir_toml *document);
const weir_toml_node *weir_toml_root(const weir_toml *document);

weir_toml_type weir_toml_type_of(const weir_toml_node *node);
const char *weir_toml_type_name(weir_toml_type type); /* "a table", "an integer", for messages */
/* From here on NULL nodes are taken for absent: nothing is in them, they are no string and no
 * number. */
size_t weir_toml_size(const weir_toml_node *node); /* of a table or array, 0 for the rest */
/* Tables: in file order; key is borrowed. Arrays: key is NULL. NULL past the end. */
const weir_toml_node *weir_toml_at(const weir_toml_node *node, size_t index, const char **key);
/* NULL when absent or not a table */
const weir_toml_node *weir_toml_get(const weir_toml_node *table, const char *key);
/* NULL unless a string; may hold NUL */
const char *weir_toml_string(const weir_toml_node *node, size_t *length);
bool weir_toml_int(const weir_toml_node *node, int64_t *out);
bool weir_toml_float(const weir_toml_node *node, double *out); /* also takes an integer */
bool weir_toml_bool(const weir_toml_node *node, bool *out);
/* From 1; of the key for members of tables, of the value for members of arrays. Columns count
 * characters. */
void weir_toml_position(const weir_toml_node *node, uint32_t *line, uint32_t *column);
const char *weir_toml_name(const weir_toml_node *node); /* that its text was parsed under */

#ifdef __cplusplus
}
#endif
