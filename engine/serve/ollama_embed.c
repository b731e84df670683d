/* engine/serve/ollama_embed.c - Ollama's /api/embed, and the older /api/embeddings for one text. */
#include "engine/base/clock.h"
#include "engine/serve/embed_api.h"

static weir_status write_vector(weir_json_out *json, const weir_generation *g, size_t index)
{
    const weir_embed *const embed = g->api_data;
    const float *const vector = weir_embed_unit(g, index);
    if (vector == NULL) return WEIR_ECANCELED;
    weir_embed_array_write(json, vector, embed->dimensions);
    return json->status;
}

static weir_status write_list(weir_buffer *out, weir_generation *g)
{
    const weir_embed *const embed = g->api_data;
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "model", embed->model);
    weir_json_key(&json, "embeddings");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < g->n_prompts; i++) WEIR_TRY(write_vector(&json, g, i));
    weir_json_close(&json, ']');
    weir_json_put_integer(&json, "total_duration", weir_clock_ns() - g->exchange->start_ns);
    weir_json_put_integer(&json, "load_duration", 0);
    weir_json_put_integer(&json, "prompt_eval_count", weir_generation_usage(g).n_prompt);
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status write_one(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_key(&json, "embedding");
    WEIR_TRY(write_vector(&json, g, 0));
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status read_list(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    return weir_embed_read(g, text, n, WEIR_BODY_OLLAMA_EMBED, error);
}

static weir_status read_one(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    return weir_embed_read(g, text, n, WEIR_BODY_OLLAMA_EMBEDDINGS, error);
}

void weir_ollama_embed(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "embd-",
                                  .prompt_field = "input",
                                  .read = read_list,
                                  .whole = write_list,
                                  .free_data = weir_embed_free };
    weir_generate(x, &api);
}

void weir_ollama_embeddings(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "embd-",
                                  .prompt_field = "prompt",
                                  .read = read_one,
                                  .whole = write_one,
                                  .free_data = weir_embed_free };
    weir_generate(x, &api);
}
