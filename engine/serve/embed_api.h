/* engine/serve/embed_api.h - replies about embeddings: what their files share. */
#pragma once
#include "engine/serve/embed_request.h"
#include "engine/serve/generation.h"

/* What a generation knows besides its request. */
typedef struct weir_embed {
    bool base64, return_documents;
    int32_t dimensions; /* of the vectors that are sent */
    int32_t top_n; /* 0: all */
    char model[WEIR_OLLAMA_MODEL];
    json_t *texts; /* owned */
} weir_embed;

/* Of weir_api: reads a body of this kind, frees what it made. */
WEIR_MUST_CHECK weir_status weir_embed_read(
    weir_generation *g, const char *text, size_t n, weir_body body, weir_api_error *error
);
void weir_embed_free(void *data);
/* The first `dimensions` elements of the prompt's embedding, at length 1 (0 stays 0), in place.
 * Returns NULL if there is none. Requires the lock. */
float *weir_embed_unit(const weir_generation *g, size_t prompt);
/* Writes vector [n] as an array. */
void weir_embed_array_write(weir_json_out *json, const float *vector, int32_t n);
/* The member "usage". */
void weir_embed_usage_write(weir_json_out *json, const weir_generation *g);
