/* tools/measure/run_bench_streams.c - weir bench --streams: runs it, then prints a table or
 * JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "offload/ledger.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_streams.h"

static void print_row(const weir_streams_row *row)
{
    char efficiency[16] = "-";
    if (row->efficiency > 0.0)
        (void)snprintf(efficiency, sizeof efficiency, "%.1f %%", 100.0 * row->efficiency);
    (void)printf(
        "%7d %10.1f %10.1f %10.2f %9s %9.1f %9.1f %8.2f %8.2f %9.1f %9.1f %6.2f %6.1f %%\n",
        (int)row->n_streams, row->prefill.median, row->decode.median, row->per_stream, efficiency,
        row->ttft.p50, row->ttft.p99, row->itl.p50, row->itl.p99, (double)row->peak_rss * 1e-6,
        (double)row->kv_bytes * 1e-6, row->bandwidth, 100.0 * row->bandwidth_share
    );
    (void)fflush(stdout);
}

static json_t *percentiles_json(const weir_percentiles *p)
{
    return json_pack(
        "{s:f, s:f, s:f, s:f, s:f}", "p50", p->p50, "p90", p->p90, "p95", p->p95, "p99", p->p99,
        "max", p->most
    );
}

static json_t *row_json(const weir_streams_row *row)
{
    json_t *const out = json_pack(
        "{s:i, s:o, s:o, s:f, s:o, s:o, s:I, s:I, s:f, s:f}", "streams", (int)row->n_streams,
        "prefill_tokens_per_second", weir_bench_rate_json(&row->prefill),
        "decode_tokens_per_second", weir_bench_rate_json(&row->decode),
        "decode_tokens_per_second_per_stream", row->per_stream, "ttft_ms",
        percentiles_json(&row->ttft), "itl_ms", percentiles_json(&row->itl), "peak_rss_bytes",
        (json_int_t)row->peak_rss, "kv_bytes", (json_int_t)row->kv_bytes, "bandwidth_gb_per_second",
        row->bandwidth, "bandwidth_share", row->bandwidth_share
    );
    if (out != NULL)
        (void)json_object_set_new(
            out, "batch_efficiency",
            row->efficiency > 0.0 ? json_real(row->efficiency) : json_null()
        );
    return out;
}

static json_t *report_json(
    const weir_streams_row *rows, const weir_engine *engine, const weir_streams_options *options,
    double machine_load
)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    weir_ledger_state memory;
    json_t *const list = json_array();
    for (int32_t i = 0; i < options->n_counts; i++)
        (void)json_array_append_new(list, row_json(&rows[i]));
    weir_ledger_read(weir_engine_ledger(engine), &memory);
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:o}", "model", plan->facts.model,
        "arch", plan->facts.arch, "prompt", (int)options->n_prompt, "gen", (int)options->n_generate,
        "repeats", (int)options->n_rounds, "weight_bytes", (json_int_t)plan->facts.weight_bytes,
        "kv_pool_bytes", (json_int_t)plan->kv, "memory_cap_bytes",
        (json_int_t)memory.cap[WEIR_TIER_HOST], "memory_peak_bytes",
        (json_int_t)memory.peak[WEIR_TIER_HOST], "machine_load", machine_load, "rows", list
    );
}

static void print_head(const weir_engine *engine, const weir_streams_options *options)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    (void)printf(
        "%s (%s): prompts of %d tokens, %d decoded tokens of each stream, %d rounds\n"
        "%7s %10s %10s %10s %9s %9s %9s %8s %8s %9s %9s %6s %8s\n",
        plan->facts.model, plan->facts.arch, (int)options->n_prompt, (int)options->n_generate,
        (int)options->n_rounds, "streams", "prefill/s", "decode/s", "per stream", "efficient",
        "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "RSS MB", "KV MB", "GB/s", "of limit"
    );
}

static int measure(
    const weir_engine *engine, const weir_streams_options *options, double machine_load,
    bool as_json
)
{
    weir_error error = { 0 };
    weir_streams_row rows[16] = { 0 };
    if (!as_json) print_head(engine, options);
    weir_stop_on_interrupt();
    const weir_status status =
        weir_streams_run(rows, engine, options, as_json ? NULL : print_row, &error);
    if (status != WEIR_OK) return weir_end(status, &error);
    if (as_json) return weir_print_json(report_json(rows, engine, options, machine_load));
    (void)printf(
        "tokens/s of all streams, medians of the rounds; efficient: of as many times the decoding "
        "of one stream;\nTTFT and ITL in ms; GB/s is the read bandwidth measured around each row; "
        "machine load before %.2f\n",
        machine_load
    );
    return WEIR_EXIT_OK;
}

int weir_run_bench_streams(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    int64_t counts[WEIR_OPTION_NUMBERS] = { 0 };
    double machine_load = 0.0;
    weir_streams_options options = {
        .n_prompt = (int32_t)weir_argument_int(arguments, "prompt", 512),
        .n_generate = (int32_t)weir_argument_int(arguments, "gen", 128),
        .n_rounds = (int32_t)weir_argument_int(arguments, "repeat", 3),
        .n_counts = (int32_t)weir_argument_numbers(arguments, "streams", counts),
    };
    if (weir_argument_given(arguments, "depth") || weir_argument_given(arguments, "policies") ||
        weir_argument_given(arguments, "synthetic-kv"))
        return weir_fail(
            weir_error_set(
                &error, WEIR_EINVAL,
                "--streams takes no --depth, --policies or --synthetic-kv: each stream computes "
                "its prompt"
            ),
            &error
        );
    int64_t most = 1;
    for (int32_t i = 0; i < options.n_counts; i++) {
        options.counts[i] = (int32_t)counts[i];
        if (counts[i] > most) most = counts[i];
    }
    config.batch.max_sequences = most;
    /* How often drafts are right says more of the prompts than of the engine. */
    (void)snprintf(config.speculation.method, sizeof config.speculation.method, "off");
    if (config.model.context == 0)
        config.model.context = weir_streams_context(&options, config.batch.chunk);
    if (getloadavg(&machine_load, 1) != 1) machine_load = 0.0;
    int code = weir_open(&engine, &config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    code = measure(engine, &options, machine_load, weir_argument_given(arguments, "json"));
    weir_engine_close(engine);
    return code;
}
