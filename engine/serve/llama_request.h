/* engine/serve/llama_request.h - the body of llama-server's /completion and /infill, as a
 * completion of OpenAI's API. */
#pragma once
#include "engine/serve/openai_request.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_llama_request {
    weir_openai_request request; /* owned */
    bool return_tokens, timings_per_token;
    int32_t n_probs; /* 0: no log-probabilities */
    int32_t id_slot; /* -1: any */
    int64_t n_predict; /* -1: to the end of the window */
} weir_llama_request;

/* prompt: what completions take, borrowed. body: WEIR_BODY_LLAMA or WEIR_BODY_INFILL, whose fields
 * are checked. *out is set only on success; release out->request. */
WEIR_MUST_CHECK weir_status weir_llama_request_read(
    weir_llama_request *out, const json_t *root, json_t *prompt, weir_body body,
    const weir_request_limits *limits, weir_api_error *error
);
/* weir_api.name_error */
void weir_llama_name_error(weir_api_error *error);

#ifdef __cplusplus
}
#endif
