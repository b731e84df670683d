/* engine/serve/memory_plan.c - GET /v1/memory/plan: what KV rows would take in each format that the
 * model can have, and which policies could keep fewer of them. */
#include "engine/base/error.h"
#include "engine/serve/internal.h"
#include "engine/serve/kv_out.h"
#include "kernels/abi/kv_layout.h"
#include "kernels/abi/minmax.h"

/* Layers of one geometry that keep all rows. */
typedef struct group {
    int64_t n_layers, n_heads, key_dim, value_dim; /* value_dim: as stored */
} group;

enum { GROUPS = 2 };

static void find_groups(group out[GROUPS], const weir_engine_facts *facts)
{
    const int64_t n_local = facts->n_local_layers;
    const int64_t local_values = facts->values_alias_keys ? 0 : facts->local_value_dim;
    out[0] = (group){ facts->n_kv_layers - facts->n_window_layers - n_local, facts->n_kv_heads,
                      facts->key_dim, facts->values_alias_keys ? 0 : facts->value_dim };
    out[1] = (group){ n_local, facts->n_local_kv_heads, facts->local_key_dim, local_values };
}

static bool can_have(const group groups[GROUPS], weir_kv_format format)
{
    for (const group *g = groups; g < groups + GROUPS; g++) {
        if (g->n_layers <= 0) continue;
        if (weir_kv_format_reject(format, WEIR_KV_K, g->key_dim) != NULL) return false;
        if (g->value_dim > 0 && weir_kv_format_reject(format, WEIR_KV_V, g->value_dim) != NULL)
            return false;
    }
    return true;
}

static void write_format(
    weir_json_out *json, const group groups[GROUPS], weir_kv_format format, int64_t alignment
)
{
    int64_t page = 0, open = 0;
    WEIR_ASSERT(weir_kv_bits(format) > 0); /* no COUNT */
    for (const group *g = groups; g < groups + GROUPS; g++) {
        if (g->n_layers <= 0) continue;
        const int64_t n = g->n_layers * g->n_heads;
        const int64_t bytes = weir_kv_bytes(format, format, g->key_dim, g->value_dim);
        page += n * ((bytes + alignment - 1) / alignment * alignment);
        open += n * weir_kv_unsealed_bytes(format, format, g->key_dim, g->value_dim);
    }
    weir_json_open(json, '{');
    weir_json_put_string(json, "format", weir_kv_format_name(format));
    weir_json_put_bool(json, "lossy", weir_kv_is_lossy(format));
    weir_json_put_integer(json, "bytes_per_block", page);
    weir_json_put_integer(json, "open_bytes_per_sequence", open);
    weir_json_close(json, '}');
}

static void write_policies(weir_json_out *json)
{
    static const char *const names[] = {
#define WEIR_POLICY(name) #name,
#include "engine/kv/policy/list.inc"
    };
    weir_json_key(json, "policies");
    weir_json_open(json, '[');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) weir_json_string(json, names[i]);
    weir_json_close(json, ']');
}

void weir_memory_plan_get(weir_exchange *x)
{
    const weir_engine_facts *const facts = weir_service_facts_of(x->server->options.service);
    weir_service_stats stats;
    weir_service_stats_of(x->server->options.service, &stats);
    group groups[GROUPS];
    find_groups(groups, facts);
    const int64_t alignment = weir_max(1, facts->kv_page_alignment);
    weir_buffer text = { 0 };
    weir_json_out json = { .buffer = &text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "memory.plan");
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        { "window", facts->window },
        { "trained_context", facts->trained_context },
        { "sequences", facts->n_slots },
        { "block_tokens", WEIR_PAGE_TOKENS },
        { "kv_bytes", stats.kv_bytes_total },
        { "weight_bytes", facts->weight_bytes },
        { "layers", groups[0].n_layers + groups[1].n_layers },
        { "kv_heads", facts->n_kv_heads },
        { "recurrent_bytes_per_sequence", facts->recurrent_bytes },
        { "window_bytes_per_sequence", facts->kv_window_bytes },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        weir_json_put_integer(&json, numbers[i].key, numbers[i].value);
    weir_json_key(&json, "formats");
    weir_json_open(&json, '[');
    for (int i = 0; i < WEIR_KV_FORMAT_COUNT; i++)
        if (can_have(groups, (weir_kv_format)i))
            write_format(&json, groups, (weir_kv_format)i, alignment);
    weir_json_close(&json, ']');
    write_policies(&json);
    weir_json_close(&json, '}');
    weir_reply_result(x, &text, json.status);
}
