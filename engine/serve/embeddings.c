/* engine/serve/embeddings.c - /v1/embeddings. Texts are prompts of a generation without answers;
 * their embeddings are those of the service, at length 1. */
#include <math.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/embed_api.h"
#include "engine/serve/json_in.h"

static const weir_embed *embed_of(const weir_generation *g) { return g->api_data; }

/* ---- vectors --------------------------------------------------------------------------------- */

float *weir_embed_unit(const weir_generation *g, size_t prompt)
{
    const int32_t n = embed_of(g)->dimensions;
    float *const vector = g->prompts[prompt].embedding;
    double squares = 0;
    if (vector == NULL) return NULL;
    for (int32_t i = 0; i < n; i++) squares += (double)vector[i] * (double)vector[i];
    const double scale = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int32_t i = 0; i < n; i++) vector[i] = (float)((double)vector[i] * scale);
    return vector;
}

void weir_embed_array_write(weir_json_out *json, const float *vector, int32_t n)
{
    weir_json_open(json, '[');
    for (int32_t i = 0; i < n; i++) weir_json_number(json, (double)vector[i]);
    weir_json_close(json, ']');
}

/* Three bytes as four letters; the last may be padding. */
static void add_letters(char out[4], const unsigned char *bytes, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint32_t word = (uint32_t)bytes[0] << 16 | (n > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                          (n > 2 ? (uint32_t)bytes[2] : 0);
    for (int i = 0; i < 4; i++) out[i] = letters[word >> (18 - 6 * i) & 63];
    if (n < 2) out[2] = '=';
    if (n < 3) out[3] = '=';
}

/* The bytes of vector [n], each number in f32 with its lowest byte first, in base64. */
static weir_status write_base64(weir_json_out *json, const float *vector, int32_t n)
{
    const size_t n_bytes = (size_t)n * sizeof *vector;
    weir_buffer text = { 0 };
    WEIR_TRY(weir_buffer_reserve(&text, (n_bytes + 2) / 3 * 4));
    for (size_t at = 0; at < n_bytes; at += 3) {
        unsigned char bytes[3] = { 0 };
        char quad[4];
        const size_t left = n_bytes - at, n_now = left < 3 ? left : 3;
        memcpy(bytes, (const char *)vector + at, n_now);
        add_letters(quad, bytes, n_now);
        (void)!weir_buffer_add(&text, quad, sizeof quad); /* it was reserved */
    }
    weir_json_bytes(json, text.data, text.size);
    weir_buffer_free(&text);
    return json->status;
}

/* ---- replies --------------------------------------------------------------------------------- */

static weir_status write_item(weir_json_out *json, const weir_generation *g, size_t index)
{
    const weir_embed *const embed = embed_of(g);
    const float *const vector = weir_embed_unit(g, index);
    if (vector == NULL) return WEIR_ECANCELED;
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "embedding");
    weir_json_put_integer(json, "index", (int64_t)index);
    weir_json_key(json, "embedding");
    if (embed->base64)
        WEIR_TRY(write_base64(json, vector, embed->dimensions));
    else
        weir_embed_array_write(json, vector, embed->dimensions);
    weir_json_close(json, '}');
    return json->status;
}

static weir_status whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "list");
    weir_json_put_string(&json, "model", g->exchange->server->options.model_name);
    weir_json_key(&json, "data");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < g->n_prompts; i++) WEIR_TRY(write_item(&json, g, i));
    weir_json_close(&json, ']');
    weir_embed_usage_write(&json, g);
    weir_json_close(&json, '}');
    return json.status;
}

void weir_embed_usage_write(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    weir_json_key(json, "usage");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "prompt_tokens", usage.n_prompt);
    weir_json_put_integer(json, "total_tokens", usage.n_prompt);
    weir_json_close(json, '}');
}

/* ---- requests -------------------------------------------------------------------------------- */

void weir_embed_free(void *data)
{
    weir_embed *const embed = data;
    json_decref(embed->texts);
    weir_memory_give(embed);
}

static weir_status keep(weir_generation *g, const weir_embed_request *read, int32_t d_model)
{
    weir_embed *const embed = weir_memory_take_zero(1, sizeof *embed);
    if (embed == NULL) return WEIR_ENOMEM;
    *embed = (weir_embed){ .base64 = read->base64,
                           .return_documents = read->return_documents,
                           .dimensions = read->dimensions > 0 ? read->dimensions : d_model,
                           .top_n = read->top_n,
                           .texts = json_incref(read->request.root) };
    memcpy(embed->model, read->model, sizeof embed->model);
    g->api_data = embed;
    return WEIR_OK;
}

weir_status weir_embed_read(
    weir_generation *g, const char *text, size_t n, weir_body body, weir_api_error *error
)
{
    const weir_server *const server = g->exchange->server;
    const int32_t d_model = weir_service_facts_of(server->options.service)->d_model;
    json_t *root = NULL;
    weir_embed_request read = { .model = "" };
    WEIR_TRY(weir_json_read(&root, text, n, error));
    const weir_status status =
        weir_embed_request_read(&read, root, body, d_model, &server->limits, error);
    json_decref(root);
    WEIR_TRY(status);
    g->request = read.request;
    return keep(g, &read, d_model) == WEIR_OK ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status read_body(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    return weir_embed_read(g, text, n, WEIR_BODY_EMBEDDINGS, error);
}

void weir_embeddings(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "embd-",
                                  .prompt_field = "input",
                                  .read = read_body,
                                  .whole = whole,
                                  .free_data = weir_embed_free };
    weir_generate(x, &api);
}
