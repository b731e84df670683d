/* engine/config/toml.h - TOML documents: a thin C interface to toml++ (toml_shim.cc).
 *
 * Limits, checked before the parser allocates: 1 MiB of text, 65536 keys and values, 32 levels of
 * nesting, 32 parts in a dotted key. Duplicate keys and tables are errors, and so is NUL in a
 * key, because keys are C strings here. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_TOML_BYTES = 1 << 20, WEIR_TOML_VALUES = 1 << 16, WEIR_TOML_DEPTH = 32 };

typedef struct weir_toml weir_toml;           /* a document; owns all nodes */
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

/* Parses a document. ECONFIG: "name:line:column: what". */
WEIR_MUST_CHECK weir_status weir_toml_parse(
    weir_toml **out, const char *text, size_t length, const char *name, weir_error *error
);
/* Merges two documents: the members of `base` in their order, replaced by those of `own` with the
 * same key, then the other members of `own`. Tables that both have at the top level are merged in
 * the same way, lists in them are concatenated; deeper members are not merged. Tables in `whole`
 * (names at the top level, ending with NULL; may be NULL) are not merged either. Keeps references
 * to what it needs, so both may be closed first. */
WEIR_MUST_CHECK weir_status weir_toml_join(
    weir_toml **out, const weir_toml *base, const weir_toml *own, const char *const *whole,
    weir_error *error
);
void weir_toml_close(weir_toml *document);
const weir_toml_node *weir_toml_root(const weir_toml *document);

weir_toml_type weir_toml_type_of(const weir_toml_node *node);
const char *weir_toml_type_name(weir_toml_type type); /* "a table", "an integer"; for messages */
/* The functions below accept NULL as an absent node: empty, not a string and not a number. */
size_t weir_toml_size(const weir_toml_node *node);
/* The element at `index`, in file order; NULL past the end. *key (borrowed) is NULL in arrays. */
const weir_toml_node *weir_toml_at(const weir_toml_node *node, size_t index, const char **key);
/* Returns NULL if absent or if `table` is not a table. */
const weir_toml_node *weir_toml_get(const weir_toml_node *table, const char *key);
/* Returns NULL if the node is not a string. The string may contain NUL. */
const char *weir_toml_string(const weir_toml_node *node, size_t *length);
bool weir_toml_int(const weir_toml_node *node, int64_t *out);
bool weir_toml_float(const weir_toml_node *node, double *out); /* accepts integers too */
bool weir_toml_bool(const weir_toml_node *node, bool *out);
/* Line and column, from 1: of the key for members of tables, of the value for elements of arrays.
 * Columns count characters. */
void weir_toml_position(const weir_toml_node *node, uint32_t *line, uint32_t *column);
const char *weir_toml_name(const weir_toml_node *node); /* the name given to the parser */

#ifdef __cplusplus
}
#endif
