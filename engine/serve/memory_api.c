/* engine/serve/memory_api.c - GET /v1/memory: the ledger's accounts, the KV store and its
 * sequences. */
#include "engine/base/memory.h"
#include "engine/serve/internal.h"
#include "engine/serve/kv_out.h"

/* A tier without a cap has no available bytes to report. */
static void write_tier(weir_json_out *json, const weir_ledger_state *state, weir_tier tier)
{
    const size_t cap = state->cap[tier], total = state->total[tier];
    weir_json_key(json, weir_tier_name(tier));
    weir_json_open(json, '{');
    weir_json_put_integer(json, "cap", (int64_t)cap);
    weir_json_put_integer(json, "used", (int64_t)total);
    weir_json_put_integer(json, "peak", (int64_t)state->peak[tier]);
    weir_json_put_integer(json, "available", (int64_t)(cap > total ? cap - total : 0));
    weir_json_key(json, "accounts");
    weir_json_open(json, '{');
    for (int account = 0; account < WEIR_ACCOUNT_COUNT; account++)
        weir_json_put_integer(
            json, weir_account_name((weir_account)account), (int64_t)state->used[tier][account]
        );
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

void weir_kv_formats_write(weir_json_out *json, const weir_engine_facts *facts)
{
    const struct {
        const char *key, *value;
    } texts[] = { { "format", facts->kv_format },
                  { "k_format", facts->k_format },
                  { "v_format", facts->v_format },
                  { "wide_format", facts->wide_format } };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        weir_json_put_string(json, texts[i].key, texts[i].value != NULL ? texts[i].value : "");
    weir_json_put_integer(json, "wide_layers", facts->wide_layers);
    weir_json_put_integer(json, "wide_sinks", facts->sink_tokens);
    weir_json_put_bool(json, "lossy", facts->kv_is_lossy);
}

/* Zero without a lower tier. Host pages are those below a device. Bytes moved and errors count both
 * tiers. */
static void write_cold(
    weir_json_out *json, const weir_engine_facts *facts, const weir_service_stats *stats
)
{
    weir_json_key(json, "host");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "pages", facts->kv_pages.n_host);
    weir_json_put_integer(json, "used_pages", stats->kv_host_pages_used);
    weir_json_close(json, '}');
    weir_json_key(json, "disk");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "pages", facts->kv_pages.n_disk);
    weir_json_put_integer(json, "used_pages", stats->kv_disk_pages_used);
    weir_json_put_integer(json, "bytes_out", stats->kv_bytes_out);
    weir_json_put_integer(json, "bytes_back", stats->kv_bytes_back);
    weir_json_put_integer(json, "bytes_read", stats->kv_bytes_read);
    weir_json_put_integer(json, "write_errors", stats->kv_write_errors);
    weir_json_put_integer(json, "read_errors", stats->kv_read_errors);
    weir_json_close(json, '}');
}

/* Layers with a sliding window, whose rows are in none of the other numbers. */
static void write_windows(
    weir_json_out *json, const weir_engine_facts *facts, const weir_service_stats *stats
)
{
    if (facts->kv_window == 0) return;
    weir_json_key(json, "windows");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "tokens", facts->kv_window);
    weir_json_put_integer(json, "blocks", facts->n_window_blocks);
    weir_json_put_integer(json, "free_blocks", stats->window_blocks_free);
    weir_json_put_integer(json, "cached_blocks", stats->window_blocks_cached);
    weir_json_put_integer(json, "bytes_per_sequence", facts->kv_window_bytes);
    weir_json_put_integer(json, "disk_blocks", facts->n_cold_windows);
    weir_json_put_integer(json, "used_disk_blocks", stats->window_blocks_cold);
    weir_json_put_integer(json, "blocks_out", stats->window_blocks_out);
    weir_json_put_integer(json, "blocks_back", stats->window_blocks_back);
    weir_json_put_integer(json, "disk_errors", stats->window_block_errors);
    weir_json_close(json, '}');
}

static void write_kv(
    weir_json_out *json, const weir_engine_facts *facts, const weir_service_stats *stats
)
{
    weir_json_key(json, "kv");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "page_bytes", facts->kv_page_bytes);
    weir_json_put_integer(json, "pages", stats->kv_pages_total);
    weir_json_put_integer(json, "free_pages", stats->kv_pages_total - stats->kv_pages_used);
    write_cold(json, facts, stats);
    weir_json_put_integer(json, "bytes", stats->kv_bytes_total);
    weir_json_put_integer(json, "used_bytes", stats->kv_bytes_used);
    weir_json_put_integer(json, "bytes_per_token", facts->kv_bytes_per_token);
    weir_json_put_integer(json, "free_tokens", stats->kv_tokens_free);
    weir_json_put_integer(json, "sink_pages", facts->kv_pages.n_sinks);
    weir_json_put_integer(json, "free_sink_pages", stats->kv_sink_pages_free);
    weir_json_put_integer(json, "bytes_per_sink_token", facts->kv_bytes_per_sink);
    weir_json_put_integer(json, "open_bytes_per_sequence", facts->kv_unsealed_bytes);
    write_windows(json, facts, stats);
    weir_kv_formats_write(json, facts);
    weir_json_close(json, '}');
    weir_json_put_integer(json, "recurrent_bytes_per_sequence", facts->recurrent_bytes);
}

static void write_expert_counts(weir_json_out *json, const weir_expert_counts *counts)
{
    weir_json_put_integer(json, "hits", counts->hits);
    weir_json_put_integer(json, "misses", counts->misses);
    weir_json_put_integer(json, "prefetched", counts->prefetched);
    weir_json_put_integer(json, "prefetch_used", counts->prefetch_used);
    weir_json_put_integer(json, "prefetch_unused", counts->prefetch_unused);
    weir_json_put_integer(json, "bytes_read", counts->bytes_read);
    weir_json_put_integer(json, "pinned", counts->pinned);
}

/* Of a mixture with memory.experts. */
static void write_experts(
    weir_json_out *json, const weir_service *service, const weir_expert_stats *experts
)
{
    if (experts->n_entries == 0) return;
    weir_json_key(json, "experts");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "total", experts->n_experts);
    weir_json_put_integer(json, "in_memory", experts->n_entries);
    weir_json_put_integer(json, "bytes", experts->n_entries * experts->entry_bytes);
    weir_json_put_integer(json, "read_errors", experts->errors);
    weir_json_put_integer(json, "waits", experts->waits);
    weir_json_put_number(json, "wait_seconds", (double)experts->wait_ns / 1e9);
    weir_json_put_string(json, "reads", experts->is_direct ? "direct" : "cached");
    weir_json_key(json, "layers");
    weir_json_open(json, '[');
    weir_expert_counts counts, all = { 0 };
    for (int64_t i = 0; i < weir_service_facts_of(service)->n_layers; i++) {
        if (!weir_service_expert_counts(service, i, &counts)) continue;
        weir_json_open(json, '{');
        weir_json_put_integer(json, "layer", i);
        write_expert_counts(json, &counts);
        weir_json_close(json, '}');
        weir_expert_counts_add(&all, &counts);
    }
    weir_json_close(json, ']');
    write_expert_counts(json, &all); /* the sums of these, while reads go on */
    weir_json_close(json, '}');
}

static void write_policy(weir_json_out *json, const weir_service_sequence *s)
{
    weir_json_key(json, "policy");
    weir_json_open(json, '{');
    weir_json_put_string(json, "name", s->kv_policy);
    weir_json_put_integer(json, "budget", s->kv_budget);
    weir_json_put_integer(json, "live", s->n_live);
    weir_json_put_integer(json, "evicted", s->n_evicted);
    weir_json_put_integer(json, "bytes", s->policy_bytes);
    weir_json_close(json, '}');
}

static void write_sequences(weir_json_out *json, const weir_service_sequence *sequences, int32_t n)
{
    weir_json_key(json, "sequences");
    weir_json_open(json, '[');
    for (const weir_service_sequence *s = sequences; s < sequences + n; s++) {
        weir_json_open(json, '{');
        weir_json_put_integer(json, "id", s->job);
        weir_json_put_integer(json, "choice", s->choice);
        weir_json_put_integer(json, "tokens", s->tokens);
        weir_json_put_integer(json, "bytes", s->bytes);
        weir_json_put_integer(json, "kv_bytes", s->kv_bytes);
        if (s->kv_policy != NULL) write_policy(json, s);
        if (s->banks.n_layers > 0) {
            weir_json_key(json, "banks");
            weir_bank_stats_write(json, &s->banks);
        }
        weir_json_close(json, '}');
    }
    weir_json_close(json, ']');
}

/* Budgets of the calling key only. */
static void write_budgets(
    weir_json_out *json, const weir_engine_facts *facts, const weir_service_sequence *sequences,
    int32_t n, int32_t client
)
{
    int64_t claimed = 0;
    for (const weir_service_sequence *s = sequences; s < sequences + n; s++)
        claimed += s->client == client ? s->kv_claim : 0;
    weir_json_key(json, "budgets");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "kv_per_request", facts->kv_per_request);
    weir_json_put_integer(json, "kv_per_key", facts->kv_per_key);
    weir_json_put_integer(json, "kv_claimed", claimed);
    weir_json_close(json, '}');
}

static weir_status write_all(
    weir_buffer *out, const weir_server *server, weir_service_sequence *sequences, int32_t client
)
{
    const weir_service *const service = server->options.service;
    const weir_engine_facts *const facts = weir_service_facts_of(service);
    weir_service_stats stats;
    weir_ledger_state state = { 0 };
    weir_service_stats_of(service, &stats);
    if (server->options.ledger != NULL) weir_ledger_read(server->options.ledger, &state);
    weir_json_out json = { .buffer = out };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "memory");
    weir_json_key(&json, "tiers");
    weir_json_open(&json, '{');
    for (int tier = 0; tier < WEIR_TIER_COUNT; tier++) write_tier(&json, &state, (weir_tier)tier);
    weir_json_close(&json, '}');
    write_kv(&json, facts, &stats);
    write_experts(&json, service, &stats.experts);
    const int32_t n_sequences = weir_service_sequences_of(service, sequences);
    write_sequences(&json, sequences, n_sequences);
    write_budgets(&json, facts, sequences, n_sequences, client);
    weir_json_key(&json, "kept");
    weir_json_open(&json, '{');
    weir_json_put_integer(&json, "tokens", stats.kept_tokens);
    weir_json_put_integer(&json, "bytes", stats.kept_bytes);
    weir_json_put_integer(&json, "states", stats.kept_states);
    weir_json_put_integer(&json, "policy_sequences", stats.kept_pruned_sequences);
    weir_json_put_integer(&json, "policy_tokens", stats.kept_pruned_tokens);
    weir_json_put_integer(&json, "dropped_tokens", stats.dropped_tokens);
    weir_json_put_integer(&json, "unsaved_tokens", stats.unsaved_tokens);
    weir_json_put_integer(&json, "saved_sequences", stats.saved_sequences);
    weir_json_put_integer(&json, "saved_tokens", stats.saved_tokens);
    weir_json_put_integer(&json, "save_failures", stats.save_failures);
    weir_json_put_integer(&json, "saves_given_up", stats.saves_given_up);
    weir_json_put_integer(&json, "replaced_sequences", stats.replaced_sequences);
    weir_json_put_integer(&json, "found_sequences", stats.found_sequences);
    weir_json_put_integer(&json, "found_tokens", stats.found_tokens);
    weir_json_close(&json, '}');
    weir_json_put_integer(&json, "preemptions", stats.preemptions);
    weir_json_put_integer(&json, "evicted_tokens", stats.evicted_tokens);
    weir_json_close(&json, '}');
    return json.status;
}

void weir_memory_get(weir_exchange *x)
{
    weir_buffer text = { 0 };
    weir_service_sequence *const sequences =
        weir_memory_take_zero((size_t)x->server->limits.n_slots, sizeof *sequences);
    const weir_status status =
        sequences != NULL ? write_all(&text, x->server, sequences, x->key) : WEIR_ENOMEM;
    weir_memory_give(sequences);
    weir_reply_result(x, &text, status);
}
