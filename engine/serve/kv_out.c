#include "engine/serve/kv_out.h"

static void write_part(weir_json_out *json, const char *name, const weir_coda_slot_use *part)
{
    weir_json_key(json, name);
    weir_json_open(json, '{');
    weir_json_put_integer(json, "slots", part->slots);
    weir_json_put_integer(json, "open", part->open);
    weir_json_put_integer(json, "used", part->used);
    weir_json_put_number(
        json, "fill", part->slots > 0 ? (double)part->used / (double)part->slots : 0.0
    );
    weir_json_close(json, '}');
}

void weir_coda_stats_write(weir_json_out *json, const weir_coda_stats *coda)
{
    weir_json_open(json, '{');
    weir_json_put_integer(json, "layers", coda->n_layers);
    weir_json_put_integer(json, "live", weir_coda_stats_live(coda));
    weir_json_put_integer(json, "evicted", weir_coda_stats_evicted(coda));
    write_part(json, "ring", &coda->ring);
    write_part(json, "exact", &coda->exact);
    write_part(json, "summary", &coda->summary);
    weir_json_key(json, "counts");
    weir_json_open(json, '{');
    for (int i = 0; i < WEIR_CODA_STATS_COUNTS; i++)
        weir_json_put_integer(json, weir_coda_counter_name((weir_coda_counter)i), coda->counts[i]);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

void weir_usage_kv_write(
    weir_json_out *json, const weir_engine_facts *facts, const weir_usage *usage
)
{
    const bool has_coda = usage->coda.n_layers > 0, has_policy = usage->kv_policy != NULL;
    if (!facts->kv_is_lossy && !has_policy && !has_coda) return;
    weir_json_key(json, "kv");
    weir_json_open(json, '{');
    weir_json_put_string(json, "format", facts->kv_format);
    weir_json_put_integer(json, "bytes", usage->kv_bytes);
    weir_json_put_integer(json, "rows", usage->n_rows);
    if (has_policy || has_coda) {
        weir_json_put_integer(json, "live", usage->n_rows);
        weir_json_put_integer(json, "evicted", usage->n_evicted);
    }
    if (has_policy) {
        weir_json_put_string(json, "policy", usage->kv_policy);
        weir_json_put_integer(json, "budget", usage->kv_budget);
    }
    if (has_coda) {
        weir_json_key(json, "banks");
        weir_coda_stats_write(json, &usage->coda);
    }
    weir_json_close(json, '}');
}
