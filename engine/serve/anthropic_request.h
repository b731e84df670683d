/* engine/serve/anthropic_request.h - a request of Anthropic's API (POST /v1/messages and
 * .../count_tokens), read as the chat request that means the same. */
#pragma once
#include "engine/serve/openai_request.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_anthropic_use {
    WEIR_ANTHROPIC_MESSAGE,
    WEIR_ANTHROPIC_COUNT, /* of tokens: max_tokens may be absent */
} weir_anthropic_use;

/* Reads the body text [n], text[n] == 0. *out is set only on success; release it with
 * weir_openai_request_free. *omits_thinking: thinking blocks have no text. What has no effect is
 * added to `warning`.
 * errors : as weir_openai_request_read, with the names of Anthropic's fields */
WEIR_MUST_CHECK weir_status weir_anthropic_request_read(
    weir_openai_request *out, weir_anthropic_use use, const char *text, size_t n,
    const weir_request_limits *limits, bool *omits_thinking, char warning[WEIR_WARNING_BYTES],
    weir_api_error *error
);
/* weir_api.name_error */
void weir_anthropic_name_error(weir_api_error *error);

#ifdef __cplusplus
}
#endif
