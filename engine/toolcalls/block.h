/* engine/toolcalls/block.h - runs the steps of a format over the text of one block of calls, which
 * may arrive in pieces cut anywhere. No byte is scanned twice. */
#pragma once
#include "engine/toolcalls/call.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_TOOL_CALLS = 64, /* of an answer */
    WEIR_CALL_BLOCK_BYTES = 1 << 20, /* of a block; a longer one is text */
};

typedef enum weir_call_block_end {
    WEIR_CALL_BLOCK_OPEN,
    WEIR_CALL_BLOCK_DONE, /* its calls are in `call` */
    WEIR_CALL_BLOCK_BAD, /* no calls: its text up to `at` is text */
} weir_call_block_end;

typedef struct weir_call_block {
    const weir_chat_format *format;
    const weir_format_opener *opener;
    const json_t *tools;
    int step;
    size_t at; /* bytes of the text that were read */
    size_t scanned; /* of these and further ones, those that the step has looked at */
    weir_value_scanner value;
    weir_call_draft draft;
    weir_tool_call call[WEIR_TOOL_CALLS];
    size_t n_calls;
    bool has_calls; /* it had some, which may have been taken out of `call` */
} weir_call_block;

/* Begins a block: its text begins with the opener. */
void weir_call_block_begin(
    weir_call_block *block, const weir_chat_format *format, const weir_format_opener *opener,
    const json_t *tools
);
/* Drops the calls. */
void weir_call_block_clear(weir_call_block *block);
void weir_call_block_free(weir_call_block *block);
/* The arguments of the call that is being read, as far as they are written: a beginning of what the
 * call will have. NULL: not begun, or its name is not known. */
const weir_buffer *weir_call_block_arguments(const weir_call_block *block);
/* Reads on; text [n] is all of the block so far. `is_last`: nothing follows.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_call_block_read(
    weir_call_block *block, const char *text, size_t n, bool is_last, weir_call_block_end *end
);

#ifdef __cplusplus
}
#endif
