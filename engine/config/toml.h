/* engine/config/toml.h - TOML documents for C: a thin C view of toml++ (toml_shim.cc). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_toml weir_toml;           /* a document, owns all nodes */
typedef struct weir_toml_node weir_toml_node; /* borrowed from its document */

typedef enum weir_toml_type {
    WEIR_TOML_TABLE, WEIR_TOML_ARRAY, WEIR_TOML_STRING, WEIR_TOML_INT, WEIR_TOML_FLOAT, WEIR_TOML_BOOL, WEIR_TOML_DATE
} weir_toml_type;

/* At most 1 MiB; ECONFIG with name, line and column. */
WEIR_MUST_CHECK weir_status weir_toml_parse(weir_toml **out, const char *text, size_t length, const char *name, weir_error *error);
void weir_toml_close(weir_toml *document);
const weir_toml_node *weir_toml_root(const weir_toml *document);

weir_toml_type weir_toml_type_of(const weir_toml_node *node);
size_t         weir_toml_size(const weir_toml_node *node); /* of a table or array */
/* Tables: in file order; key is borrowed. Arrays: key is NULL. */
const weir_toml_node *weir_toml_at(const weir_toml_node *node, size_t index, const char **key);
const weir_toml_node *weir_toml_get(const weir_toml_node *table, const char *key); /* NULL when absent or not a table */
const char *weir_toml_string(const weir_toml_node *node, size_t *length);          /* NULL unless a string */
bool weir_toml_int(const weir_toml_node *node, int64_t *out);
bool weir_toml_float(const weir_toml_node *node, double *out);                     /* also takes an integer */
bool weir_toml_bool(const weir_toml_node *node, bool *out);
void weir_toml_position(const weir_toml_node *node, uint32_t *line, uint32_t *column);

#ifdef __cplusplus
}
#endif
