/* engine/toolcalls/chat_parser.h - from the text of an answer, in pieces cut anywhere, to
 * reasoning, content and tool calls.
 *
 * Markup never appears in the output, and a block that is no call is content as a whole. The call
 * appears when its block is complete, since only then it is sure to be one, unless a grammar made
 * it so. White space next to
 * calls is dropped. Besides the output it takes WEIR_CALL_BLOCK_BYTES of memory; time is linear. */
#pragma once
#include "engine/toolcalls/block.h"
#include "engine/toolcalls/reasoning.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_chat_parser weir_chat_parser;

typedef struct weir_chat_parser_options {
    const weir_chat_format *format; /* NULL: no calls are found */
    const json_t *tools; /* borrowed; NULL: calls stay text */
    bool one_call; /* further calls of a block are dropped */
    /* A grammar holds the answer to calls of the format: they appear while they are written, and
     * one that is cut stays a call. */
    bool is_sure;
    bool only_calls; /* likewise: what is no call or reasoning is a call that was cut; dropped */
    weir_reasoning_start start;
} weir_chat_parser_options;

/* errors : ENOMEM */
WEIR_MUST_CHECK weir_status
weir_chat_parser_open(weir_chat_parser **out, const weir_chat_parser_options *options);
void weir_chat_parser_close(weir_chat_parser *parser); /* NULL-safe */
/* Sets options.start; before the first push. */
void weir_chat_parser_start(weir_chat_parser *parser, weir_reasoning_start start);

/* Adds text [n], or ends the answer. Appends what became certain to `content` and `reasoning`,
 * which the caller may clear at any time; both end at a whole code point.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_chat_parser_push(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
);
WEIR_MUST_CHECK weir_status
weir_chat_parser_finish(weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning);
/* The calls so far; the array may move with the next push. */
const weir_tool_call *weir_chat_parser_calls(const weir_chat_parser *parser, size_t *n);

/* A call that is being written. */
typedef struct weir_partial_call {
    const char *name, *id; /* id NULL: none */
    const char *arguments; /* [n]: a beginning of what the call will have */
    size_t n;
} weir_partial_call;
/* The call after the complete ones, if calls are sure and its name is known. Borrowed until the
 * next push. */
bool weir_chat_parser_partial(const weir_chat_parser *parser, weir_partial_call *out);
/* True while a block of calls is being read. */
bool weir_chat_parser_in_block(const weir_chat_parser *parser);
/* True while reasoning is being read. */
bool weir_chat_parser_reasons(const weir_chat_parser *parser);
/* True if text [n], that of a control token, is part of the markup, so that the parser needs it. */
bool weir_chat_parser_reads(const weir_chat_parser *parser, const char *text, size_t n);

#ifdef __cplusplus
}
#endif
