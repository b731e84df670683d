/* tests/fuzz/compat_request_fuzz.c - bodies of llama-server's and Ollama's APIs and of embeddings:
 * refused with a status and a message, or read into a request whose values are in range. The first
 * byte picks the kind of body. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "engine/serve/embed_request.h"
#include "engine/serve/json_in.h"
#include "engine/serve/llama_request.h"
#include "engine/serve/ollama_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const weir_request_limits limits = {
    .model_name = "m",
    .n_vocab = 2048,
    .n_slots = 4,
    .window = 4096,
    .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 }
};

static void check(const weir_openai_request *r, size_t most)
{
    const weir_sampling *const s = &r->sampling;
    WEIR_ASSERT(r->n >= 1 && r->n <= limits.n_slots && r->max_tokens >= -1);
    WEIR_ASSERT(r->n_top_logprobs >= 0 && r->n_top_logprobs <= 20);
    WEIR_ASSERT(
        s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1 &&
        s->top_k >= 0 && s->repetition_penalty > 0
    );
    for (size_t i = 0; i < s->n_bias; i++)
        WEIR_ASSERT(s->bias[i].id >= 0 && s->bias[i].id < limits.n_vocab);
    if (r->chat)
        WEIR_ASSERT(json_array_size(r->messages) > 0);
    else
        WEIR_ASSERT(
            weir_openai_prompt_count(r->prompt) >= 1 && weir_openai_prompt_count(r->prompt) <= most
        );
}

static weir_status read_llama(const json_t *root, weir_api_error *error)
{
    weir_llama_request llama = { .id_slot = -1 };
    json_t *const prompt = json_object_get(root, "prompt");
    WEIR_TRY(weir_llama_request_read(&llama, root, prompt, WEIR_BODY_LLAMA, &limits, error));
    check(&llama.request, WEIR_PROMPTS);
    WEIR_ASSERT(llama.id_slot >= -1 && llama.id_slot < limits.n_slots);
    weir_openai_request_free(&llama.request);
    return WEIR_OK;
}

static weir_status read_ollama(const json_t *root, weir_body body, weir_api_error *error)
{
    weir_ollama_request ollama = { .model = "" };
    weir_ollama_load load = { .model = "" };
    WEIR_TRY(weir_ollama_load_read(&load, root, body, &limits, error));
    WEIR_TRY(weir_ollama_request_read(&ollama, root, body, true, &limits, error));
    check(&ollama.request, WEIR_PROMPTS);
    weir_openai_request_free(&ollama.request);
    return WEIR_OK;
}

static weir_status read_embed(const json_t *root, weir_body body, weir_api_error *error)
{
    weir_embed_request embed = { .model = "" };
    WEIR_TRY(weir_embed_request_read(&embed, root, body, 64, &limits, error));
    check(&embed.request, WEIR_EMBEDDED_PROMPTS);
    WEIR_ASSERT(embed.dimensions >= 0 && embed.dimensions <= 64 && embed.top_n >= 0);
    weir_openai_request_free(&embed.request);
    return WEIR_OK;
}

static weir_status read_as(const json_t *root, unsigned kind, weir_api_error *error)
{
    switch (kind % 7) {
    case 0: return read_llama(root, error);
    case 1: return read_ollama(root, WEIR_BODY_OLLAMA_CHAT, error);
    case 2: return read_ollama(root, WEIR_BODY_OLLAMA_GENERATE, error);
    case 3: return read_embed(root, WEIR_BODY_EMBEDDINGS, error);
    case 4: return read_embed(root, WEIR_BODY_RERANK, error);
    case 5: return read_embed(root, WEIR_BODY_OLLAMA_EMBED, error);
    default: return read_embed(root, WEIR_BODY_OLLAMA_EMBEDDINGS, error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char *const text = malloc(size);
    if (text == NULL) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    json_t *root = NULL;
    weir_api_error error = { 0 };
    if (weir_json_read(&root, text, size - 1, &error) == WEIR_OK &&
        read_as(root, data[0], &error) != WEIR_OK) {
        WEIR_ASSERT(error.status >= 400 && error.status < 600 && error.message[0] != 0);
        weir_buffer out = { 0 };
        if (weir_ollama_error_write(&out, &error) == WEIR_OK) {
            json_t *const object = json_loadb(out.data, out.size, JSON_REJECT_DUPLICATES, NULL);
            WEIR_ASSERT(object != NULL);
            json_decref(object);
        }
        weir_buffer_free(&out);
    }
    json_decref(root);
    free(text);
    return 0;
}
