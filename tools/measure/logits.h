/* tools/measure/logits.h - writes logits and the residual stream of given tokens to a safetensors
 * file. */
#pragma once
#include "engine/engine.h"

typedef struct weir_logits_options {
    const int32_t *tokens;
    int32_t n_tokens;
    int32_t chunk;       /* 0: batch.chunk */
    int32_t decode_from; /* INT32_MAX: none */
    const char *path;        /* of the file to write */
} weir_logits_options;

/* Writes `logits` f32 [T, V] and `hidden.{i}` f32 [T, D] after each layer i. `engine` has no
 * service. */
WEIR_MUST_CHECK weir_status
weir_write_logits(const weir_engine *engine, const weir_logits_options *options, weir_error *error);
