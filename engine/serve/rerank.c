/* engine/serve/rerank.c - /v1/rerank: documents by what a model that ranks answers to the query and
 * each of them (weir_ranking); with other models, by the cosine of the angle between their
 * embedding and that of the query. */
#include <stdlib.h>

#include "engine/base/memory.h"
#include "engine/serve/embed_api.h"

typedef struct scored {
    size_t index; /* of the document */
    double score;
} scored;

/* Best first; equal ones in the client's order. */
static int compare(const void *left, const void *right)
{
    const scored *const a = left, *const b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static size_t n_documents(const weir_generation *g)
{
    return g->request.ranks ? g->n_prompts : g->n_prompts - 1;
}

static weir_status score_by_cosine(scored *out, const weir_generation *g)
{
    const weir_embed *const embed = g->api_data;
    const float *const query = weir_embed_unit(g, 0);
    for (size_t i = 0; i + 1 < g->n_prompts; i++) {
        const float *const document = weir_embed_unit(g, i + 1);
        double sum = 0;
        if (query == NULL || document == NULL) return WEIR_ECANCELED;
        for (int32_t k = 0; k < embed->dimensions; k++)
            sum += (double)query[k] * (double)document[k];
        out[i] = (scored){ i, sum };
    }
    return WEIR_OK;
}

/* Scores the documents. */
static weir_status score(scored *out, const weir_generation *g)
{
    if (!g->request.ranks) return score_by_cosine(out, g);
    for (size_t i = 0; i < g->n_prompts; i++) {
        if (g->prompts[i].score < 0) return WEIR_ECANCELED;
        out[i] = (scored){ i, g->prompts[i].score };
    }
    return WEIR_OK;
}

static void write_results(weir_json_out *json, const weir_generation *g, const scored *list)
{
    const weir_embed *const embed = g->api_data;
    const size_t n = n_documents(g), top = embed->top_n > 0 ? (size_t)embed->top_n : n;
    weir_json_key(json, "results");
    weir_json_open(json, '[');
    for (size_t i = 0; i < n && i < top; i++) {
        const json_t *const text = json_array_get(embed->texts, list[i].index + 1);
        weir_json_open(json, '{');
        weir_json_put_integer(json, "index", (int64_t)list[i].index);
        weir_json_put_number(json, "relevance_score", list[i].score);
        if (embed->return_documents) {
            weir_json_key(json, "document");
            weir_json_open(json, '{');
            weir_json_key(json, "text");
            weir_json_bytes(json, json_string_value(text), json_string_length(text));
            weir_json_close(json, '}');
        }
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

static weir_status whole(weir_buffer *out, weir_generation *g)
{
    weir_json_out json = { .buffer = out };
    scored *const list = weir_memory_take_zero(g->n_prompts, sizeof *list);
    if (list == NULL) return WEIR_ENOMEM;
    const weir_status status = score(list, g);
    if (status == WEIR_OK) {
        qsort(list, n_documents(g), sizeof *list, compare);
        weir_json_open(&json, '{');
        weir_json_put_string(&json, "object", "list");
        weir_json_put_string(&json, "model", g->exchange->server->options.model_name);
        write_results(&json, g, list);
        weir_embed_usage_write(&json, g);
        weir_json_close(&json, '}');
    }
    weir_memory_give(list);
    return status != WEIR_OK ? status : json.status;
}

/* ---- requests -------------------------------------------------------------------------------- */

static const weir_ranking *ranking_of(const weir_generation *g)
{
    return &weir_service_facts_of(g->exchange->server->options.service)->ranking;
}

/* The query is rendered and tokenised with each document: a small body would keep a worker busy for
 * a minute. */
static weir_status check_bytes(const json_t *texts, weir_api_error *error)
{
    enum { MOST = 64 << 20 };
    const size_t n = json_array_size(texts) - 1;
    if (json_string_length(json_array_get(texts, 0)) <= MOST / n) return WEIR_OK;
    return weir_api_bad(
        error, "query", "query: for %zu documents it has at most %zu bytes", n, MOST / n
    );
}

/* Each prompt becomes the query with a document: only documents are prompts. */
static weir_status ask_model(weir_generation *g, weir_api_error *error)
{
    const weir_embed *const embed = g->api_data;
    WEIR_TRY(check_bytes(embed->texts, error));
    json_t *const documents = json_array();
    int failed = documents == NULL;
    for (size_t i = 1; i < json_array_size(embed->texts) && !failed; i++)
        failed = json_array_append(documents, json_array_get(embed->texts, i));
    if (failed) {
        json_decref(documents);
        return weir_api_no_memory(error);
    }
    json_decref(g->request.root);
    g->request.root = documents;
    g->request.prompt = documents;
    g->request.embeds = false;
    g->request.ranks = g->request.cache_prompt = true;
    return WEIR_OK;
}

static weir_status read_body(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    WEIR_TRY(weir_embed_read(g, text, n, WEIR_BODY_RERANK, error));
    if (!ranking_of(g)->is_used) return WEIR_OK;
    if (g->exchange->server->loses_pairs)
        return weir_api_fail(
            error, 400, "chat_unsupported", "documents",
            "this model's chat template leaves out messages of the roles query and document, by "
            "which it would rank"
        );
    return ask_model(g, error);
}

static weir_status encode_pair(
    weir_generation *g, weir_ids *ids, const json_t *document, weir_api_error *error
)
{
    const weir_embed *const embed = g->api_data;
    weir_openai_request chat = { .chat = true, .add_generation_prompt = true };
    weir_buffer text = { 0 };
    chat.messages =
        weir_chat_pair(ranking_of(g)->prompt, json_array_get(embed->texts, 0), document);
    const weir_status status =
        chat.messages == NULL ? weir_api_no_memory(error)
                              : weir_chat_prompt(ids, g->exchange->server, &chat, &text, error);
    json_decref(chat.messages);
    weir_buffer_free(&text);
    return status;
}

static weir_status encode(
    weir_generation *g, weir_ids *ids, const json_t *source, weir_api_error *error
)
{
    if (g->request.ranks) return encode_pair(g, ids, source, error);
    const weir_encode_options options = { .add_special = true,
                                          .add_end = true,
                                          .parse_special = true };
    return weir_text_encode(
        ids, g->exchange->server, json_string_value(source), json_string_length(source), &options,
        "documents", error
    );
}

static void name_error(weir_api_error *error)
{
    static const weir_api_name names[] = { { "messages", "documents" } };
    weir_api_rename(error, names, 1);
}

void weir_rerank(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "rerank-",
                                  .prompt_field = "documents",
                                  .read = read_body,
                                  .encode = encode,
                                  .name_error = name_error,
                                  .whole = whole,
                                  .free_data = weir_embed_free };
    weir_generate(x, &api);
}
