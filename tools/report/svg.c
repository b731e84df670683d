/* tools/report/svg.c - KV over context as a self-contained SVG plot: no script, no font file, no
 * style sheet. Both axes are logarithmic to base 2, with a line per shape and format: the colour is
 * the shape (the format, if there is one shape), the dashes the format. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tools/eval/plot.h"
#include "tools/report/text_internal.h"

enum { WIDTH = 1000, HEIGHT = 640, LEFT = 90, RIGHT = 760, TOP = 60, BOTTOM = 570 };
static const double row = 15; /* between labels */

static const char *const colours[] = { "#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                       "#ff7f0e", "#8c564b", "#17becf", "#e377c2",
                                       "#7f7f7f", "#bcbd22", "#3b4cc0", "#b40426" };
static const char *const dashes[] = {
    "", "7 3", "2 3", "10 3 2 3", "12 4", "4 2", "1 2", "14 3 3 3"
};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct axis {
    double least, most; /* log2 */
    double from, to; /* pixels */
} axis;

static double place(const axis *a, double value)
{
    return a->from + (log2(value) - a->least) / (a->most - a->least) * (a->to - a->from);
}

typedef struct line {
    const weir_report_shape *shape;
    weir_kv_format format;
    const char *colour, *dash;
    double end, label; /* y of its last point and of its label */
} line;

static double bytes_at(const weir_report *report, const line *l, int64_t tokens)
{
    return (double)(report->batch * weir_report_kv(report->assumptions, l->shape, l->format, tokens)
    );
}

/* The lines whose format is possible and which have KV. */
static size_t list_lines(const weir_report *report, line lines[WEIR_REPORT_LINES], size_t most)
{
    size_t n = 0;
    for (size_t s = 0; s < report->n_shapes; s++)
        for (size_t f = 0; f < report->n_formats; f++) {
            const weir_report_shape *const shape = &report->shapes[s];
            if (weir_report_reject(report->assumptions, shape, report->formats[f]) != NULL ||
                shape->n_kv_layers == 0)
                continue;
            if (n < most)
                lines[n] =
                    (line){ .shape = shape,
                            .format = report->formats[f],
                            .colour = colours[(report->n_shapes > 1 ? s : f) % COUNT(colours)],
                            .dash = report->n_shapes > 1 ? dashes[f % COUNT(dashes)] : "" };
            n++;
        }
    return n;
}

static void find_ranges(const weir_report *report, const line *lines, size_t n, axis *x, axis *y)
{
    int64_t first = report->contexts[0], last = first;
    for (size_t i = 1; i < report->n_contexts; i++) {
        if (report->contexts[i] < first) first = report->contexts[i];
        if (report->contexts[i] > last) last = report->contexts[i];
    }
    *x = (axis){ floor(log2((double)first)), ceil(log2((double)last)), LEFT, RIGHT };
    *y = (axis){ INFINITY, 0, BOTTOM, TOP };
    for (size_t i = 0; i < n; i++) {
        y->least =
            fmin(y->least, floor(log2(bytes_at(report, &lines[i], (int64_t)exp2(x->least)))));
        y->most = fmax(y->most, ceil(log2(bytes_at(report, &lines[i], (int64_t)exp2(x->most)))));
    }
    if (x->most <= x->least) x->most = x->least + 1;
    if (y->most <= y->least) y->most = y->least + 1;
}

static weir_status grid(const weir_report *report, const axis *x, const axis *y, weir_buffer *out)
{
    const int x_step = (int)ceil((x->most - x->least) / 12),
              y_step = (int)ceil((y->most - y->least) / 12);
    for (int e = (int)x->least; e <= (int)x->most; e += x_step) {
        char text[WEIR_REPORT_CELL];
        const double at = place(x, exp2(e));
        WEIR_TRY(weir_buffer_format(
            out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#e4e4e4\"/>\n", at,
            TOP, at, BOTTOM
        ));
        WEIR_TRY(weir_buffer_format(
            out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", at, BOTTOM + 18,
            weir_report_count(text, (int64_t)exp2(e))
        ));
    }
    for (int e = (int)y->least; e <= (int)y->most; e += y_step) {
        static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
        const double at = place(y, exp2(e));
        WEIR_TRY(weir_buffer_format(
            out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", LEFT,
            at, RIGHT, at
        ));
        WEIR_TRY(weir_buffer_format(
            out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %s</text>\n", LEFT - 8, at + 4,
            1 << e % 10, units[e / 10 < 6 ? e / 10 : 6]
        ));
    }
    WEIR_TRY(weir_buffer_format(
        out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#555\"/>\n",
        LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP
    ));
    WEIR_TRY(weir_buffer_format(
        out,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">context of a sequence, tokens</text>\n",
        (LEFT + RIGHT) / 2, BOTTOM + 42
    ));
    WEIR_TRY(weir_buffer_format(
        out, "<text x=\"%d\" y=\"30\" font-size=\"17\" font-weight=\"bold\">KV memory of ", LEFT
    ));
    if (report->batch == 1)
        WEIR_TRY(weir_buffer_text(out, "one sequence"));
    else
        WEIR_TRY(weir_buffer_format(out, "%" PRId64 " sequences", report->batch));
    if (report->n_shapes == 1) {
        WEIR_TRY(weir_buffer_text(out, ", "));
        WEIR_TRY(weir_buffer_xml(out, report->shapes[0].title));
    }
    return weir_buffer_text(out, "</text>\n");
}

static weir_status draw(
    const weir_report *report, const line *l, const axis *x, const axis *y, weir_buffer *out
)
{
    enum { PER_OCTAVE = 4, PAGE = 64 };
    WEIR_TRY(weir_buffer_format(
        out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"", l->colour
    ));
    if (*l->dash != '\0') WEIR_TRY(weir_buffer_format(out, " stroke-dasharray=\"%s\"", l->dash));
    WEIR_TRY(weir_buffer_text(out, " points=\""));
    for (int i = 0; i <= (int)(x->most - x->least) * PER_OCTAVE; i++) {
        const int64_t exact = (int64_t)exp2(x->least + (double)i / (double)PER_OCTAVE);
        const int64_t tokens = exact > PAGE
                                   ? exact / PAGE * PAGE
                                   : exact; /* a line of pages would show steps too small to see */
        const double at = fmax(TOP, fmin(BOTTOM, place(y, bytes_at(report, l, tokens))));
        WEIR_TRY(
            weir_buffer_format(out, "%s%.1f,%.1f", i > 0 ? " " : "", place(x, (double)tokens), at)
        );
    }
    return weir_buffer_text(out, "\"/>\n");
}

/* Labels are at the ends of their lines; those too close push each other apart by half the gap
 * each. What is still missing at the edges is fixed from top to bottom and back: there is enough
 * space for all labels. */
static void place_names(line **order, size_t n)
{
    enum { ROUNDS = 200 };
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && order[j]->end < order[j - 1]->end; j--) {
            line *const swapped = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swapped;
        }
    for (size_t i = 0; i < n; i++) order[i]->label = order[i]->end;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i + 1 < n; i++) {
            const double missing = row - (order[i + 1]->label - order[i]->label);
            if (missing <= 0) continue;
            order[i]->label = fmax(TOP, order[i]->label - missing / 2);
            order[i + 1]->label = fmin(BOTTOM, order[i + 1]->label + missing / 2);
        }
    for (size_t i = 1; i < n; i++)
        order[i]->label = fmax(order[i]->label, order[i - 1]->label + row);
    for (size_t i = n; i-- > 0;)
        order[i]->label =
            fmin(order[i]->label, i + 1 < n ? order[i + 1]->label - row : (double)BOTTOM);
}

static weir_status name_line(const weir_report *report, const line *l, weir_buffer *out)
{
    enum { TIE = 18 };
    WEIR_TRY(weir_buffer_format(
        out, "<path d=\"M%d %.1f L%d %.1f\" fill=\"none\" stroke=\"%s\"/>\n", RIGHT, l->end,
        RIGHT + TIE, l->label, l->colour
    ));
    WEIR_TRY(weir_buffer_format(
        out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">", RIGHT + TIE + 4, l->label + 4, l->colour
    ));
    if (report->n_shapes > 1) {
        WEIR_TRY(weir_buffer_xml(out, l->shape->title));
        WEIR_TRY(weir_buffer_text(out, " "));
    }
    return weir_buffer_format(out, "%s</text>\n", weir_kv_format_name(l->format));
}

weir_status weir_report_svg(const weir_report *report, weir_buffer *out, weir_error *error)
{
    line lines[WEIR_REPORT_LINES], *order[WEIR_REPORT_LINES];
    const size_t n = list_lines(report, lines, WEIR_REPORT_LINES);
    axis x, y;
    if (n == 0 || n > WEIR_REPORT_LINES)
        return weir_error_set(
            error, WEIR_EINVAL,
            "the plot would hold %zu lines, 1 to %d can be distinguished; give %s shapes or "
            "formats",
            n, (int)WEIR_REPORT_LINES, n == 0 ? "other" : "fewer"
        );
    find_ranges(report, lines, n, &x, &y);
    WEIR_TRY(weir_plot_begin(out, WIDTH, HEIGHT));
    WEIR_TRY(grid(report, &x, &y, out));
    for (size_t i = 0; i < n; i++) {
        WEIR_TRY(draw(report, &lines[i], &x, &y, out));
        lines[i].end =
            fmax(TOP, fmin(BOTTOM, place(&y, bytes_at(report, &lines[i], (int64_t)exp2(x.most)))));
        order[i] = &lines[i];
    }
    place_names(order, n);
    for (size_t i = 0; i < n; i++) WEIR_TRY(name_line(report, order[i], out));
    return weir_buffer_text(out, "</svg>\n");
}
