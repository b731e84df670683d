/* tools/measure/bench_streams.h - measures many requests at a time through the scheduler, without
 * HTTP, and the machine's bandwidth in the same run.
 *
 * A round submits N requests at once, with different prompts. Decoding is measured over n_generate
 * steps of each after the last one has its first token: all N then decode in every step, and none
 * computes a prompt. Requests that began earlier go on until then, so their contexts are longer. */
#pragma once
#include "engine/cli/command.h"
#include "engine/engine.h"
#include "tools/load/samples.h"
#include "tools/measure/bench.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_BENCH_STREAMS = 1024, WEIR_STREAM_ROUNDS = 32 };

typedef struct weir_streams_options {
    int32_t n_prompt, n_generate, n_rounds, n_counts;
    int32_t counts[16]; /* requests at a time, 1 .. WEIR_BENCH_STREAMS */
} weir_streams_options;

typedef struct weir_streams_row {
    int32_t n_streams;
    /* Prompt tokens until the last first token, by that time; answers that began run at the same
     * time. */
    weir_bench_rate prefill;
    weir_bench_rate decode; /* tokens/s of all streams */
    double per_stream; /* tokens/s, median over streams and rounds */
    weir_percentiles ttft, itl; /* ms; ttft from when all were submitted */
    double efficiency; /* decode / (n_streams x decode of one stream); 0: one was not measured */
    size_t peak_rss, kv_bytes; /* kv_bytes: pages of all streams at the end of a round */
    double bandwidth; /* GB/s: the larger of before and after */
    double bandwidth_share; /* of decoding: bytes per step x steps/s / bandwidth */
} weir_streams_row;

/* Tokens of context that a stream may need. */
int64_t weir_streams_context(const weir_streams_options *options, int64_t chunk);

/* `engine` has a service with slots for the largest count. `progress` (may be NULL) is called with
 * each finished row; rows [n_counts]. Returns EINVAL, ENOMEM, ECANCELED, or why a request
 * failed. */
WEIR_MUST_CHECK weir_status weir_streams_run(
    weir_streams_row *rows, const weir_engine *engine, const weir_streams_options *options,
    void (*progress)(const weir_streams_row *row), weir_error *error
);

/* weir bench --streams. Returns the exit code. */
int weir_run_bench_streams(const weir_arguments *arguments);

#ifdef __cplusplus
}
#endif
