#include "engine/serve/kv_out.h"

static void write_part(weir_json_out *json, const char *name, const weir_bank_use *part)
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

void weir_bank_stats_write(weir_json_out *json, const weir_bank_stats *banks)
{
    weir_json_open(json, '{');
    weir_json_put_integer(json, "layers", banks->n_layers);
    weir_json_put_integer(json, "live", weir_bank_stats_live(banks));
    weir_json_put_integer(json, "evicted", weir_bank_stats_evicted(banks));
    write_part(json, "ring", &banks->ring);
    write_part(json, "exact", &banks->exact);
    write_part(json, "summary", &banks->summary);
    weir_json_key(json, "counts");
    weir_json_open(json, '{');
    for (int i = 0; i < WEIR_BANK_STATS_COUNTS; i++)
        weir_json_put_integer(json, weir_bank_counter_name((weir_bank_counter)i), banks->counts[i]);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

void weir_usage_kv_write(
    weir_json_out *json, const weir_engine_facts *facts, const weir_usage *usage
)
{
    const bool has_banks = usage->banks.n_layers > 0, has_policy = usage->kv_policy != NULL;
    if (!facts->kv_is_lossy && !has_policy && !has_banks) return;
    weir_json_key(json, "kv");
    weir_json_open(json, '{');
    weir_json_put_string(json, "format", facts->kv_format);
    if (!usage->is_cut) {
        weir_json_put_integer(json, "bytes", usage->kv_bytes);
        weir_json_put_integer(json, "rows", usage->n_rows);
    }
    if (!usage->is_cut && (has_policy || has_banks)) {
        weir_json_put_integer(json, "live", usage->n_rows);
        weir_json_put_integer(json, "evicted", usage->n_evicted);
    }
    if (has_policy) {
        weir_json_put_string(json, "policy", usage->kv_policy);
        weir_json_put_integer(json, "budget", usage->kv_budget);
    }
    if (has_banks) {
        weir_json_key(json, "banks");
        weir_bank_stats_write(json, &usage->banks);
    }
    weir_json_close(json, '}');
}
