/* tools/measure/bench_policies.h - the cost of a KV policy while decoding, compared run by run in
 * one process with a cache of the same number of rows and no policy. */
#pragma once
#include "engine/cli/command.h"
#include "tools/measure/bench.h"

enum { WEIR_POLICY_BENCH_ROWS = 32 };

typedef struct weir_policy_bench_options {
    const char *policies; /* "name;name:options" */
    int64_t budget;
    int32_t depth, n_pairs, n_tokens; /* n_tokens: of a run */
} weir_policy_bench_options;

typedef struct weir_policy_bench_row {
    char name[256]; /* with its options */
    /* Of the policy's speed to the plain cache's, per pair. */
    weir_bench_rate ratio;
    weir_bench_rate plain, policy; /* tokens per second */
    /* Mean after each token: deciding, scoring, moving rows. */
    double evict_ms;
    double prompt_ms; /* the same, once at the end of the prompt */
    int64_t n_live; /* mean rows of a head at the end */
    /* Memory of the policy for one sequence of these tokens. */
    size_t memory_bytes;
    double bandwidth; /* GB/s: the larger of the medians before and after */
} weir_policy_bench_row;

typedef struct weir_policy_bench_report {
    weir_policy_bench_row rows[WEIR_POLICY_BENCH_ROWS];
    int32_t n_rows;
} weir_policy_bench_report;

/* The most tokens of a sequence with the policy. */
int64_t weir_policy_bench_tokens(const weir_policy_bench_options *options);
/* Checks names, options and numbers before there is an engine. Returns EINVAL, or ECONFIG for a
 * policy's options. */
WEIR_MUST_CHECK weir_status
weir_policy_bench_check(const weir_policy_bench_options *options, weir_error *error);
/* For each policy: a prompt of `depth` rows of noise, whose last tokens are computed, is pruned to
 * the budget; then runs of n_tokens, one with the policy and one with `budget` rows of noise and
 * no policy, in alternating order. `engine` has no service, [kv.policy] names none, and two more
 * sequences fit. */
WEIR_MUST_CHECK weir_status weir_policy_bench_run(
    weir_policy_bench_report *out, const weir_engine *engine,
    const weir_policy_bench_options *options, void (*progress)(const weir_policy_bench_row *row),
    weir_error *error
);
/* weir bench --policies. Returns the exit code. */
int weir_run_bench_policies(const weir_arguments *arguments);
