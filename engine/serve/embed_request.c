#include "engine/serve/embed_request.h"

#include <string.h>

#include "engine/serve/json_in.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* Takes over `texts`. */
static void set_texts(
    weir_openai_request *request, json_t *texts, const weir_request_limits *limits
)
{
    *request = (weir_openai_request){ .n = 1,
                                      .embeds = true,
                                      .thought_tokens = -1,
                                      .sampling = limits->sampling,
                                      .prompt = texts,
                                      .root = texts };
    request->sampling.bias = NULL;
    request->sampling.n_bias = 0;
}

static weir_status read_texts(
    weir_embed_request *out, const json_t *root, weir_body body, const weir_request_limits *limits,
    weir_api_error *error
)
{
    const bool is_one = body == WEIR_BODY_OLLAMA_EMBEDDINGS;
    const char *const key = is_one ? "prompt" : "input";
    json_t *const texts = json_object_get(root, key);
    if (is_one && !json_is_string(texts))
        return weir_api_bad(error, key, "prompt must be a string");
    WEIR_TRY(weir_openai_check_prompts(texts, key, WEIR_EMBEDDED_PROMPTS, limits->n_vocab, error));
    set_texts(&out->request, json_incref(texts), limits);
    return WEIR_OK;
}

/* A document is a string or {"text": ...}. */
static weir_status add_document(
    json_t *texts, const json_t *document, size_t index, weir_api_error *error
)
{
    json_t *const text =
        json_is_object(document) ? json_object_get(document, "text") : (json_t *)document;
    if (!json_is_string(text) || json_string_length(text) == 0)
        return weir_api_bad(
            error, "documents", "documents[%zu] must be a string that is not empty", index
        );
    return json_array_append(texts, text) == 0 ? WEIR_OK : weir_api_no_memory(error);
}

static weir_status add_documents(json_t *texts, const json_t *root, weir_api_error *error)
{
    const json_t *const documents = weir_field(root, "documents");
    json_t *const query = json_object_get(root, "query");
    const size_t n = json_array_size(documents);
    if (!json_is_string(query) || json_string_length(query) == 0)
        return weir_api_bad(error, "query", "query must be a string that is not empty");
    if (n < 1 || n >= WEIR_EMBEDDED_PROMPTS)
        return weir_api_bad(
            error, "documents", "documents must be an array of 1 to %d strings",
            WEIR_EMBEDDED_PROMPTS - 1
        );
    if (json_array_append(texts, query) != 0) return weir_api_no_memory(error);
    for (size_t i = 0; i < n; i++)
        WEIR_TRY(add_document(texts, json_array_get(documents, i), i, error));
    return WEIR_OK;
}

/* The query, then the documents. */
static weir_status read_ranked(
    weir_embed_request *out, const json_t *root, const weir_request_limits *limits,
    weir_api_error *error
)
{
    int64_t top = 0;
    WEIR_TRY(weir_field_integer(root, "top_n", 1, INT32_MAX, &top, error));
    WEIR_TRY(weir_field_bool(root, "return_documents", &out->return_documents, error));
    out->top_n = (int32_t)top;
    json_t *const texts = json_array();
    const weir_status status =
        texts != NULL ? add_documents(texts, root, error) : weir_api_no_memory(error);
    if (status == WEIR_OK)
        set_texts(&out->request, texts, limits);
    else
        json_decref(texts);
    return status;
}

/* ---- vectors --------------------------------------------------------------------------------- */

static weir_status read_dimensions(
    weir_embed_request *out, const json_t *root, int32_t d_model, weir_api_error *error
)
{
    int64_t dimensions = 0;
    WEIR_TRY(weir_field_integer(root, "dimensions", 1, d_model, &dimensions, error));
    out->dimensions = (int32_t)dimensions;
    return WEIR_OK;
}

static weir_status read_format(weir_embed_request *out, const json_t *root, weir_api_error *error)
{
    static const char key[] = "encoding_format";
    const char *format = "float";
    WEIR_TRY(weir_field_text(root, key, &format, error));
    out->base64 = strcmp(format, "base64") == 0;
    if (out->base64 || strcmp(format, "float") == 0) return WEIR_OK;
    return weir_api_bad(error, key, "encoding_format must be \"float\" or \"base64\"");
}

weir_status weir_embed_request_read(
    weir_embed_request *out, const json_t *root, weir_body body, int32_t d_model,
    const weir_request_limits *limits, weir_api_error *error
)
{
    weir_embed_request read = { .model = "" };
    weir_unknown_fields unknown = { 0 };
    const bool is_ollama = body == WEIR_BODY_OLLAMA_EMBED || body == WEIR_BODY_OLLAMA_EMBEDDINGS;
    if (is_ollama)
        WEIR_TRY(weir_ollama_model_read(read.model, root, "model", limits, error));
    else
        WEIR_TRY(weir_openai_check_model(root, limits, error));
    WEIR_TRY(weir_fields_check(root, body, &unknown, error));
    if (body == WEIR_BODY_EMBEDDINGS || body == WEIR_BODY_OLLAMA_EMBED)
        WEIR_TRY(read_dimensions(&read, root, d_model, error));
    if (body == WEIR_BODY_EMBEDDINGS) WEIR_TRY(read_format(&read, root, error));
    if (body == WEIR_BODY_RERANK)
        WEIR_TRY(read_ranked(&read, root, limits, error));
    else
        WEIR_TRY(read_texts(&read, root, body, limits, error));
    read.request.unknown = unknown;
    *out = read;
    return WEIR_OK;
}
