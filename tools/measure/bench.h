/* tools/measure/bench.h - measures the speed of a model at several depths, and the machine's
 * bandwidth in the same run. */
#pragma once
#include "engine/engine.h"
#include "engine/kv/pool/sequence.h"
#include "engine/schedule/runner.h"
#include "offload/bandwidth.h"

enum { WEIR_BENCH_DEPTHS = 16 };

typedef struct weir_bench_options {
    int32_t n_prompt, n_generate, n_depths, n_repeats; /* figures are medians of n_repeats */
    int32_t depths[WEIR_BENCH_DEPTHS];
    /* Rows of the depth are noise instead of computed; prompts are not measured. */
    bool synthetic_kv;
} weir_bench_options;

typedef struct weir_bench_rate {
    double median, least, most;
} weir_bench_rate; /* tokens per second */

typedef struct weir_bench_row {
    int32_t depth;
    weir_bench_rate prefill, decode;
    /* Read per decoded token: weights and states, and KV rows in the middle of the run. */
    size_t step_bytes, kv_bytes;
    double bandwidth; /* GB/s: the larger of the medians before and after this row */
    double bandwidth_share; /* of decoding: bytes per token x tokens/s / bandwidth      */
    /* Read from the lower tier per decoded token; 0: everything was in memory. */
    size_t cold_bytes;
    /* GB/s of only reading the same pages, before and after this row; 0: there were none. */
    double cold_bandwidth;
    double cold_share; /* as bandwidth_share */
} weir_bench_row;

typedef struct weir_bench_report {
    weir_bench_row rows[WEIR_BENCH_DEPTHS];
    int32_t n_rows, n_threads;
    /* Where KV pages may go: "disk", below a device "host", "cold" for both; NULL: nowhere. */
    const char *cold_tier;
    bool synthetic_kv;
    double bandwidth_best, bandwidth_median; /* GB/s over the whole run */
    double load_seconds;
    /* Of the ledger: memory.host, and the most that was charged. */
    size_t memory_cap, memory_peak;
    size_t peak_rss, weight_bytes, kv_pool_bytes;
    double machine_load; /* 1-minute load average before the run */
} weir_bench_report;

/* `engine` has no service. `progress` (may be NULL) is called with each finished row. */
WEIR_MUST_CHECK weir_status weir_bench_run(
    weir_bench_report *out, const weir_engine *engine, const weir_bench_options *options,
    void (*progress)(const weir_bench_row *row), weir_error *error
);
/* The most resident bytes of the process since `begin`; 0: unknown. Where the kernel does not let
 * it begin anew (/proc/self/clear_refs), since the process began. */
void weir_bench_peak_begin(void);
size_t weir_bench_peak(void);
/* Bandwidth of the memory that the engine's kernels read. */
WEIR_MUST_CHECK weir_status
weir_bench_bandwidth(weir_bandwidth *out, const weir_engine *engine, weir_error *error);
/* GB/s of measurements before and after a figure: the larger median, as other programs make it
 * less. */
static inline double weir_bench_larger(const weir_bandwidth *before, const weir_bandwidth *after)
{
    return before->median > after->median ? before->median : after->median;
}
/* Sorts the rates. */
weir_bench_rate weir_bench_summarise(double *rates, int32_t n);
/* Appends n rows of noise to the sequence without computing them; `tokens` [n] are their ids
 * only. */
WEIR_MUST_CHECK weir_status weir_bench_fill(
    weir_runner *runner, weir_kv_sequence *sequence, const int32_t *tokens, int32_t n,
    weir_error *error
);
const char *weir_bench_cold_tier(const weir_engine *engine); /* weir_bench_report.cold_tier */
/* Reading speed of the sequence's cold pages; 0: there are none. Call between steps. */
WEIR_MUST_CHECK weir_status weir_bench_cold_speed(
    double *gb_per_second, weir_kv_store *store, const weir_kv_sequence *sequence, weir_error *error
);
/* Prints every op of one decode step and one prefill chunk: the kernel that runs, and why the rows
 * before it in the table do not. */
WEIR_MUST_CHECK weir_status
weir_bench_explain(weir_buffer *out, const weir_engine *engine, weir_error *error);
