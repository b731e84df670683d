/* tools/load/event.h - one event of a streamed answer: a chunk of /v1/chat/completions or
 * /v1/completions, of any OpenAI server. Whatever it holds, reading it is safe. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_load_event {
    bool is_done; /* [DONE] */
    bool is_error; /* {"error": ..} */
    bool has_text; /* text, reasoning or a tool call of an answer */
    bool has_finish; /* a finish_reason */
    int64_t prompt_tokens, answer_tokens, cached_tokens; /* of usage; -1: not there */
} weir_load_event;

/* Reads text [n]. Appends the answer's text, without reasoning, to `answer` (may be NULL), and the
 * message of an error to `problem` (may be NULL). Returns EFORMAT if it is no JSON object. */
WEIR_MUST_CHECK weir_status weir_load_event_read(
    weir_load_event *out, const char *text, size_t n, weir_buffer *answer, weir_buffer *problem
);

#ifdef __cplusplus
}
#endif
