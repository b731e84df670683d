/* tools/measure/run_measure.c - weir logits and bench: runs them, then prints text or JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/cli/explain.h"
#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "engine/cli/prompt.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_policies.h"
#include "tools/measure/bench_streams.h"
#include "tools/measure/logits.h"

/* ---- logits ---------------------------------------------------------------------------------- */
int weir_run_logits(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_ids ids = { 0 };
    weir_config config = arguments->config;
    config.batch.max_sequences = 1;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    weir_stop_on_interrupt();
    weir_status status = weir_prompt_from_list(
        &ids, weir_argument(arguments, "tokens"),
        weir_model_shape(weir_engine_model(engine))->n_vocab, &error
    );
    if (status == WEIR_OK)
        status = weir_write_logits(
            engine,
            &(weir_logits_options
            ){ .tokens = ids.data,
               .n_tokens = (int32_t)ids.count,
               .path = weir_argument(arguments, "out"),
               .chunk = (int32_t)weir_argument_int(arguments, "chunk", 0),
               .decode_from = (int32_t)weir_argument_int(arguments, "decode-from", INT32_MAX) },
            &error
        );
    weir_ids_free(&ids);
    weir_engine_close(engine);
    return weir_end(status, &error);
}

/* ---- bench ----------------------------------------------------------------------------------- */
static void print_speed(const weir_bench_row *row)
{
    const weir_bench_rate *const prefill = &row->prefill, *const decode = &row->decode;
    if (prefill->median > 0.0)
        (void)printf(
            "%8d %12.1f (%.1f..%.1f)", (int)row->depth, prefill->median, prefill->least,
            prefill->most
        );
    else
        (void)printf("%8d %26s", (int)row->depth, "-");
    (void)printf(
        " %12.2f (%.2f..%.2f) %10.1f %9.1f %7.1f %%", decode->median, decode->least, decode->most,
        (double)(row->step_bytes + row->kv_bytes) * 1e-6, row->bandwidth,
        100.0 * row->bandwidth_share
    );
}

static void print_row(const weir_bench_row *row)
{
    print_speed(row);
    (void)printf("\n");
    (void)fflush(stdout);
}

/* Three more columns with a lower tier. */
static void print_cold_row(const weir_bench_row *row)
{
    print_speed(row);
    (void)printf(" %10.1f", (double)row->cold_bytes * 1e-6);
    if (row->cold_bandwidth > 0.0)
        (void)printf(" %9.2f %7.1f %%\n", row->cold_bandwidth, 100.0 * row->cold_share);
    else
        (void)printf(" %9s %9s\n", "-", "-");
    (void)fflush(stdout);
}

static void set_of_tier(
    json_t *out, const weir_bench_report *report, const char *what, json_t *value
)
{
    char key[64];
    (void)snprintf(key, sizeof key, "%s_%s", report->cold_tier, what);
    (void)json_object_set_new(out, key, value);
}

static json_t *row_json(const weir_bench_row *row, const weir_bench_report *report)
{
    json_t *const out = json_pack(
        "{s:i, s:o, s:I, s:I, s:f, s:f}", "depth", (int)row->depth, "decode_tokens_per_second",
        weir_bench_rate_json(&row->decode), "bytes_per_decoded_token",
        (json_int_t)row->step_bytes + (json_int_t)row->kv_bytes, "kv_bytes",
        (json_int_t)row->kv_bytes, "bandwidth_gb_per_second", row->bandwidth, "bandwidth_share",
        row->bandwidth_share
    );
    if (!report->synthetic_kv)
        (void
        )json_object_set_new(out, "prefill_tokens_per_second", weir_bench_rate_json(&row->prefill));
    if (report->cold_tier == NULL) return out;
    const bool measured = row->cold_bandwidth > 0.0;
    set_of_tier(out, report, "bytes_per_decoded_token", json_integer((json_int_t)row->cold_bytes));
    set_of_tier(
        out, report, "gb_per_second", measured ? json_real(row->cold_bandwidth) : json_null()
    );
    set_of_tier(out, report, "share", measured ? json_real(row->cold_share) : json_null());
    return out;
}

static json_t *report_json(
    const weir_bench_report *report, const weir_engine *engine, const weir_bench_options *options,
    double load_seconds
)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    json_t *const rows = json_array();
    for (int32_t i = 0; i < report->n_rows; i++)
        (void)json_array_append_new(rows, row_json(&report->rows[i], report));
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:o}",
        "model", plan->facts.model, "arch", plan->facts.arch, "threads", (int)report->n_threads,
        "prompt", (int)options->n_prompt, "gen", (int)options->n_generate, "repeats",
        (int)options->n_repeats, "bandwidth_gb_per_second", report->bandwidth_median,
        "load_seconds", load_seconds, "peak_rss_bytes", (json_int_t)report->peak_rss,
        "memory_cap_bytes", (json_int_t)report->memory_cap, "memory_peak_bytes",
        (json_int_t)report->memory_peak, "weight_bytes", (json_int_t)report->weight_bytes,
        "kv_pool_bytes", (json_int_t)report->kv_pool_bytes, "machine_load", report->machine_load,
        "activations", plan->f32_activations ? "f32" : "fast", "synthetic_kv", report->synthetic_kv,
        "rows", rows
    );
}

static void read_bench_options(weir_bench_options *options, const weir_arguments *arguments)
{
    int64_t depths[WEIR_OPTION_NUMBERS] = { 0 };
    const size_t n = weir_argument_numbers(arguments, "depth", depths);
    *options =
        (weir_bench_options){ .n_prompt = (int32_t)weir_argument_int(arguments, "prompt", 512),
                              .n_generate = (int32_t)weir_argument_int(arguments, "gen", 64),
                              .n_repeats = (int32_t)weir_argument_int(arguments, "repeat", 5),
                              .n_depths = n > 0 ? (int32_t)n : 1 };
    options->synthetic_kv = weir_argument_given(arguments, "synthetic-kv");
    if (options->synthetic_kv) options->n_prompt = 0;
    for (size_t i = 0; i < n; i++) options->depths[i] = (int32_t)depths[i];
}

static int run_bench(
    const weir_engine *engine, const weir_arguments *arguments, const weir_bench_options *options,
    double load_seconds
)
{
    weir_error error = { 0 };
    weir_bench_report report;
    const bool as_json = weir_argument_given(arguments, "json");
    const char *const tier = weir_bench_cold_tier(engine);
    if (!as_json) {
        const weir_plan *const plan = weir_engine_plan_of(engine);
        (void)printf(
            "%s (%s), %d threads, weights %.1f MB, activations %s, loaded in %.2f s\n",
            plan->facts.model, plan->facts.arch,
            (int)weir_stream_threads(weir_engine_stream(engine)), (double)plan->weights * 1e-6,
            plan->f32_activations ? "f32" : "fast", load_seconds
        );
        if (options->synthetic_kv)
            (void)printf("synthetic KV: the rows of each depth are noise, none is computed; there "
                         "is no prefill rate\n");
        (void)printf(
            "%8s %26s %26s %10s %9s %9s", "depth", "prefill tok/s (min..max)",
            "decode tok/s (min..max)", "MB/token", "GB/s", "of limit"
        );
        if (tier != NULL) (void)printf("    %4s MB %4s GB/s   of %4s", tier, tier, tier);
        (void)printf("\n");
    }
    weir_stop_on_interrupt();
    const weir_status status = weir_bench_run(
        &report, engine, options,
        as_json        ? NULL
        : tier != NULL ? print_cold_row
                       : print_row,
        &error
    );
    if (status != WEIR_OK) return weir_end(status, &error);
    if (as_json) return weir_print_json(report_json(&report, engine, options, load_seconds));
    (void)printf(
        "peak memory %.1f MB, KV pool %.1f MB, machine load before %.2f; medians of %d; "
        "GB/s is the read bandwidth measured around each row\n",
        (double)report.peak_rss * 1e-6, (double)report.kv_pool_bytes * 1e-6, report.machine_load,
        (int)options->n_repeats
    );
    if (tier != NULL)
        (void)printf(
            "%s MB are read per decoded token, %s GB/s is the speed of reading the same "
            "pages alone, in the same pieces\n",
            tier, tier
        );
    return WEIR_EXIT_OK;
}

int weir_run_bench(const weir_arguments *arguments)
{
    if (weir_argument_given(arguments, "streams")) return weir_run_bench_streams(arguments);
    if (weir_argument_given(arguments, "policies")) return weir_run_bench_policies(arguments);
    weir_engine *engine = NULL;
    weir_config config = arguments->config;
    weir_bench_options options;
    read_bench_options(&options, arguments);
    const int32_t more =
        options.n_prompt > options.n_generate ? options.n_prompt : options.n_generate;
    config.batch.max_sequences = 2; /* the context, and the copy that is measured */
    if (config.model.context == 0)
        config.model.context = options.depths[options.n_depths - 1] + more + WEIR_PAGE_TOKENS;
    const int64_t start = weir_clock_ns();
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    const double load_seconds = (double)(weir_clock_ns() - start) * 1e-9;
    code = weir_argument_given(arguments, "explain")
               ? weir_print_explanation(engine, true)
               : run_bench(engine, arguments, &options, load_seconds);
    weir_engine_close(engine);
    return code;
}
