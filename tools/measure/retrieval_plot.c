/* tools/measure/retrieval_plot.c - plots results of eval retrieval. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "tools/eval/plot.h"
#include "tools/measure/evaluate.h"

/* Distinct numbers, ascending. */
typedef struct ticks {
    double at[WEIR_PLOT_CELLS];
    size_t n;
} ticks;

static bool add_tick(ticks *t, double value)
{
    size_t i = 0;
    while (i < t->n && t->at[i] < value) i++;
    if (i < t->n && t->at[i] == value) return true;
    if (t->n == WEIR_PLOT_CELLS) return false;
    memmove(t->at + i + 1, t->at + i, (t->n - i) * sizeof t->at[0]);
    t->at[i] = value;
    t->n++;
    return true;
}

static size_t find_tick(const ticks *t, double value)
{
    size_t i = 0;
    while (t->at[i] != value) i++;
    return i;
}

/* Items of the same length and depth are one cell, whatever their task. */
static weir_status plot_depths(weir_buffer *out, const weir_retrieval *retrieval, weir_error *error)
{
    ticks lengths = { .n = 0 }, depths = { .n = 0 };
    bool fits = true;
    for (size_t i = 0; i < retrieval->n_rows; i++)
        if (fits)
            fits = add_tick(&lengths, retrieval->rows[i].length) &&
                   add_tick(&depths, retrieval->rows[i].depth);
    double *const scores = fits ? calloc(2 * lengths.n * depths.n, sizeof *scores) : NULL;
    if (!fits)
        return weir_error_set(
            error, WEIR_EINVAL, "a heat map takes %d lengths and depths at most",
            (int)WEIR_PLOT_CELLS
        );
    if (scores == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a plot");
    double *const items = scores + lengths.n * depths.n;
    for (size_t i = 0; i < retrieval->n_rows; i++) {
        const weir_retrieval_row *const row = &retrieval->rows[i];
        const size_t cell =
            find_tick(&depths, row->depth) * lengths.n + find_tick(&lengths, row->length);
        scores[cell] += row->score;
        items[cell] += row->n_items;
    }
    for (size_t i = 0; i < lengths.n * depths.n; i++)
        scores[i] = items[i] > 0 ? scores[i] / items[i] : NAN;
    const weir_status status = weir_plot_heat_map(
        out,
        &(weir_plot_labels){ "Retrieval by length and depth", "length, tokens", "depth, percent" },
        &(weir_plot_cells){ lengths.at, depths.at, scores, lengths.n, depths.n, "accuracy" }, error
    );
    free(scores);
    return status;
}

/* Of one task; y: sums of scores, finally their means. */
typedef struct curve {
    double x[WEIR_PLOT_CELLS], y[WEIR_PLOT_CELLS], items[WEIR_PLOT_CELLS];
    size_t n;
} curve;

static weir_status add_point(curve *c, const weir_retrieval_row *row, weir_error *error)
{
    size_t at = 0;
    while (at < c->n && c->x[at] < row->length) at++;
    if (at == c->n || c->x[at] != row->length) {
        if (c->n == WEIR_PLOT_CELLS)
            return weir_error_set(
                error, WEIR_EINVAL, "%s: a curve takes %d lengths at most", row->task,
                (int)WEIR_PLOT_CELLS
            );
        for (size_t i = c->n++; i > at; i--)
            c->x[i] = c->x[i - 1], c->y[i] = c->y[i - 1], c->items[i] = c->items[i - 1];
        c->x[at] = row->length;
        c->y[at] = c->items[at] = 0;
    }
    c->y[at] += row->score;
    c->items[at] += row->n_items;
    return WEIR_OK;
}

static weir_status plot_tasks(weir_buffer *out, const weir_retrieval *retrieval, weir_error *error)
{
    weir_plot_curve curves[WEIR_PLOT_CURVES];
    curve *const points = calloc(WEIR_PLOT_CURVES, sizeof *points);
    size_t n = 0;
    weir_status status =
        points != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a plot");
    for (size_t i = 0; status == WEIR_OK && i < retrieval->n_rows; i++) {
        const weir_retrieval_row *const row = &retrieval->rows[i];
        size_t at = 0;
        if (row->n_items == 0) continue;
        while (at < n && strcmp(curves[at].name, row->task) != 0) at++;
        if (at == WEIR_PLOT_CURVES)
            status = weir_error_set(
                error, WEIR_EINVAL, "a plot takes %d tasks at most", (int)WEIR_PLOT_CURVES
            );
        else if (at == n)
            curves[n++] = (weir_plot_curve){ row->task, points[at].x, points[at].y, 0 };
        if (status == WEIR_OK) status = add_point(&points[at], row, error);
    }
    for (size_t i = 0; i < n; i++) {
        curves[i].n = points[i].n;
        for (size_t j = 0; j < points[i].n; j++) points[i].y[j] /= points[i].items[j];
    }
    if (status == WEIR_OK)
        status = weir_plot_curves(
            out, &(weir_plot_labels){ "Retrieval by length", "length, tokens", "accuracy" }, curves,
            n, &(weir_plot_range){ 0, 1, true }, error
        );
    free(points);
    return status;
}

weir_status weir_retrieval_plot(
    const weir_retrieval *retrieval, const char *path, weir_error *error
)
{
    weir_buffer svg = { 0 };
    bool have_depth = true;
    for (size_t i = 0; i < retrieval->n_rows; i++)
        have_depth = have_depth && retrieval->rows[i].depth >= 0;
    weir_status status = (have_depth ? plot_depths : plot_tasks)(&svg, retrieval, error);
    if (status == WEIR_OK) status = weir_file_write_atomic(path, svg.data, svg.size, error);
    weir_buffer_free(&svg);
    return status;
}
