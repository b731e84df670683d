/* engine/serve/ollama_request.h - the bodies of Ollama's /api/chat and /api/generate, as chats and
 * completions of OpenAI's API. */
#pragma once
#include "engine/serve/openai_request.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_OLLAMA_MODEL = 320 };

typedef struct weir_ollama_request {
    weir_openai_request request; /* owned */
    char model[WEIR_OLLAMA_MODEL]; /* as the client names it */
} weir_ollama_request;

/* A request without a prompt, or with no messages, which loads or unloads the model. */
typedef struct weir_ollama_load {
    char model[WEIR_OLLAMA_MODEL];
    bool is_load, unloads, stream;
} weir_ollama_load;

/* body: WEIR_BODY_OLLAMA_CHAT or WEIR_BODY_OLLAMA_GENERATE. Without a chat template, prompts to
 * generate from are raw. *out is set only on success; release out->request. */
WEIR_MUST_CHECK weir_status weir_ollama_request_read(
    weir_ollama_request *out, const json_t *root, weir_body body, bool has_template,
    const weir_request_limits *limits, weir_api_error *error
);
/* out->is_load: whether it is one; only then the rest is set. */
WEIR_MUST_CHECK weir_status weir_ollama_load_read(
    weir_ollama_load *out, const json_t *root, weir_body body, const weir_request_limits *limits,
    weir_api_error *error
);
/* Reads the field `key`. errors : 400 without a name; 404 unless it names the served model, perhaps
 * with ":latest" */
WEIR_MUST_CHECK weir_status weir_ollama_model_read(
    char out[WEIR_OLLAMA_MODEL], const json_t *root, const char *key,
    const weir_request_limits *limits, weir_api_error *error
);
/* True for the paths of Ollama's API, of which all errors have its form. */
bool weir_ollama_has_path(const char *path);
/* Writes {"error": "..."}. */
WEIR_MUST_CHECK weir_status weir_ollama_error_write(weir_buffer *out, const weir_api_error *error);
/* weir_api.name_error */
void weir_ollama_name_error(weir_api_error *error);

#ifdef __cplusplus
}
#endif
