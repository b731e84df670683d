/* engine/text/jinja/ast.h - the syntax tree of a template. Immutable after parsing; lies in one
 * arena. */
#pragma once
#include "engine/text/jinja/value.h"

typedef enum weir_jinja_node_kind {
    /* Expressions. */
    WEIR_JINJA_CONST, /* value */
    WEIR_JINJA_NAME, /* name */
    WEIR_JINJA_LIST_OF, /* items */
    WEIR_JINJA_TUPLE_OF, /* items */
    WEIR_JINJA_DICT_OF, /* items: key, value, key, value ... */
    WEIR_JINJA_UNARY, /* operation ! - +, left */
    WEIR_JINJA_BINARY, /* operation, left, right */
    WEIR_JINJA_AND, /* left, right */
    WEIR_JINJA_OR, /* left, right */
    WEIR_JINJA_CONCAT, /* items */
    WEIR_JINJA_COMPARE, /* left, items: operands with their operation */
    WEIR_JINJA_OPERAND, /* operation, left */
    WEIR_JINJA_CONDITIONAL, /* left if test else right (NULL: undefined) */
    WEIR_JINJA_ATTRIBUTE, /* left.name */
    WEIR_JINJA_ITEM, /* left[right] */
    WEIR_JINJA_SLICE, /* left[items[0]:items[1]:items[2]], each may be NULL */
    WEIR_JINJA_CALL, /* left(items, named) */
    WEIR_JINJA_FILTER, /* left|name(items, named); left NULL: text of the block */
    WEIR_JINJA_TEST, /* left is name(items, named) */
    WEIR_JINJA_KEYWORD, /* name=left */
    /* Statements. */
    WEIR_JINJA_DATA, /* value: text */
    WEIR_JINJA_PRINT, /* left */
    WEIR_JINJA_IF, /* items: test and IF_BODY in turn; body: else */
    WEIR_JINJA_BODY, /* body */
    /* Left: target, right: the iterable, test or NULL, body, otherwise; operation: flags. */
    WEIR_JINJA_FOR,
    WEIR_JINJA_SET, /* left: target, right */
    WEIR_JINJA_SET_BLOCK, /* left: target, right: filters or NULL, body */
    /* Name, items: NAME, named: KEYWORD with defaults (of the last ones), body; operation:
     * flags. */
    WEIR_JINJA_MACRO_OF,
    WEIR_JINJA_CALL_BLOCK, /* left: the call, right: MACRO_OF that is `caller` */
    WEIR_JINJA_FILTER_BLOCK, /* right: filters, body */
    WEIR_JINJA_WITH, /* items: target and value in turn, body */
    WEIR_JINJA_BREAK,
    WEIR_JINJA_CONTINUE,
} weir_jinja_node_kind;

/* Flags of MACRO_OF: special variables used by the body. */
/* Flags of a loop. KEEPS_SCOPE: its body defines a macro, which keeps the scope of that
 * iteration. */
enum { WEIR_JINJA_RECURSIVE = 1, WEIR_JINJA_KEEPS_SCOPE = 2 };
enum { WEIR_JINJA_WANTS_CALLER = 1, WEIR_JINJA_WANTS_VARARGS = 2, WEIR_JINJA_WANTS_KWARGS = 4 };

typedef struct weir_jinja_node weir_jinja_node;
typedef struct weir_jinja_nodes {
    weir_jinja_node **items;
    size_t count, capacity;
} weir_jinja_nodes;

struct weir_jinja_node {
    weir_jinja_node_kind kind;
    int operation, line;
    weir_jinja_string *name;
    weir_jinja_value value;
    weir_jinja_node *left, *right, *test;
    weir_jinja_nodes items, named, body, otherwise;
};

/* Parses a template. EFORMAT with line and reason. */
WEIR_MUST_CHECK weir_status weir_jinja_parse(
    weir_jinja_arena *arena, weir_jinja_node **out, const char *text, size_t size, weir_error *error
);
