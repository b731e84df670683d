/* engine/serve/anthropic_reply.h - answers of Anthropic's API: the functions of
 * weir_api. */
#pragma once
#include "engine/serve/generation.h"

WEIR_MUST_CHECK weir_status weir_anthropic_whole(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_anthropic_events(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_anthropic_ping(weir_buffer *out);
const char *weir_anthropic_last_words(weir_generation *g);
