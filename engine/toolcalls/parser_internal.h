/* engine/toolcalls/parser_internal.h - the parts of a chat parser: reasoning and blocks, or the
 * channels of harmony. */
#pragma once
#include "engine/toolcalls/chat_parser.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_harmony {
    int state; /* of harmony.c */
    weir_buffer held; /* from `begin` on: a header, a partial tag, or a call */
    size_t begin, scanned; /* scanned: the end of what was read of a call */
    bool is_reasoning; /* the body */
    bool is_new; /* nothing of the body was passed on */
    bool has_content, has_reasoning; /* an earlier body was */
    weir_buffer name; /* of the call */
    weir_value_scanner value;
    weir_buffer arguments;
} weir_harmony;

struct weir_chat_parser {
    weir_chat_parser_options options;
    unsigned char code_point[4]; /* an incomplete one */
    size_t n_code_point;
    weir_reasoning_splitter reasoning;
    weir_buffer text; /* scratch: outside of reasoning */
    /* Of blocks. */
    weir_buffer held; /* from `begin` on: a partial opener, or an open block */
    size_t begin;
    weir_buffer space; /* white space that a call may follow */
    bool is_open, after_call, line_has_text;
    weir_call_block block;
    weir_harmony harmony;
    weir_tool_call call[WEIR_TOOL_CALLS];
    size_t n_calls;
};

/* blocks.c */
WEIR_MUST_CHECK weir_status
weir_blocks_push(weir_chat_parser *parser, weir_buffer *content, const char *text, size_t n);
WEIR_MUST_CHECK weir_status weir_blocks_finish(weir_chat_parser *parser, weir_buffer *content);

/* harmony.c */
bool weir_harmony_in_call(const weir_harmony *harmony);
WEIR_MUST_CHECK weir_status weir_harmony_push(
    weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
);
WEIR_MUST_CHECK weir_status
weir_harmony_finish(weir_chat_parser *parser, weir_buffer *content, weir_buffer *reasoning);

#ifdef __cplusplus
}
#endif
