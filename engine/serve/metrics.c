/* engine/serve/metrics.c - Prometheus text exposition 0.0.4. Labels come from the configuration,
 * never from requests. */
#include "engine/serve/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

/* Upper bounds in seconds: the first buckets resolve tokens of a fast CPU model, the last ones a
 * long prefill. */
static const double time_bound[WEIR_HISTOGRAM_BUCKETS] = { 0.001, 0.002, 0.005, 0.01, 0.02,
                                                           0.03,  0.05,  0.075, 0.1,  0.15,
                                                           0.25,  0.5,   0.75,  1.0,  2.5,
                                                           5.0,   10.0,  30.0,  60.0, 300.0 };
static const double count_bound[WEIR_HISTOGRAM_BUCKETS] = {
    1,    2,    5,    10,    20,    50,    100,    200,    500,    1000,
    2000, 5000, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576
};

static const struct {
    const char *name, *help;
    bool tokens;
} histograms[WEIR_HISTOGRAM_COUNT] = {
    [WEIR_HISTOGRAM_FIRST_TOKEN] = { "time_to_first_token_seconds",
                                     "From the request to its first token.", false },
    [WEIR_HISTOGRAM_INTER_TOKEN] = { "inter_token_latency_seconds",
                                     "Between two tokens of one choice.", false },
    [WEIR_HISTOGRAM_WHOLE] = { "e2e_request_latency_seconds",
                               "From the request to the end of its answer.", false },
    [WEIR_HISTOGRAM_QUEUE] = { "request_queue_time_seconds", "Time in the queue.", false },
    [WEIR_HISTOGRAM_PREFILL] = { "request_prefill_time_seconds",
                                 "Time from admission to the first token.", false },
    [WEIR_HISTOGRAM_DECODE] = { "request_decode_time_seconds",
                                "Time from the first token to the last.", false },
    [WEIR_HISTOGRAM_PROMPT_TOKENS] = { "request_prompt_tokens", "Prompt tokens of a request.",
                                       true },
    [WEIR_HISTOGRAM_ANSWER_TOKENS] = { "request_generation_tokens", "Answer tokens of a request.",
                                       true },
};
static const char *const success_reason[WEIR_SUCCESS_COUNT] = { "stop", "length", "tool_calls" };

void weir_metrics_observe(weir_metrics *metrics, weir_histogram_name name, int64_t value)
{
    const bool tokens = histograms[name].tokens;
    const double *const bound = tokens ? count_bound : time_bound;
    if (value < 0) value = 0;
    const double x = tokens ? (double)value : (double)value * 1e-9;
    int i = 0;
    while (i < WEIR_HISTOGRAM_BUCKETS && x > bound[i]) i++;
    weir_metrics_add(&metrics->histogram[name].bucket[i], 1);
    weir_metrics_add(&metrics->histogram[name].sum, (uint64_t)value);
}

typedef struct writer {
    weir_buffer *out;
    const char *prefix;
    weir_buffer label; /* model_name="...", escaped */
} writer;

static weir_status head(const writer *w, const char *name, const char *type, const char *help)
{
    return weir_buffer_format(
        w->out, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", w->prefix, name, help, w->prefix, name, type
    );
}

static weir_status sample(
    const writer *w, const char *name, const char *type, const char *help, double value
)
{
    WEIR_TRY(head(w, name, type, help));
    return weir_buffer_format(w->out, "%s:%s{%s} %.17g\n", w->prefix, name, w->label.data, value);
}

static weir_status write_histogram(
    const writer *w, const weir_metrics *metrics, weir_histogram_name name
)
{
    const char *const text = histograms[name].name;
    const double *const bound = histograms[name].tokens ? count_bound : time_bound;
    WEIR_TRY(head(w, text, "histogram", histograms[name].help));
    uint64_t count = 0;
    for (int i = 0; i <= WEIR_HISTOGRAM_BUCKETS; i++) {
        count += __atomic_load_n(&metrics->histogram[name].bucket[i], __ATOMIC_RELAXED);
        WEIR_TRY(weir_buffer_format(w->out, "%s:%s_bucket{%s,le=\"", w->prefix, text, w->label.data)
        );
        if (i < WEIR_HISTOGRAM_BUCKETS)
            WEIR_TRY(weir_buffer_format(w->out, "%.10g", bound[i]));
        else
            WEIR_TRY(weir_buffer_text(w->out, "+Inf"));
        WEIR_TRY(weir_buffer_format(w->out, "\"} %" PRIu64 "\n", count));
    }
    const double sum = (double)__atomic_load_n(&metrics->histogram[name].sum, __ATOMIC_RELAXED);
    WEIR_TRY(weir_buffer_format(
        w->out, "%s:%s_sum{%s} %.17g\n", w->prefix, text, w->label.data,
        histograms[name].tokens ? sum : sum * 1e-9
    ));
    return weir_buffer_format(
        w->out, "%s:%s_count{%s} %" PRIu64 "\n", w->prefix, text, w->label.data, count
    );
}

static double load(const uint64_t *counter)
{
    return (double)__atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* The metrics that dashboards and gateways expect. */
static weir_status write_common(
    const writer *w, const weir_metrics *m, const weir_service_stats *stats,
    const weir_engine_facts *facts
)
{
    const double used = stats->kv_pages_total > 0
                            ? (double)stats->kv_pages_used / (double)stats->kv_pages_total
                            : 0.0;
    WEIR_TRY(sample(w, "num_requests_running", "gauge", "Sequences in the batch.", stats->running));
    WEIR_TRY(sample(w, "num_requests_waiting", "gauge", "Requests in the queue.", stats->waiting));
    WEIR_TRY(sample(w, "kv_cache_usage_perc", "gauge", "Used share of the KV pages, 0 to 1.", used)
    );
    WEIR_TRY(sample(
        w, "prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
        load(&m->prompt_tokens)
    ));
    WEIR_TRY(sample(
        w, "prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
        load(&m->cached_tokens)
    ));
    WEIR_TRY(sample(
        w, "prompt_tokens_total", "counter", "Prompt tokens, cached ones too.",
        load(&m->prompt_tokens)
    ));
    WEIR_TRY(
        sample(w, "generation_tokens_total", "counter", "Answer tokens.", load(&m->answer_tokens))
    );
    WEIR_TRY(sample(
        w, "spec_decode_num_draft_tokens_total", "counter", "Tokens guessed by speculation.",
        (double)stats->drafted_tokens
    ));
    WEIR_TRY(sample(
        w, "spec_decode_num_accepted_tokens_total", "counter", "Of these, tokens of answers.",
        (double)stats->accepted_tokens
    ));
    WEIR_TRY(head(w, "request_success_total", "counter", "Requests answered to the end."));
    for (int i = 0; i < WEIR_SUCCESS_COUNT; i++)
        WEIR_TRY(weir_buffer_format(
            w->out, "%s:request_success_total{%s,finished_reason=\"%s\"} %.17g\n", w->prefix,
            w->label.data, success_reason[i], load(&m->success[i])
        ));
    WEIR_TRY(head(w, "cache_config_info", "gauge", "Size of the KV cache."));
    WEIR_TRY(weir_buffer_format(
        w->out, "%s:cache_config_info{%s,block_size=\"64\",num_gpu_blocks=\"%" PRId64 "\"} 1\n",
        w->prefix, w->label.data, facts->kv_pages.n
    ));
    for (int i = 0; i < WEIR_HISTOGRAM_COUNT; i++)
        WEIR_TRY(write_histogram(w, m, (weir_histogram_name)i));
    return WEIR_OK;
}

typedef struct metric {
    const char *name, *type, *help;
    double value;
} metric;

static weir_status write_metrics(const writer *w, const metric *metrics, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WEIR_TRY(sample(w, metrics[i].name, metrics[i].type, metrics[i].help, metrics[i].value));
    return WEIR_OK;
}

/* ---- experts of a mixture with memory.experts ------------------------------------------------ */
/* Counts of all layers together, and of each, then with expert_layer_ in front of `of_layer`. */
static const struct {
    const char *name, *of_layer, *type;
    size_t offset; /* in weir_expert_counts */
    const char *help;
} expert_counts[] = {
#define OF(field) offsetof(weir_expert_counts, field)
    { "expert_hits_total", "hits_total", "counter", OF(hits),
      "Experts that a step needed and that were in memory." },
    { "expert_misses_total", "misses_total", "counter", OF(misses),
      "Those that were read from the model file." },
    { "expert_read_bytes_total", "read_bytes_total", "counter", OF(bytes_read),
      "Bytes read for them." },
    { "expert_prefetches_total", "prefetches_total", "counter", OF(prefetched),
      "Experts that were read ahead." },
    { "expert_prefetches_used_total", "prefetches_used_total", "counter", OF(prefetch_used),
      "Of these, needed before they were evicted; they are hits too." },
    { "expert_prefetches_unused_total", "prefetches_unused_total", "counter", OF(prefetch_unused),
      "Of these, evicted before they were used." },
    { "experts_pinned", "pinned", "gauge", OF(pinned),
      "Experts that stay in memory once they are there." },
#undef OF
};
enum { EXPERT_COUNTS = sizeof expert_counts / sizeof expert_counts[0] };

static int64_t count_of(const weir_expert_counts *counts, int i)
{
    return *(const int64_t *)((const char *)counts + expert_counts[i].offset);
}

static weir_status write_experts(const writer *w, const weir_expert_stats *experts)
{
    const metric metrics[] = {
        { "experts", "gauge", "Experts of all layers.", (double)experts->n_experts },
        { "experts_in_memory", "gauge", "Of these, the most in memory.",
          (double)experts->n_entries },
        { "expert_read_errors_total", "counter", "Experts that could not be read.",
          (double)experts->errors },
        { "expert_waits_total", "counter", "Times that a step waited for experts.",
          (double)experts->waits },
        { "expert_wait_seconds_total", "counter", "Seconds that steps waited for experts.",
          (double)experts->wait_ns / 1e9 },
    };
    WEIR_TRY(write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]));
    for (int i = 0; i < EXPERT_COUNTS; i++)
        WEIR_TRY(sample(
            w, expert_counts[i].name, expert_counts[i].type, expert_counts[i].help,
            (double)count_of(&experts->all, i)
        ));
    return WEIR_OK;
}

/* One of the counts, of all layers with experts. */
static weir_status write_layers(
    const writer *w, int i, const weir_service *service, weir_layer_counts *counts_of,
    int64_t n_layers
)
{
    weir_expert_counts counts;
    char name[48], help[64];
    (void)snprintf(name, sizeof name, "expert_layer_%s", expert_counts[i].of_layer);
    (void)snprintf(help, sizeof help, "%s of a layer.", expert_counts[i].name);
    for (int64_t layer = 0, n = 0; layer < n_layers; layer++) {
        if (!counts_of(service, layer, &counts)) continue;
        if (n++ == 0) WEIR_TRY(head(w, name, expert_counts[i].type, help));
        WEIR_TRY(weir_buffer_format(
            w->out, "%s:%s{%s,layer=\"%" PRId64 "\"} %" PRId64 "\n", w->prefix, name, w->label.data,
            layer, count_of(&counts, i)
        ));
    }
    return WEIR_OK;
}

/* ---- what else the engine counts ------------------------------------------------------------- */
/* Pages of KV, in memory and in the lower tier. */
static weir_status write_kv(
    const writer *w, const weir_service_stats *stats, const weir_engine_facts *facts
)
{
    const metric metrics[] = {
        { "kv_used_bytes", "gauge", "Bytes of KV pages in use.", (double)stats->kv_bytes_used },
        { "kv_total_bytes", "gauge", "Bytes of all KV pages.", (double)stats->kv_bytes_total },
        { "kv_bytes_per_token", "gauge", "Bytes of KV that one token takes over all layers.",
          (double)facts->kv_bytes_per_token },
        { "kv_disk_pages", "gauge", "KV pages that are on disk.",
          (double)stats->kv_disk_pages_used },
        { "kv_host_pages", "gauge", "KV pages that left the GPU and are on the host.",
          (double)stats->kv_host_pages_used },
        { "kv_disk_out_bytes_total", "counter", "KV bytes that left memory for the disk.",
          (double)stats->kv_bytes_out },
        { "kv_disk_back_bytes_total", "counter", "KV bytes that came back to memory.",
          (double)stats->kv_bytes_back },
        { "kv_disk_read_bytes_total", "counter",
          "KV bytes that attention and sessions read on disk.", (double)stats->kv_bytes_read },
        { "kv_disk_errors_total", "counter", "Writes and reads of KV pages that failed.",
          (double)(stats->kv_write_errors + stats->kv_read_errors) },
    };
    return write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]);
}

/* Rows of layers with a window. */
static weir_status write_windows(
    const writer *w, const weir_service_stats *stats, const weir_engine_facts *facts
)
{
    const metric metrics[] = {
        { "window_blocks", "gauge", "Blocks of 64 tokens for layers with a window.",
          (double)facts->n_window_blocks },
        { "window_blocks_cached", "gauge", "Of these, blocks of finished sequences.",
          (double)stats->window_blocks_cached },
        { "window_disk_blocks", "gauge", "Such blocks that are on disk.",
          (double)stats->window_blocks_cold },
        { "window_disk_out_blocks_total", "counter", "Such blocks written to disk.",
          (double)stats->window_blocks_out },
        { "window_disk_back_blocks_total", "counter", "Such blocks read from disk.",
          (double)stats->window_blocks_back },
        { "window_disk_errors_total", "counter", "Writes and reads of such blocks that failed.",
          (double)stats->window_block_errors },
    };
    return write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]);
}

/* What the caches hold, and what they lost. */
static weir_status write_cached(const writer *w, const weir_service_stats *stats)
{
    const metric metrics[] = {
        { "kv_evicted_tokens_total", "counter", "Rows that a policy dropped for good.",
          (double)stats->evicted_tokens },
        { "kept_tokens", "gauge", "Tokens of finished sequences in the cache.",
          (double)stats->kept_tokens },
        { "kept_bytes", "gauge", "Bytes of KV pages held only by finished sequences.",
          (double)stats->kept_bytes },
        { "kept_states", "gauge", "Recurrent snapshots in the prefix cache.",
          (double)stats->kept_states },
        { "cold_states", "gauge", "Of the recurrent snapshots, those on disk.",
          (double)stats->cold_states },
        { "kept_policy_sequences", "gauge", "Finished sequences with a KV policy in the cache.",
          (double)stats->kept_pruned_sequences },
        { "dropped_tokens_total", "counter", "Cached tokens dropped to make room for others.",
          (double)stats->dropped_tokens },
        { "unsaved_tokens_total", "counter", "Dropped tokens that are in no session file.",
          (double)stats->unsaved_tokens },
    };
    return write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]);
}

/* Sequences that were saved because memory was short. */
static weir_status write_saved(const writer *w, const weir_service_stats *stats)
{
    const metric metrics[] = {
        { "sessions_saved_total", "counter", "Sequences written to files because memory was short.",
          (double)stats->saved_sequences },
        { "sessions_saved_tokens_total", "counter", "Their tokens.", (double)stats->saved_tokens },
        { "sessions_save_failures_total", "counter", "Such sequences that could not be written.",
          (double)stats->save_failures },
        { "sessions_given_up_total", "counter", "Such sequences dropped before they were written.",
          (double)stats->saves_given_up },
        { "sessions_replaced_total", "counter",
          "Files of such sequences deleted for newer ones (sessions.limit, memory.disk).",
          (double)stats->replaced_sequences },
        { "sessions_found_total", "counter", "Files restored because a prompt has the same prefix.",
          (double)stats->found_sequences },
        { "sessions_found_tokens_total", "counter", "Prompt tokens restored from them.",
          (double)stats->found_tokens },
    };
    return write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]);
}

/* Steps, requests and work on sessions. */
static weir_status write_work(
    const writer *w, const weir_metrics *m, const weir_service_stats *stats
)
{
    const metric metrics[] = {
        { "preemptions_total", "counter", "Preemptions of sequences.", (double)stats->preemptions },
        { "steps_total", "counter", "Steps of the engine.", (double)stats->steps },
        { "batch_rows_total", "counter", "Rows computed by all steps.", (double)stats->batch_rows },
        { "requests_refused_total", "counter", "Requests answered with 4xx.", load(&m->refused) },
        { "sessions_saving", "gauge", "Session files being written.", load(&m->sessions_saving) },
        { "sessions_restoring", "gauge", "Session files being read into the cache.",
          load(&m->sessions_restoring) },
        { "sessions_waiting", "gauge", "Saves, restores and other work on sessions that wait.",
          load(&m->sessions_waiting) },
        { "log_lines_dropped_total", "counter", "Log lines dropped because a reader was too slow.",
          load(&m->log_lines_dropped) },
        { "connections_refused_total", "counter",
          "Connections beyond the limit: health only, or closed.", load(&m->connections_refused) },
        { "requests_failed_total", "counter", "Requests that failed in the engine.",
          load(&m->failed) },
        { "requests_cancelled_total", "counter", "Requests whose client left.",
          load(&m->cancelled) },
    };
    return write_metrics(w, metrics, sizeof metrics / sizeof metrics[0]);
}

static weir_status write_own(
    const writer *w, const weir_metrics *m, const weir_service_stats *stats,
    const weir_engine_facts *facts
)
{
    WEIR_TRY(write_kv(w, stats, facts));
    if (facts->kv_window > 0) WEIR_TRY(write_windows(w, stats, facts));
    if (stats->experts.n_entries > 0) WEIR_TRY(write_experts(w, &stats->experts));
    WEIR_TRY(write_cached(w, stats));
    WEIR_TRY(write_saved(w, stats));
    return write_work(w, m, stats);
}

static weir_status write_step_times(const writer *w, const weir_service_stats *stats)
{
    static const char name[] = "step_seconds_total";
    static const char *const parts[WEIR_STEP_PARTS] = {
        [WEIR_STEP_ADMIT] = "admit",       [WEIR_STEP_PLAN] = "plan",
        [WEIR_STEP_MEMORY] = "memory",     [WEIR_STEP_MARSHAL] = "marshal",
        [WEIR_STEP_FORWARD] = "forward",   [WEIR_STEP_COMMIT] = "commit",
        [WEIR_STEP_SAMPLE] = "sample",     [WEIR_STEP_EVENTS] = "events",
        [WEIR_STEP_MAINTAIN] = "maintain", [WEIR_STEP_PUBLISH] = "publish"
    };
    WEIR_TRY(head(w, name, "counter", "Time of the engine thread by part of a step."));
    for (int i = 0; i < WEIR_STEP_PARTS; i++)
        WEIR_TRY(weir_buffer_format(
            w->out, "%s:%s{%s,part=\"%s\"} %.9f\n", w->prefix, name, w->label.data, parts[i],
            (double)stats->step_ns[i] * 1e-9
        ));
    return WEIR_OK;
}

/* Statistics of fixed-size layer memory, summed over all finished sequences and such layers. */
static weir_status write_banks(
    const writer *w, const weir_service_stats *stats, const weir_engine_facts *facts
)
{
    for (int i = 0; i < WEIR_BANK_STATS_COUNTS && facts->banks.n_layers > 0; i++) {
        char name[48];
        (void)snprintf(
            name, sizeof name, "banks_%s_total", weir_bank_counter_name((weir_bank_counter)i)
        );
        WEIR_TRY(sample(
            w, name, "counter", weir_bank_counter_help((weir_bank_counter)i),
            (double)stats->banks.counts[i]
        ));
    }
    return WEIR_OK;
}

/* The byte budget, per tier and account. */
static weir_status write_memory(const writer *w, const weir_ledger_state *memory)
{
    const struct {
        const char *name, *help;
        const size_t *value; /* [WEIR_TIER_COUNT] */
    } gauges[] = {
        { "memory_cap_bytes", "Hard limit of a tier, 0: none.", memory->cap },
        { "memory_used_bytes", "Bytes of a tier that all accounts hold.", memory->total },
        { "memory_peak_bytes", "Peak bytes of a tier.", memory->peak },
    };
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
        WEIR_TRY(head(w, gauges[i].name, "gauge", gauges[i].help));
        for (int tier = 0; tier < WEIR_TIER_COUNT; tier++)
            WEIR_TRY(weir_buffer_format(
                w->out, "%s:%s{%s,tier=\"%s\"} %zu\n", w->prefix, gauges[i].name, w->label.data,
                weir_tier_name((weir_tier)tier), gauges[i].value[tier]
            ));
    }
    WEIR_TRY(head(w, "memory_account_bytes", "gauge", "Bytes of a tier that one account holds."));
    for (int tier = 0; tier < WEIR_TIER_COUNT; tier++) {
        for (int account = 0; account < WEIR_ACCOUNT_COUNT; account++)
            WEIR_TRY(weir_buffer_format(
                w->out, "%s:memory_account_bytes{%s,tier=\"%s\",account=\"%s\"} %zu\n", w->prefix,
                w->label.data, weir_tier_name((weir_tier)tier),
                weir_account_name((weir_account)account), memory->used[tier][account]
            ));
    }
    return WEIR_OK;
}

static weir_status write_label(weir_buffer *label, const char *model_name)
{
    WEIR_TRY(weir_buffer_text(label, "model_name=\""));
    for (const char *c = model_name; *c != 0; c++) {
        if (*c == '\n')
            WEIR_TRY(weir_buffer_text(label, "\\n"));
        else if (*c == '"' || *c == '\\')
            WEIR_TRY(weir_buffer_format(label, "\\%c", *c));
        else
            WEIR_TRY(weir_buffer_add(label, c, 1));
    }
    return weir_buffer_text(label, "\"");
}

weir_status weir_metrics_write(
    weir_buffer *out, const weir_metrics *metrics, const weir_service_stats *stats,
    const weir_engine_facts *facts, const weir_ledger_state *memory, const char *model_name,
    bool vllm
)
{
    writer w = { .out = out, .prefix = "weir" };
    weir_status status = write_label(&w.label, model_name);
    if (status == WEIR_OK) status = write_common(&w, metrics, stats, facts);
    if (status == WEIR_OK) status = write_own(&w, metrics, stats, facts);
    if (status == WEIR_OK) status = write_step_times(&w, stats);
    if (status == WEIR_OK) status = write_banks(&w, stats, facts);
    if (status == WEIR_OK) status = write_memory(&w, memory);
    w.prefix = "vllm";
    if (status == WEIR_OK && vllm) status = write_common(&w, metrics, stats, facts);
    weir_buffer_free(&w.label);
    return status;
}

weir_status weir_metrics_write_layers(
    weir_buffer *out, const weir_service *service, weir_layer_counts *counts_of, int64_t n_layers,
    const char *model_name
)
{
    writer w = { .out = out, .prefix = "weir" };
    weir_status status = write_label(&w.label, model_name);
    for (int i = 0; status == WEIR_OK && i < EXPERT_COUNTS; i++)
        status = write_layers(&w, i, service, counts_of, n_layers);
    weir_buffer_free(&w.label);
    return status;
}
