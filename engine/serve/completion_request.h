/* engine/serve/completion_request.h - the fields that completions read their own way: the prompt,
 * logprobs. */
#pragma once
#include "engine/serve/openai_request.h"

WEIR_MUST_CHECK weir_status weir_completion_request_read(
    weir_openai_request *request, const json_t *root, int32_t n_vocab, weir_api_error *error
);
