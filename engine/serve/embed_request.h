/* engine/serve/embed_request.h - the bodies of /v1/embeddings, /v1/rerank, and Ollama's /api/embed
 * and /api/embeddings: texts whose embeddings the engine computes. */
#pragma once
#include "engine/serve/ollama_request.h"
#include "engine/serve/openai_request.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_embed_request {
    weir_openai_request request; /* owned; its prompts are the texts, of a rerank the query first */
    bool base64, return_documents;
    int32_t dimensions; /* 0: all */
    int32_t top_n; /* 0: all */
    char model[WEIR_OLLAMA_MODEL]; /* of Ollama's bodies: as the client names it */
} weir_embed_request;

/* body: one of WEIR_BODY_EMBEDDINGS, _RERANK, _OLLAMA_EMBED, _OLLAMA_EMBEDDINGS. d_model: the
 * length of vectors. *out is set only on success; release out->request. */
WEIR_MUST_CHECK weir_status weir_embed_request_read(
    weir_embed_request *out, const json_t *root, weir_body body, int32_t d_model,
    const weir_request_limits *limits, weir_api_error *error
);

#ifdef __cplusplus
}
#endif
