/* tools/load/output.h - what `weir load` prints and writes. */
#pragma once
#include <jansson.h>

#include "tools/load/server_memory.h"
#include "tools/load/summary.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was measured, and how. */
typedef struct weir_load_report {
    const char *url;
    const weir_load_form *form;
    const weir_workload_options *workload;
    const weir_load_options *options;
    const weir_goodput *goodput;
    const weir_load_summary *summary;
    const weir_server_memory *memory;
    weir_load_result *result;
} weir_load_report;

WEIR_MUST_CHECK weir_status weir_load_print(weir_buffer *out, const weir_load_report *report);
/* Returns a new object; NULL: out of memory. With `requests` also one object for each request. */
json_t *weir_load_json(const weir_load_report *report, bool with_requests);

/* The distribution of each latency, or latencies by the time at which requests were due. */
typedef enum weir_load_plot { WEIR_LOAD_PLOT_CDF, WEIR_LOAD_PLOT_TIME } weir_load_plot;
/* Appends an SVG. Returns EINVAL if no request ended well. */
WEIR_MUST_CHECK weir_status weir_load_draw(
    weir_buffer *out, const weir_load_report *report, weir_load_plot plot, weir_error *error
);

#ifdef __cplusplus
}
#endif
