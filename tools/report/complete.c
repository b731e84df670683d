/* tools/report/complete.c - defaults of the lists that were not given. */
#include <string.h>

#include "tools/report/print.h"

#define FILL(report, list, count, ...)                                                             \
    do {                                                                                           \
        static const __typeof__((report)->list[0]) defaults[] = { __VA_ARGS__ };                   \
        if ((report)->count > 0) break;                                                            \
        memcpy((report)->list, defaults, sizeof defaults);                                         \
        (report)->count = sizeof defaults / sizeof defaults[0];                                    \
    } while (0)

static void fill_as_seed(weir_report *report)
{
    FILL(report, formats, n_formats, WEIR_KV_F16, WEIR_KV_F32, WEIR_KV_INT8);
    FILL(report, contexts, n_contexts, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768);
    FILL(report, batches, n_batches, 1, 2, 4, 8, 16, 32);
    FILL(report, bandwidths, n_bandwidths, 3350e9);
    FILL(report, points, n_points, { 1, 1024 }, { 1, 8192 }, { 4, 4096 });
    if (report->tokens == 0) report->tokens = 4096;
    if (report->batch == 0) report->batch = 4;
}

static void fill_as_engine(weir_report *report)
{
    enum { AT_MOST = 32768 };
    int64_t longest = 0;
    for (size_t i = 0; i < report->n_contexts; i++)
        if (report->contexts[i] > longest) longest = report->contexts[i];
    if (report->tokens == 0) report->tokens = longest > 0 ? longest : AT_MOST;
    if (report->n_shapes > 1)
        FILL(report, formats, n_formats, WEIR_KV_F16, WEIR_KV_Q8_0, WEIR_KV_Q4_0);
    FILL(
        report, formats, n_formats, WEIR_KV_F16, WEIR_KV_F32, WEIR_KV_Q8_0, WEIR_KV_INT8,
        WEIR_KV_Q4_0, WEIR_KV_TURBO4, WEIR_KV_TURBO3
    );
    FILL(
        report, contexts, n_contexts, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
        1048576
    );
    FILL(report, batches, n_batches, 1, 8, 32);
    FILL(report, bandwidths, n_bandwidths, 60e9, 960e9, 2039e9, 3350e9, 4800e9);
    if (report->batch == 0) report->batch = report->batches[0];
    if (report->n_points > 0) return;
    for (size_t i = 0; i < report->n_batches; i++) {
        report->points[report->n_points++] =
            (weir_report_point){ report->batches[i], report->tokens };
        if (i == 0)
            report->points[report->n_points++] = (weir_report_point){ report->batches[i], 1024 };
    }
}

weir_status weir_report_complete(weir_report *report, weir_error *error)
{
    int64_t tokens = 0, batch = 0;
    if (report->assumptions->narrow_ffn)
        fill_as_seed(report);
    else
        fill_as_engine(report);
    for (size_t i = 0; i < report->n_contexts; i++)
        if (report->contexts[i] > tokens) tokens = report->contexts[i];
    for (size_t i = 0; i < report->n_batches; i++)
        if (report->batches[i] > batch) batch = report->batches[i];
    for (size_t i = 0; i < report->n_points; i++) {
        if (report->points[i].tokens > tokens) tokens = report->points[i].tokens;
        if (report->points[i].batch > batch) batch = report->points[i].batch;
    }
    if (report->tokens > tokens) tokens = report->tokens;
    if (report->batch > batch) batch = report->batch;
    for (size_t i = 0; i < report->n_shapes; i++) {
        const int64_t longest = report->shapes[i].context > tokens
                                    ? report->shapes[i].context
                                    : tokens; /* for the comparison with paging */
        WEIR_TRY(weir_report_check(&report->shapes[i], longest, batch, error));
    }
    return WEIR_OK;
}
