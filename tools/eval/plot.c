#include "tools/eval/plot.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 900, HEIGHT = 520, LEFT = 80, RIGHT = 660, TOP = 60, BOTTOM = 450 };

static const char *const colours[] = { "#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                       "#ff7f0e", "#8c564b", "#17becf", "#e377c2",
                                       "#7f7f7f", "#bcbd22", "#3b4cc0", "#b40426" };
enum { COLOURS = sizeof colours / sizeof colours[0] };

static weir_status no_memory(weir_error *error, weir_status status)
{
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "no memory for a plot");
}

/* ---- shared ---------------------------------------------------------------------------------- */

static weir_status text_at(weir_buffer *out, double x, double y, const char *how, const char *text)
{
    WEIR_TRY(weir_buffer_format(out, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, how));
    WEIR_TRY(weir_buffer_xml(out, text));
    return weir_buffer_text(out, "</text>\n");
}

weir_status weir_plot_begin(weir_buffer *out, int width, int height)
{
    return weir_buffer_format(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "width=\"%d\" height=\"%d\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"%d\" "
        "height=\"%d\" fill=\"#fff\"/>\n",
        width, height, width, height, width, height
    );
}

static weir_status begin(
    weir_buffer *out, const weir_plot_labels *labels, int width, int height, int right, int bottom
)
{
    char rotation[96];
    WEIR_TRY(weir_plot_begin(out, width, height));
    WEIR_TRY(text_at(out, LEFT, 30, " font-size=\"17\" font-weight=\"bold\"", labels->title));
    WEIR_TRY(text_at(out, (LEFT + right) / 2.0, bottom + 44, " text-anchor=\"middle\"", labels->x));
    (void)snprintf(
        rotation, sizeof rotation, " text-anchor=\"middle\" transform=\"rotate(-90 20 %d)\"",
        (TOP + bottom) / 2
    );
    return text_at(out, 20, (TOP + bottom) / 2.0, rotation, labels->y);
}

/* Thousands as K if no digit is lost. */
static const char *number(char text[32], double value)
{
    const double k = value / 1024;
    if (value >= 1024 && k == floor(k))
        (void)snprintf(text, 32, "%.0fK", k);
    else
        (void)snprintf(text, 32, "%.4g", value);
    return text;
}

/* ---- curves ---------------------------------------------------------------------------------- */

typedef struct axis {
    /* Values (of log2 if is_log), pixels. */
    double least, most, from, to;
    bool is_log;
} axis;

static bool can_show(const axis *x, double value)
{
    return isfinite(value) && (!x->is_log || value > 0);
}

static double place(const axis *a, double value)
{
    const double at = a->is_log ? log2(value) : value;
    return a->from + (at - a->least) / (a->most - a->least) * (a->to - a->from);
}

static void stretch(axis *a, double value)
{
    const double at = a->is_log ? log2(value) : value;
    a->least = fmin(a->least, at);
    a->most = fmax(a->most, at);
}

/* One, two or five times a power of ten, so that there are at most `most` steps. */
static double tick_step(double span, int most)
{
    const double raw = span / most, base = pow(10, floor(log10(raw)));
    const double times[] = { 1, 2, 5, 10 };
    for (int i = 0; i < 4; i++)
        if (base * times[i] >= raw * 0.999999) return base * times[i];
    return base * 10;
}

static weir_status x_tick(weir_buffer *out, const axis *x, double value)
{
    char text[32];
    const double at = place(x, value);
    WEIR_TRY(weir_buffer_format(
        out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#e4e4e4\"/>\n", at, TOP,
        at, BOTTOM
    ));
    return text_at(out, at, BOTTOM + 18, " text-anchor=\"middle\"", number(text, value));
}

static weir_status y_tick(weir_buffer *out, const axis *y, double value)
{
    char text[32];
    const double at = place(y, value);
    WEIR_TRY(weir_buffer_format(
        out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", LEFT, at,
        RIGHT, at
    ));
    (void)snprintf(text, sizeof text, "%.4g", value);
    return text_at(out, LEFT - 8, at + 4, " text-anchor=\"end\"", text);
}

static weir_status grid(weir_buffer *out, const axis *x, const axis *y)
{
    const double step_x =
        x->is_log ? ceil((x->most - x->least) / 12) : tick_step(x->most - x->least, 10);
    const double step_y = tick_step(y->most - y->least, 10);
    for (int i = 0; i <= 12; i++) {
        const double at =
            (x->is_log ? ceil(x->least) : ceil(x->least / step_x) * step_x) + i * step_x;
        if (at <= x->most + 1e-9) WEIR_TRY(x_tick(out, x, x->is_log ? exp2(at) : at));
    }
    for (int i = 0; i <= 12; i++) {
        const double at = (ceil(y->least / step_y - 1e-9) + i) * step_y;
        if (at <= y->most + step_y * 1e-6) WEIR_TRY(y_tick(out, y, at));
    }
    return weir_buffer_format(
        out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#555\"/>\n",
        LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP
    );
}

static bool is_shown(const axis *x, const weir_plot_curve *c, size_t i)
{
    return can_show(x, c->x[i]) && isfinite(c->y[i]);
}

static double height(const axis *y, double value)
{
    return fmax(TOP, fmin(BOTTOM, place(y, value)));
}

/* Draws lines between points without a gap, then the points, so that a single point is visible
 * too. */
static weir_status draw(
    weir_buffer *out, const weir_plot_curve *c, const axis *x, const axis *y, const char *colour,
    const char *dash
)
{
    bool inside = false;
    for (size_t i = 0; i < c->n; i++) {
        const bool shown = is_shown(x, c, i);
        if (shown && !inside)
            WEIR_TRY(weir_buffer_format(
                out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colour,
                dash
            ));
        if (shown)
            WEIR_TRY(weir_buffer_format(
                out, "%s%.1f,%.1f", inside ? " " : "", place(x, c->x[i]), height(y, c->y[i])
            ));
        if (inside && !shown) WEIR_TRY(weir_buffer_text(out, "\"/>\n"));
        inside = shown;
    }
    if (inside) WEIR_TRY(weir_buffer_text(out, "\"/>\n"));
    for (size_t i = 0; i < c->n; i++)
        if (is_shown(x, c, i))
            WEIR_TRY(weir_buffer_format(
                out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", place(x, c->x[i]),
                height(y, c->y[i]), colour
            ));
    return WEIR_OK;
}

static weir_status name(
    weir_buffer *out, const weir_plot_curve *c, size_t i, const char *colour, const char *dash
)
{
    enum { ROW = 16, SAMPLE = 26 };
    const int at = TOP + 8 + ROW * (int)i;
    WEIR_TRY(weir_buffer_format(
        out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
        RIGHT + 16, at, RIGHT + 16 + SAMPLE, at, colour, dash
    ));
    return text_at(out, RIGHT + 24 + SAMPLE, at + 4, "", c->name);
}

static weir_status find_ranges(
    axis *x, axis *y, const weir_plot_curve *curves, size_t n, const weir_plot_range *range,
    weir_error *error
)
{
    *x = (axis){ INFINITY, -INFINITY, LEFT, RIGHT, range->log_x };
    *y = (axis){ INFINITY, -INFINITY, BOTTOM, TOP, false };
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < curves[i].n; j++) {
            if (!is_shown(x, &curves[i], j)) continue;
            stretch(x, curves[i].x[j]);
            stretch(y, curves[i].y[j]);
        }
    if (x->least > x->most)
        return weir_error_set(error, WEIR_EINVAL, "the plot has no point to show");
    if (range->most > range->least) *y = (axis){ range->least, range->most, BOTTOM, TOP, false };
    if (x->least == x->most) x->least -= 0.5, x->most += 0.5;
    if (y->least == y->most) y->least -= 0.5, y->most += 0.5;
    return WEIR_OK;
}

static weir_status print_curves(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_curve *curves, size_t n,
    const axis *x, const axis *y
)
{
    WEIR_TRY(begin(out, labels, WIDTH, HEIGHT, RIGHT, BOTTOM));
    WEIR_TRY(grid(out, x, y));
    for (size_t i = 0; i < n; i++) {
        const char *const colour = colours[i % COLOURS], *const dash =
                                                             i < COLOURS
                                                                 ? ""
                                                                 : " stroke-dasharray=\"7 3\"";
        WEIR_TRY(draw(out, &curves[i], x, y, colour, dash));
        WEIR_TRY(name(out, &curves[i], i, colour, dash));
    }
    return weir_buffer_text(out, "</svg>\n");
}

weir_status weir_plot_curves(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_curve *curves, size_t n,
    const weir_plot_range *range, weir_error *error
)
{
    axis x, y;
    if (n == 0 || n > WEIR_PLOT_CURVES)
        return weir_error_set(
            error, WEIR_EINVAL, "the plot would hold %zu lines, 1 to %d can be distinguished", n,
            (int)WEIR_PLOT_CURVES
        );
    WEIR_TRY(find_ranges(&x, &y, curves, n, range, error));
    return no_memory(error, print_curves(out, labels, curves, n, &x, &y));
}

/* ---- heat map -------------------------------------------------------------------------------- */

typedef struct colour {
    int red, green, blue;
} colour;

/* From red to white to blue. */
static colour shade(double value)
{
    static const colour low = { 178, 24, 43 }, middle = { 247, 247, 247 }, high = { 33, 102, 172 };
    const colour *const end = value < 0.5 ? &low : &high;
    const double t = fabs(fmax(0, fmin(1, value)) - 0.5) * 2;
    return (colour){ (int)lround(middle.red + t * (end->red - middle.red)),
                     (int)lround(middle.green + t * (end->green - middle.green)),
                     (int)lround(middle.blue + t * (end->blue - middle.blue)) };
}

typedef struct frame {
    double column, row; /* pixels of a cell */
    int right, bottom, font;
} frame;

static frame frame_of(const weir_plot_cells *cells)
{
    const double column = fmax(24, fmin(64, 640.0 / (double)cells->n_x)),
                 row = fmax(16, fmin(34, 400.0 / (double)cells->n_y));
    return (frame){ column, row, LEFT + (int)ceil(column * (double)cells->n_x),
                    TOP + (int)ceil(row * (double)cells->n_y), column < 40 ? 9 : 12 };
}

static weir_status draw_cell(weir_buffer *out, const frame *f, size_t i, size_t j, double value)
{
    const double x = (double)LEFT + f->column * (double)i, y = (double)TOP + f->row * (double)j;
    const colour c = shade(value);
    char how[96], text[32];
    if (!isfinite(value))
        return weir_buffer_format(
            out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"#ddd\" stroke=\"#fff\"/>\n",
            x, y, f->column, f->row
        );
    WEIR_TRY(weir_buffer_format(
        out,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
        "fill=\"#%02x%02x%02x\" stroke=\"#fff\"/>\n",
        x, y, f->column, f->row, (unsigned)c.red, (unsigned)c.green, (unsigned)c.blue
    ));
    (void)snprintf(
        how, sizeof how, " text-anchor=\"middle\" font-size=\"%d\" fill=\"%s\"", f->font,
        fabs(value - 0.5) > 0.3 ? "#fff" : "#222"
    );
    (void)snprintf(text, sizeof text, "%.2f", value);
    return text_at(out, x + f->column / 2, y + f->row / 2 + 4, how, text);
}

/* A column of shades, labelled with numbers. */
static weir_status draw_legend(weir_buffer *out, const frame *f, const char *value_name)
{
    enum { STEPS = 20, BAR = 16 };
    const double step = 160.0 / (double)STEPS, left = f->right + 30,
                 label_x = left + (double)BAR + 6;
    WEIR_TRY(text_at(out, left, TOP - 8, "", value_name));
    for (int i = 0; i < STEPS; i++) {
        const colour c = shade(1 - (i + 0.5) / (double)STEPS);
        WEIR_TRY(weir_buffer_format(
            out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#%02x%02x%02x\"/>\n",
            left, (double)TOP + 4 + step * i, BAR, step + 0.5, (unsigned)c.red, (unsigned)c.green,
            (unsigned)c.blue
        ));
    }
    WEIR_TRY(text_at(out, label_x, TOP + 14, "", "1"));
    WEIR_TRY(text_at(out, label_x, TOP + 88, "", "0.5"));
    return text_at(out, label_x, TOP + 164, "", "0");
}

static weir_status print_cells(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_cells *cells
)
{
    const frame f = frame_of(cells);
    const int bottom = f.bottom < TOP + 180 ? TOP + 180 : f.bottom; /* the legend has this height */
    char text[32];
    /* Space for the title. */
    WEIR_TRY(begin(out, labels, f.right < 350 ? 480 : f.right + 130, bottom + 60, f.right, f.bottom)
    );
    for (size_t j = 0; j < cells->n_y; j++) {
        WEIR_TRY(text_at(
            out, LEFT - 8, (double)TOP + f.row * ((double)j + 0.5) + 4, " text-anchor=\"end\"",
            number(text, cells->y[j])
        ));
        for (size_t i = 0; i < cells->n_x; i++)
            WEIR_TRY(draw_cell(out, &f, i, j, cells->values[j * cells->n_x + i]));
    }
    for (size_t i = 0; i < cells->n_x; i++)
        WEIR_TRY(text_at(
            out, (double)LEFT + f.column * ((double)i + 0.5), f.bottom + 18,
            " text-anchor=\"middle\"", number(text, cells->x[i])
        ));
    WEIR_TRY(draw_legend(out, &f, cells->value_name));
    return weir_buffer_text(out, "</svg>\n");
}

weir_status weir_plot_heat_map(
    weir_buffer *out, const weir_plot_labels *labels, const weir_plot_cells *cells,
    weir_error *error
)
{
    if (cells->n_x == 0 || cells->n_y == 0 || cells->n_x > WEIR_PLOT_CELLS ||
        cells->n_y > WEIR_PLOT_CELLS)
        return weir_error_set(
            error, WEIR_EINVAL,
            "the heat map would have %zu x %zu cells, allowed are 1 to %d each way", cells->n_x,
            cells->n_y, (int)WEIR_PLOT_CELLS
        );
    return no_memory(error, print_cells(out, labels, cells));
}
