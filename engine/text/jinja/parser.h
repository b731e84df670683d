/* engine/text/jinja/parser.h - shared by the two halves of the parser: statements (parser.c) and
 * expressions (expression.c). */
#pragma once
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

typedef struct weir_jinja_parser {
    weir_jinja_arena *arena;
    weir_error *error;
    const weir_jinja_token *token; /* the next token */
    int depth; /* depth of nested expressions and blocks */
    int loops; /* number of open loops: break and continue are allowed inside */
    int macros; /* macros and call blocks so far */
    int wants; /* special variables used by the macro: WEIR_JINJA_WANTS_* */
} weir_jinja_parser;

WEIR_MUST_CHECK weir_status weir_jinja_parse_fail(weir_jinja_parser *parser, const char *reason);
/* Every recursion calls these two. */
WEIR_MUST_CHECK weir_status weir_jinja_parse_enter(weir_jinja_parser *parser);
static inline void weir_jinja_parse_leave(weir_jinja_parser *parser) { parser->depth--; }

bool weir_jinja_at_name(const weir_jinja_parser *parser, const char *name);
bool weir_jinja_at_op(const weir_jinja_parser *parser, int operation);
bool weir_jinja_skip_name(weir_jinja_parser *parser, const char *name);
bool weir_jinja_skip_op(weir_jinja_parser *parser, int operation);
WEIR_MUST_CHECK weir_status
weir_jinja_expect_op(weir_jinja_parser *parser, int operation, const char *what);
WEIR_MUST_CHECK weir_status
weir_jinja_expect_name(weir_jinja_parser *parser, weir_jinja_string **out);

WEIR_MUST_CHECK weir_status
weir_jinja_node_new(weir_jinja_parser *parser, weir_jinja_node **out, weir_jinja_node_kind kind);
WEIR_MUST_CHECK weir_status
weir_jinja_node_add(weir_jinja_parser *parser, weir_jinja_nodes *nodes, weir_jinja_node *node);

/* Parses one expression; `conditional`: "x if y else z" is allowed. */
WEIR_MUST_CHECK weir_status
weir_jinja_parse_expression(weir_jinja_parser *parser, weir_jinja_node **out, bool conditional);
/* Parses an expression, or several separated by commas: a tuple. */
WEIR_MUST_CHECK weir_status
weir_jinja_parse_tuple(weir_jinja_parser *parser, weir_jinja_node **out, bool conditional);
/* Parses a name, name.attribute or a tuple of names, up to "=", "in" or the end of the tag. */
WEIR_MUST_CHECK weir_status
weir_jinja_parse_target(weir_jinja_parser *parser, weir_jinja_node **out);
/* Parses "name(...)
 * ame ...", applied to `input` (NULL: the text of a block). */
WEIR_MUST_CHECK weir_status
weir_jinja_parse_filters(weir_jinja_parser *parser, weir_jinja_node **out, weir_jinja_node *input);
