/* engine/serve/anthropic_reply.h - answers of Anthropic's API: the functions of
 * weir_api. */
#pragma once
#include "engine/serve/generation.h"

/* The content block that a stream has begun and not ended. */
typedef enum weir_anthropic_block {
    WEIR_ANTHROPIC_NONE,
    WEIR_ANTHROPIC_THINKING,
    WEIR_ANTHROPIC_TEXT,
    WEIR_ANTHROPIC_CALL
} weir_anthropic_block;

/* weir_generation.api_data. */
typedef struct weir_anthropic_answer {
    bool omits_thinking; /* thinking blocks have no text */
    weir_anthropic_block open_block; /* what the last of n_blocks is while it is not complete */
    int32_t n_blocks; /* that a stream has begun */
} weir_anthropic_answer;

WEIR_MUST_CHECK weir_status weir_anthropic_whole(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_anthropic_events(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_anthropic_ping(weir_buffer *out);
const char *weir_anthropic_last_words(weir_generation *g);
