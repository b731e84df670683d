/* engine/serve/think.h - splits an answer's text into reasoning (<think> ... </think>) and
 * content. */
#pragma once
#include <stdbool.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_think_state {
    WEIR_THINK_MAYBE, /* only white space so far: <think> may follow */
    WEIR_THINK_INSIDE, /* also the initial state if the template has opened the block */
    WEIR_THINK_AFTER, /* white space after </think> is dropped until text follows */
    WEIR_THINK_CONTENT,
} weir_think_state;

/* Zero-initialise, then set `state`. */
typedef struct weir_think_splitter {
    weir_think_state state;
    weir_buffer held; /* white space, or a partial tag */
} weir_think_splitter;

WEIR_MUST_CHECK weir_status weir_think_push(
    weir_think_splitter *splitter, weir_buffer *content, weir_buffer *reasoning, const char *text,
    size_t n
);
WEIR_MUST_CHECK weir_status
weir_think_finish(weir_think_splitter *splitter, weir_buffer *content, weir_buffer *reasoning);
/* The state after this prompt: the block is open, closed, or up to the model. */
weir_think_state weir_think_start(const char *prompt, size_t n, bool model_thinks);

#ifdef __cplusplus
}
#endif
