/* tools/eval/plot.h - results as self-contained SVG: no script, no font file, no style sheet. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a picture on white; its end is "</svg>". */
WEIR_MUST_CHECK weir_status weir_plot_begin(weir_buffer *out, int width, int height);

typedef struct weir_plot_labels {
    const char *title, *x, *y; /* any text */
} weir_plot_labels;

enum { WEIR_PLOT_CURVES = 24, WEIR_PLOT_CELLS = 64 };

typedef struct weir_plot_curve {
    const char *name;
    /* [n], x ascending; a point that is not finite leaves a gap. */
    const double *x, *y;
    size_t n;
} weir_plot_curve;

typedef struct weir_plot_range {
    /* Range of y; if equal, that of the points. */
    double least, most;
    /* To base 2; points at 0 or below leave gaps. */
    bool log_x;
} weir_plot_range;

/* One line per curve, named in a legend. Returns EINVAL for no curve, more than WEIR_PLOT_CURVES,
 * or no point to show. */
WEIR_MUST_CHECK weir_status weir_plot_curves(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_curve *curves, size_t n,
    const weir_plot_range *range, weir_error *error
);

typedef struct weir_plot_cells {
    /* [n_x], [n_y]: labels of columns and rows; row 0 is at the top. */
    const double *x, *y;
    const double *values; /* [n_y, n_x], 0 .. 1; not finite: no value */
    size_t n_x, n_y; /* 1 .. WEIR_PLOT_CELLS */
    const char *value_name; /* for the legend, such as "accuracy" */
} weir_plot_cells;

/* One cell per pair, its value as a number and a colour: red is 0, blue is 1, which also the
 * colour-blind can tell apart. */
WEIR_MUST_CHECK weir_status weir_plot_heat_map(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_cells *cells,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
