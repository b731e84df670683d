/* engine/toolcalls/reasoning.h - splits an answer's text into reasoning and the text after it:
 * <think>...</think> and the tags of other families. White space at the ends of reasoning is
 * dropped. */
#pragma once
#include <stdbool.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_reasoning_state {
    WEIR_THINK_MAYBE, /* only white space so far: an opening tag may follow */
    WEIR_THINK_INSIDE,
    WEIR_THINK_AFTER, /* white space after the closing tag is dropped until text follows */
    WEIR_THINK_CONTENT,
} weir_reasoning_state;

/* Where an answer begins. `tags`: which of the pairs, within reasoning. */
typedef struct weir_reasoning_start {
    weir_reasoning_state state;
    int tags;
} weir_reasoning_start;

/* Zero-initialise, then set `at`. */
typedef struct weir_reasoning_splitter {
    weir_reasoning_start at;
    bool has_text; /* the reasoning has begun */
    weir_buffer held; /* white space, or a partial tag */
} weir_reasoning_splitter;

WEIR_MUST_CHECK weir_status weir_reasoning_push(
    weir_reasoning_splitter *splitter, weir_buffer *content, weir_buffer *reasoning,
    const char *text, size_t n
);
WEIR_MUST_CHECK weir_status weir_reasoning_finish(
    weir_reasoning_splitter *splitter, weir_buffer *content, weir_buffer *reasoning
);
/* The state after this prompt: reasoning is open, closed, or up to the model. */
weir_reasoning_start weir_reasoning_after(const char *prompt, size_t n, bool model_reasons);

/* The opening tag of pair `i`; NULL: there are no more. */
const char *weir_reasoning_tag(int i);
/* The closing tag of pair `i`. */
const char *weir_reasoning_end_tag(int i);
/* True if text [n], that of a control token, is part of a tag. */
bool weir_reasoning_has(const char *text, size_t n);

#ifdef __cplusplus
}
#endif
