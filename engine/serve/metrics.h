/* engine/serve/metrics.h - counters and histograms of the server, written as Prometheus text. Any
 * thread may observe; no locks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/schedule/service.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_HISTOGRAM_BUCKETS = 20 };

typedef enum weir_histogram_name {
    WEIR_HISTOGRAM_FIRST_TOKEN,
    WEIR_HISTOGRAM_INTER_TOKEN,
    WEIR_HISTOGRAM_WHOLE,
    WEIR_HISTOGRAM_QUEUE,
    WEIR_HISTOGRAM_PREFILL,
    WEIR_HISTOGRAM_DECODE,
    WEIR_HISTOGRAM_PROMPT_TOKENS,
    WEIR_HISTOGRAM_ANSWER_TOKENS,
    WEIR_HISTOGRAM_COUNT,
} weir_histogram_name;

typedef enum weir_success {
    WEIR_SUCCESS_STOP,
    WEIR_SUCCESS_LENGTH,
    WEIR_SUCCESS_TOOL_CALLS,
    WEIR_SUCCESS_COUNT
} weir_success;

/* Fields are accessed by atomic operations only. */
typedef struct weir_metrics {
    uint64_t prompt_tokens, cached_tokens, answer_tokens, success[WEIR_SUCCESS_COUNT];
    /* requests: 4xx and 429; 5xx after admission; client disconnected. */
    uint64_t refused, failed, cancelled;
    uint64_t connections_refused; /* connections that got no place */
    uint64_t log_lines_dropped;
    uint64_t sessions_saving, sessions_restoring, sessions_waiting; /* now */
    struct {
        uint64_t bucket[WEIR_HISTOGRAM_BUCKETS + 1]; /* the last bucket is above all bounds */
        uint64_t sum; /* ns or tokens */
    } histogram[WEIR_HISTOGRAM_COUNT];
} weir_metrics;

static inline void weir_metrics_add(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}
static inline void weir_metrics_set(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, n, __ATOMIC_RELAXED);
}
/* `value`: nanoseconds for times, a count for tokens; negative values count as 0. */
void weir_metrics_observe(weir_metrics *metrics, weir_histogram_name name, int64_t value);

/* Writes all metrics with the prefix `weir:`. With `vllm`, repeats the ones that dashboards and
 * gateways expect with the prefix `vllm:`. */
WEIR_MUST_CHECK weir_status weir_metrics_write(
    weir_buffer *out, const weir_metrics *metrics, const weir_service_stats *stats,
    const weir_engine_facts *facts, const weir_ledger_state *memory, const char *model_name,
    bool vllm
);
/* Adds the counts of each layer with experts in limited memory: `counts_of` is
 * weir_service_expert_counts. */
typedef bool weir_layer_counts(const weir_service *, int64_t layer, weir_expert_counts *out);
WEIR_MUST_CHECK weir_status weir_metrics_write_layers(
    weir_buffer *out, const weir_service *service, weir_layer_counts *counts_of, int64_t n_layers,
    const char *model_name
);

#ifdef __cplusplus
}
#endif
