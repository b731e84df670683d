/* engine/serve/rerank.c - /v1/rerank: documents by the cosine of the angle between their embedding
 * and that of the query. */
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

/* Scores the documents [n_prompts - 1]. */
static weir_status score(scored *out, const weir_generation *g)
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

static void write_results(weir_json_out *json, const weir_generation *g, const scored *list)
{
    const weir_embed *const embed = g->api_data;
    const size_t n = g->n_prompts - 1, top = embed->top_n > 0 ? (size_t)embed->top_n : n;
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
        qsort(list, g->n_prompts - 1, sizeof *list, compare);
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

static weir_status read_body(weir_generation *g, const char *text, size_t n, weir_api_error *error)
{
    return weir_embed_read(g, text, n, WEIR_BODY_RERANK, error);
}

void weir_rerank(weir_exchange *x)
{
    static const weir_api api = { .id_prefix = "rerank-",
                                  .prompt_field = "documents",
                                  .read = read_body,
                                  .whole = whole,
                                  .free_data = weir_embed_free };
    weir_generate(x, &api);
}
