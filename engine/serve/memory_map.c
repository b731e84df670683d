/* engine/serve/memory_map.c - GET /v1/memory/map: KV rows and pages of running sequences by layer
 * and KV head. Its size depends on the model, not on the memory. */
#include "engine/base/memory.h"
#include "engine/schedule/kv_map.h"
#include "engine/serve/internal.h"
#include "kernels/abi/minmax.h"

enum { MOST_SEQUENCES = 8, MOST_HEADS = 8192 };

/* One array for each of these, with a number for each KV head. */
static void write_layer(
    weir_json_out *json, const int32_t *rows, const weir_kv_page_counts *pages, int64_t n
)
{
    static const char *const keys[] = { "rows", "pages", "cold", "shared" };
    weir_json_open(json, '{');
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        weir_json_key(json, keys[k]);
        weir_json_open(json, '[');
        for (int64_t h = 0; h < n; h++) {
            const int32_t values[] = { rows[h], pages[h].pages, pages[h].cold, pages[h].shared };
            weir_json_integer(json, values[k]);
        }
        weir_json_close(json, ']');
    }
    weir_json_close(json, '}');
}

/* Of the sequence at index i of the map. */
static void write_layers(
    weir_json_out *json, const weir_service *service, const weir_kv_map *map, int32_t i
)
{
    const int64_t n_heads = weir_service_kv_heads(service);
    const int32_t *const rows = map->rows + i * n_heads;
    const weir_kv_page_counts *const pages = map->pages + i * n_heads;
    weir_json_key(json, "layers");
    weir_json_open(json, '[');
    for (int64_t first = 0, end; first < n_heads; first = end) {
        const int64_t layer = weir_service_kv_layer(service, first);
        end = first + 1;
        while (end < n_heads && weir_service_kv_layer(service, end) == layer) end++;
        write_layer(json, rows + first, pages + first, end - first);
    }
    weir_json_close(json, ']');
}

static void write_sequence(
    weir_json_out *json, const weir_service *service, const weir_kv_map *map, int32_t i
)
{
    const weir_kv_map_sequence *const sequence = &map->sequences[i];
    weir_json_open(json, '{');
    weir_json_put_integer(json, "id", sequence->job);
    weir_json_put_integer(json, "choice", sequence->choice);
    weir_json_put_integer(json, "tokens", sequence->tokens);
    weir_json_put_integer(json, "kv_bytes", sequence->kv_bytes);
    if (sequence->kv_policy != NULL) weir_json_put_string(json, "policy", sequence->kv_policy);
    write_layers(json, service, map, i);
    weir_json_close(json, '}');
}

static void reply(weir_exchange *x, const weir_kv_map *map)
{
    const weir_service *const service = x->server->options.service;
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "memory.map");
    weir_json_put_integer(&json, "page_tokens", WEIR_PAGE_TOKENS);
    weir_json_put_bool(&json, "cut", map->is_cut);
    weir_json_key(&json, "sequences");
    weir_json_open(&json, '[');
    for (int32_t i = 0; i < map->n; i++) write_sequence(&json, service, map, i);
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}

void weir_memory_map_get(weir_exchange *x)
{
    weir_service *const service = x->server->options.service;
    const int64_t n_heads = weir_service_kv_heads(service),
                  fit = n_heads > 0 ? MOST_HEADS / n_heads : MOST_SEQUENCES,
                  most = weir_max(1, weir_min(fit, MOST_SEQUENCES));
    weir_kv_map map = { .most = (int32_t)most };
    map.sequences = weir_memory_take_zero((size_t)most, sizeof *map.sequences);
    map.rows = weir_memory_take_zero((size_t)(most * (n_heads + 1)), sizeof *map.rows);
    map.pages = weir_memory_take_zero((size_t)(most * (n_heads + 1)), sizeof *map.pages);
    if (map.sequences != NULL && map.rows != NULL && map.pages != NULL) {
        weir_service_kv_map(service, &map);
        reply(x, &map);
    } else {
        weir_reply_status(x, WEIR_ENOMEM);
    }
    weir_memory_give(map.sequences);
    weir_memory_give(map.rows);
    weir_memory_give(map.pages);
}
