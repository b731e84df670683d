/* tools/load/draw.c - plots of a load. */
#include <math.h>
#include <stdio.h>

#include "tools/eval/plot.h"
#include "tools/load/output.h"

enum { POINTS = 100, WINDOWS = 60 };

typedef struct series {
    double x[POINTS + 1], y[POINTS + 1];
    size_t n;
} series;

static weir_status no_memory(weir_status status, weir_error *error)
{
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "no memory for a plot");
}

/* ---- the distribution ------------------------------------------------------------------------ */

static void distribute(series *out, weir_samples *samples)
{
    for (int i = 0; samples->n > 0 && i <= POINTS; i++) {
        const double share = (double)i / (double)POINTS;
        out->x[out->n] = weir_samples_at(samples, share);
        out->y[out->n++] = share;
    }
}

typedef double (*latency)(const weir_load_record *record);

static weir_status collect(weir_samples *out, const weir_load_result *result, latency of)
{
    for (int32_t i = 0; i < result->n; i++) {
        const weir_load_record *const r = &result->records[i];
        if (r->outcome == WEIR_LOAD_OK && of(r) >= 0.0) WEIR_TRY(weir_samples_add(out, of(r)));
    }
    return WEIR_OK;
}

static weir_status draw_cdf(
    weir_buffer *out, const char *title, const weir_load_report *report, weir_error *error
)
{
    static const struct {
        const char *name;
        latency of;
    } rows[] = { { "TTFT", weir_load_ttft },
                 { "TPOT", weir_load_tpot },
                 { "end to end", weir_load_e2e } };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    series lines[ROWS + 1] = { 0 };
    weir_plot_curve curves[ROWS + 1];
    for (int i = 0; i < ROWS; i++) {
        weir_samples samples = { 0 };
        const weir_status status = collect(&samples, report->result, rows[i].of);
        if (status == WEIR_OK) distribute(&lines[i], &samples);
        weir_samples_free(&samples);
        WEIR_TRY(no_memory(status, error));
        curves[i] = (weir_plot_curve){ rows[i].name, lines[i].x, lines[i].y, lines[i].n };
    }
    distribute(&lines[ROWS], &report->result->gaps);
    curves[ROWS] = (weir_plot_curve){ "ITL", lines[ROWS].x, lines[ROWS].y, lines[ROWS].n };
    return weir_plot_curves(
        out, &(weir_plot_labels){ title, "ms", "share of requests (ITL: of tokens)" }, curves,
        ROWS + 1, &(weir_plot_range){ 0.0, 1.0, true }, error
    );
}

/* ---- over time ------------------------------------------------------------------------------- */

/* The percentile of the requests that were due in each window. */
static weir_status follow(
    series *out, const weir_load_report *report, latency of, double share, double seconds
)
{
    const weir_load_result *const result = report->result;
    for (int w = 0; w < WINDOWS; w++) {
        weir_samples samples = { 0 };
        weir_status status = WEIR_OK;
        for (int32_t i = 0; status == WEIR_OK && i < result->n; i++) {
            const weir_load_record *const r = &result->records[i];
            const double at = (double)(r->due_ns - result->start_ns) * 1e-9;
            if (r->outcome == WEIR_LOAD_OK && (int)(at / seconds * (double)WINDOWS) == w)
                status = weir_samples_add(&samples, of(r));
        }
        if (status == WEIR_OK && samples.n > 0) {
            out->x[out->n] = seconds * (w + 0.5) / (double)WINDOWS;
            out->y[out->n++] = weir_samples_at(&samples, share);
        }
        weir_samples_free(&samples);
        WEIR_TRY(status);
    }
    return WEIR_OK;
}

static weir_status draw_time(
    weir_buffer *out, const char *title, const weir_load_report *report, weir_error *error
)
{
    static const struct {
        const char *name;
        latency of;
        double share;
    } rows[] = { { "TTFT p50", weir_load_ttft, 0.50 },
                 { "TTFT p99", weir_load_ttft, 0.99 },
                 { "end to end p50", weir_load_e2e, 0.50 },
                 { "end to end p99", weir_load_e2e, 0.99 } };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    series lines[ROWS] = { 0 };
    weir_plot_curve curves[ROWS];
    const double seconds = fmax(report->summary->seconds, 1e-3);
    for (int i = 0; i < ROWS; i++) {
        WEIR_TRY(no_memory(follow(&lines[i], report, rows[i].of, rows[i].share, seconds), error));
        curves[i] = (weir_plot_curve){ rows[i].name, lines[i].x, lines[i].y, lines[i].n };
    }
    return weir_plot_curves(
        out, &(weir_plot_labels){ title, "s from the start, when the request was due", "ms" },
        curves, ROWS, &(weir_plot_range){ 0.0, 0.0, false }, error
    );
}

weir_status weir_load_draw(
    weir_buffer *out, const weir_load_report *report, weir_load_plot plot, weir_error *error
)
{
    char title[160];
    (void)snprintf(
        title, sizeof title, "%.60s: %d requests, %.2f requests/s, %.1f tokens/s",
        report->form->model, (int)report->summary->n_good, report->summary->requests_per_second,
        report->summary->answer_per_second
    );
    return plot == WEIR_LOAD_PLOT_CDF ? draw_cdf(out, title, report, error)
                                      : draw_time(out, title, report, error);
}
