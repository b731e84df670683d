/* engine/text/jinja/lexer.h - splits template text into tokens, with the white-space rules of
 * Jinja2 (trim_blocks and lstrip_blocks on). */
#pragma once
#include <stdint.h>

#include "engine/text/jinja/string.h"

typedef enum weir_jinja_token_kind {
    WEIR_JINJA_TOKEN_DATA, /* value: the text to print */
    WEIR_JINJA_TOKEN_PRINT_BEGIN,
    WEIR_JINJA_TOKEN_PRINT_END,
    WEIR_JINJA_TOKEN_BLOCK_BEGIN,
    WEIR_JINJA_TOKEN_BLOCK_END,
    WEIR_JINJA_TOKEN_NAME, /* value: the name */
    WEIR_JINJA_TOKEN_LITERAL, /* value: a string, an integer or a float */
    WEIR_JINJA_TOKEN_OPERATOR,
    WEIR_JINJA_TOKEN_END,
} weir_jinja_token_kind;

/* An operator as a number: one character, or two. */
#define WEIR_JINJA_OP(a, b) ((int)(a) | (int)(b) << 8)

typedef struct weir_jinja_token {
    weir_jinja_token_kind kind;
    int operation; /* WEIR_JINJA_OP; 0 for other kinds */
    int line;
    weir_jinja_value value;
} weir_jinja_token;

typedef struct weir_jinja_tokens {
    weir_jinja_token *items; /* the last one is WEIR_JINJA_TOKEN_END */
    size_t count, capacity;
} weir_jinja_tokens;

/* EFORMAT with line and reason. Tokens lie in the arena; `text` may be freed afterwards. */
WEIR_MUST_CHECK weir_status weir_jinja_lex(
    weir_jinja_arena *arena, weir_jinja_tokens *out, const char *text, size_t size,
    weir_error *error
);
