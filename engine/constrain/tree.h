/* engine/constrain/tree.h - a JSON text as a tree: keys in their order, numbers as they are
 * written, strings that may hold NUL. jansson keeps neither decimals nor NUL in keys, and schemas
 * need both. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/constrain/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_tree_kind {
    WEIR_TREE_NULL,
    WEIR_TREE_FALSE,
    WEIR_TREE_TRUE,
    WEIR_TREE_NUMBER,
    WEIR_TREE_STRING,
    WEIR_TREE_ARRAY,
    WEIR_TREE_OBJECT,
} weir_tree_kind;

/* A value. Text is UTF-8, or a number as it is written. */
typedef struct weir_tree {
    weir_tree_kind kind;
    uint32_t id; /* in order of the text */
    const struct weir_tree *parent; /* NULL: the root */
    const char *text; /* [length] */
    const char *raw; /* [raw_length], as it is written, in the text that was read */
    const char *key; /* [key_length] in its object */
    size_t length, key_length, raw_length;
    struct weir_tree *items; /* [n] of an array or object */
    size_t n;
} weir_tree;

enum { WEIR_TREE_DEPTH = 128, WEIR_TREE_DEEPEST = 4096 };

typedef struct weir_tree_reader {
    weir_scratch scratch; /* owns the tree */
    const char *text;
    size_t n, at;
    uint32_t count; /* values */
    int depth;
    int most_depth; /* at most WEIR_TREE_DEEPEST; 0: WEIR_TREE_DEPTH */
    const char *why;
} weir_tree_reader;

/* Reads a JSON text into *out, which lives in the reader (zero but for most_depth). `name` is for
 * messages.
 * Refused: what JSON does not allow, duplicate keys, lone surrogates, more levels than most_depth.
 * errors : EFORMAT; ENOMEM */
WEIR_MUST_CHECK weir_status weir_tree_read(
    weir_tree_reader *reader, const weir_tree **out, const char *text, size_t n, const char *name,
    weir_error *error
);
void weir_tree_reader_free(weir_tree_reader *reader);

/* The member of an object; NULL: none, or no object. */
const weir_tree *weir_tree_get(const weir_tree *object, const char *key);
const weir_tree *weir_tree_find(const weir_tree *object, const char *key, size_t length);
bool weir_tree_is(const weir_tree *string, const char *text);
/* Writes the place as a JSON pointer, "#/properties/a"; long ones are cut. */
void weir_tree_path(const weir_tree *tree, char *out, size_t size);

#ifdef __cplusplus
}
#endif
