/* engine/serve/tool_call.h - finds tool calls in an answer's text: <tool_call> blocks in JSON form
 * (Qwen3) or XML form (Qwen3.5). */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_TOOL_CALLS = 64 };

typedef struct weir_tool_call {
    char *name, *arguments; /* owned; arguments is the JSON text of an object */
} weir_tool_call;

/* Zero-initialise. `tools` (borrowed) has the declared types of parameters, which the XML form
 * needs. */
typedef struct weir_tool_parser {
    const json_t *tools;
    weir_buffer held; /* a partial tag, or an open block */
    weir_tool_call call[WEIR_TOOL_CALLS];
    size_t n_calls;
    bool inside;
} weir_tool_parser;

void weir_tool_parser_free(weir_tool_parser *parser);
/* Adds text [n]. Text outside of blocks goes to `content`, complete blocks become calls. A block
 * that is not a valid call stays text. */
WEIR_MUST_CHECK weir_status
weir_tool_push(weir_tool_parser *parser, weir_buffer *content, const char *text, size_t n);
WEIR_MUST_CHECK weir_status weir_tool_finish(weir_tool_parser *parser, weir_buffer *content);

#ifdef __cplusplus
}
#endif
