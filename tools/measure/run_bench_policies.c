/* tools/measure/run_bench_policies.c - weir bench --policies: runs it, then prints a table or
 * JSON. */
#include <jansson.h>
#include <stdio.h>

#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_policies.h"

static void print_row(const weir_policy_bench_row *row)
{
    char spread[64];
    (void)snprintf(spread, sizeof spread, "(%.3f..%.3f)", row->ratio.least, row->ratio.most);
    (void)printf(
        "%-24s %7.3f %-20s %9.2f %9.2f %10.3f %12.1f %7lld %10.2f %8.1f\n", row->name,
        row->ratio.median, spread, row->plain.median, row->policy.median, row->evict_ms,
        row->prompt_ms, (long long)row->n_live, (double)row->memory_bytes * 1e-6, row->bandwidth
    );
    (void)fflush(stdout);
}

static json_t *row_json(const weir_policy_bench_row *row)
{
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:f, s:f, s:I, s:I, s:f}", "policy", row->name, "speed_ratio",
        weir_bench_rate_json(&row->ratio), "plain_tokens_per_second",
        weir_bench_rate_json(&row->plain), "tokens_per_second", weir_bench_rate_json(&row->policy),
        "evict_ms_per_token", row->evict_ms, "prompt_evict_ms", row->prompt_ms, "rows",
        (json_int_t)row->n_live, "memory_bytes", (json_int_t)row->memory_bytes,
        "bandwidth_gb_per_second", row->bandwidth
    );
}

static json_t *report_json(
    const weir_policy_bench_report *report, const weir_engine *engine,
    const weir_policy_bench_options *options
)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    json_t *const rows = json_array();
    for (int32_t i = 0; i < report->n_rows; i++)
        (void)json_array_append_new(rows, row_json(&report->rows[i]));
    return json_pack(
        "{s:s, s:s, s:i, s:I, s:i, s:i, s:o}", "model", plan->facts.model, "arch", plan->facts.arch,
        "depth", (int)options->depth, "budget", (json_int_t)options->budget, "pairs",
        (int)options->n_pairs, "tokens", (int)options->n_tokens, "policies", rows
    );
}

static int measure(
    const weir_engine *engine, const weir_policy_bench_options *options, bool as_json
)
{
    weir_error error = { 0 };
    weir_policy_bench_report report;
    if (!as_json)
        (void)printf(
            "%s: decoding after %d rows of noise pruned to %lld, compared with a plain cache of as "
            "many rows; %d pairs of runs of %d tokens\n"
            "%-24s %-28s %9s %9s %10s %12s %7s %10s %8s\n",
            weir_engine_plan_of(engine)->facts.model, (int)options->depth,
            (long long)options->budget, (int)options->n_pairs, (int)options->n_tokens, "policy",
            "speed ratio (min..max)", "plain t/s", "t/s", "evict ms", "at prompt ms", "rows",
            "memory MB", "GB/s"
        );
    weir_stop_on_interrupt();
    const weir_status status =
        weir_policy_bench_run(&report, engine, options, as_json ? NULL : print_row, &error);
    if (status != WEIR_OK) return weir_end(status, &error);
    if (as_json) return weir_print_json(report_json(&report, engine, options));
    (void)printf("medians over the pairs; evict ms: per token, part of its time; at prompt ms: "
                 "scoring and pruning the prompt, once; memory MB: of the policy per sequence\n");
    return WEIR_EXIT_OK;
}

int weir_run_bench_policies(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    int64_t depths[WEIR_OPTION_NUMBERS] = { 0 };
    const size_t n_depths = weir_argument_numbers(arguments, "depth", depths);
    weir_policy_bench_options options = { .policies = weir_argument(arguments, "policies"),
                                          .budget = config.kv.policy.budget,
                                          .depth = (int32_t)depths[0],
                                          .n_pairs =
                                              (int32_t)weir_argument_int(arguments, "pairs", 7),
                                          .n_tokens =
                                              (int32_t)weir_argument_int(arguments, "gen", 128) };
    if (n_depths != 1 || options.budget < 1)
        return weir_fail(
            weir_error_set(
                &error, WEIR_EINVAL,
                "--policies needs --budget ROWS and one --depth, the rows of the prompt"
            ),
            &error
        );
    const weir_status status = weir_policy_bench_check(&options, &error);
    if (status != WEIR_OK) return weir_fail(status, &error);
    (void)snprintf(config.kv.policy.name, sizeof config.kv.policy.name, "full");
    config.kv.policy.budget = 0;
    config.batch.max_sequences = 3; /* the plain cache, the policy's, and a copy of one of them */
    if (config.model.context == 0)
        config.model.context = weir_policy_bench_tokens(&options) + WEIR_PAGE_TOKENS;
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    code = measure(engine, &options, weir_argument_given(arguments, "json"));
    weir_engine_close(engine);
    return code;
}
