/* tools/eval/plot.h - results as SVG that needs nothing but itself: no script, no font file, no
 * style sheet. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_plot_labels {
    const char *title, *x, *y; /* any text */
} weir_plot_labels;

enum { WEIR_PLOT_CURVES = 24, WEIR_PLOT_CELLS = 64 };

typedef struct weir_plot_curve {
    const char *name;
    const double *x, *y; /* [n], x ascending; a point that is not finite leaves a gap */
    size_t n;
} weir_plot_curve;

typedef struct weir_plot_range {
    double least, most; /* of y; equal: what the points have */
    bool log_x; /* to base 2; points at 0 or below leave gaps */
} weir_plot_range;

/* One line per curve with its name in a legend. EINVAL: no curve, more than WEIR_PLOT_CURVES, or no
 * point to show. */
WEIR_MUST_CHECK weir_status weir_plot_curves(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_curve *curves, size_t n,
    const weir_plot_range *range, weir_error *error
);

typedef struct weir_plot_cells {
    const double *x, *y; /* [n_x], [n_y]: what columns and rows are named; row 0 is at the top */
    const double *values; /* [n_y, n_x], 0 .. 1; not finite: no value */
    size_t n_x, n_y; /* 1 .. WEIR_PLOT_CELLS */
    const char *value_name; /* "accuracy", of the legend */
} weir_plot_cells;

/* A cell per pair, its value in colour and as a number: 0 is red, 1 is blue, which colour-blind
 * eyes tell apart, too. */
WEIR_MUST_CHECK weir_status weir_plot_heat_map(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_cells *cells,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
