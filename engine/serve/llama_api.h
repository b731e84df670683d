/* engine/serve/llama_api.h - llama-server's own endpoints: what their files share. */
#pragma once
#include "engine/serve/generation.h"
#include "engine/serve/llama_request.h"

/* What a generation of /completion or /infill knows besides its request. */
typedef struct weir_llama {
    bool return_tokens, timings_per_token;
    int32_t n_probs, id_slot;
    int64_t n_predict;
    json_t *prompt; /* as sent; owned */
} weir_llama;

/* The members of generation_settings and of /props' params. n_predict: -1: no limit. */
void weir_llama_settings_write(
    weir_json_out *json, const weir_openai_request *request, int64_t n_predict, int32_t n_probs
);
/* Reads a body of the kind `body`; prompt: what completions take. */
WEIR_MUST_CHECK weir_status weir_llama_read(
    weir_generation *g, const json_t *root, json_t *prompt, weir_body body, weir_api_error *error
);
/* Of weir_api. */
WEIR_MUST_CHECK weir_status weir_llama_whole(weir_buffer *out, weir_generation *g);
WEIR_MUST_CHECK weir_status weir_llama_events(weir_buffer *out, weir_generation *g);
void weir_llama_free(void *data);

/* ---- slots (llama_slots.c) ------------------------------------------------------------------- */

typedef struct weir_llama_slots weir_llama_slots;
/* Returns NULL if there is no memory. */
weir_llama_slots *weir_llama_slots_open(int32_t n_slots);
void weir_llama_slots_close(weir_llama_slots *slots); /* NULL-safe */
/* The slot's last text is that of the first answer of `g`. Requires the exchange's lock. */
void weir_llama_slots_keep(const weir_generation *g, int32_t slot);
