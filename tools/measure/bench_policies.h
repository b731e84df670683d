/* tools/measure/bench_policies.h - what a KV policy costs while decoding: beside a cache of as many
 * rows that has none, turn by turn in one process. */
#pragma once
#include "engine/cli/command.h"
#include "tools/measure/bench.h"

enum { WEIR_POLICY_BENCH_ROWS = 32 };

typedef struct weir_policy_bench_options {
    const char *policies; /* "name;name:options" */
    int64_t budget;
    int32_t depth, n_pairs, n_tokens; /* tokens of a turn */
} weir_policy_bench_options;

typedef struct weir_policy_bench_row {
    char name[256]; /* with its options */
    weir_bench_rate ratio; /* of the policy's speed to the plain cache's, pair by pair */
    weir_bench_rate plain, policy; /* tokens per second */
    double evict_ms; /* after each token, in the mean: asking, scoring, moving rows */
    double prompt_ms; /* the same at the end of the prompt, once */
    int64_t n_live; /* rows of a head at the end, in the mean */
    size_t memory_bytes; /* what the policy takes for one sequence of these tokens */
    double bandwidth; /* GB/s, median of measurements before and after */
} weir_policy_bench_row;

typedef struct weir_policy_bench_report {
    weir_policy_bench_row rows[WEIR_POLICY_BENCH_ROWS];
    int32_t n_rows;
} weir_policy_bench_report;

/* Tokens that a text of the policy comes to hold. */
int64_t weir_policy_bench_tokens(const weir_policy_bench_options *options);
/* Names, options and numbers, before there is an engine. EINVAL, or ECONFIG of a policy's
 * options. */
WEIR_MUST_CHECK weir_status
weir_policy_bench_check(const weir_policy_bench_options *options, weir_error *error);
/* For each policy: a prompt of `depth` rows of noise, whose last tokens are computed, is cut to the
 * budget; then turns of n_tokens, one of the policy and one of `budget` rows of noise that all
 * stay, in alternating order. `engine` has no service, [kv.policy] names none, and two more
 * sequences fit. */
WEIR_MUST_CHECK weir_status weir_policy_bench_run(
    weir_policy_bench_report *out, const weir_engine *engine,
    const weir_policy_bench_options *options, void (*progress)(const weir_policy_bench_row *row),
    weir_error *error
);
/* weir bench --policies: the exit code. */
int weir_run_bench_policies(const weir_arguments *arguments);
