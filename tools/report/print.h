/* tools/report/print.h - a report as text, as JSON and as a plot. All three show what report.h
 * computes. */
#pragma once
#include "engine/base/buffer.h"
#include "tools/report/report.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_REPORT_LIST = 16, WEIR_REPORT_LINES = 32 };

/* A batch and a context to compute times for. */
typedef struct weir_report_point {
    int64_t batch, tokens;
} weir_report_point;

/* What to report. Empty lists get the defaults of the assumptions. */
typedef struct weir_report {
    const weir_report_assumptions *assumptions;
    const weir_report_shape *shapes; /* [n_shapes] */
    const weir_report_shape *known; /* [n_known], for the comparison of models */
    size_t n_shapes, n_known;
    /* The first is shown by tables that have space for one. */
    weir_kv_format formats[WEIR_REPORT_LIST];
    int64_t contexts[WEIR_REPORT_LIST], batches[WEIR_REPORT_LIST];
    double bandwidths[WEIR_REPORT_LIST]; /* bytes per second */
    weir_report_point points[WEIR_REPORT_LIST + 2];
    size_t n_formats, n_contexts, n_batches, n_bandwidths, n_points;
    int64_t tokens, batch; /* for tables that show one of each */
} weir_report;

/* Fills empty lists and checks every shape against them. Returns EINVAL with a message that says
 * what does not fit. */
WEIR_MUST_CHECK weir_status weir_report_complete(weir_report *report, weir_error *error);

/* Requires a completed report. Returns ENOMEM. */
WEIR_MUST_CHECK weir_status weir_report_text(const weir_report *report, weir_buffer *out);
WEIR_MUST_CHECK weir_status weir_report_json(const weir_report *report, weir_buffer *out);
/* KV over context, both axes logarithmic, a line per shape and format: at most WEIR_REPORT_LINES,
 * else EINVAL. */
WEIR_MUST_CHECK weir_status
weir_report_svg(const weir_report *report, weir_buffer *out, weir_error *error);

#ifdef __cplusplus
}
#endif
