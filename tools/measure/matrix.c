#include "tools/measure/matrix.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/kv/policy/policy_options.h"
#include "engine/kv/pool/formats.h"
#include "tools/eval/plot.h"

enum { MOST_BYTES = 1 << 26, MOST_BUDGETS = 32, MOST_FORMATS = 32, MOST_PATH = 4096 };

/* ---- planning -------------------------------------------------------------------------------- */
/* The next part of a list, up to `separator`. Returns false past the last. */
static bool next_part(char *out, size_t size, const char **list, char separator, bool *fits)
{
    if (**list == '\0') return false;
    const size_t n = strcspn(*list, (char[]){ separator, '\0' });
    *fits = n > 0 && n < size;
    if (*fits) (void)snprintf(out, size, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == separator);
    return true;
}

static weir_status add_cell(weir_matrix *m, const weir_matrix_cell *cell, weir_error *error)
{
    if (m->n == WEIR_MATRIX_CELLS)
        return weir_error_set(
            error, WEIR_EINVAL, "more than %d cells; ask for fewer", (int)WEIR_MATRIX_CELLS
        );
    m->cells[m->n++] = *cell;
    return WEIR_OK;
}

static weir_status parse_budget(weir_matrix_cell *cell, const char *text, weir_error *error)
{
    char *end;
    const long long n = strtoll(text, &end, 10);
    const bool is_percent = end[0] == '%' && end[1] == '\0', is_rows = end[0] == '\0';
    cell->percent = is_percent ? (int32_t)n : 0;
    cell->budget = is_rows ? n : 0;
    if (end != text &&
        ((is_percent && n >= 1 && n <= 100) || (is_rows && n >= 1 && n <= INT32_MAX)))
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "\"%.40s\" is not a budget: rows, or 1%% to 100%%", text
    );
}

/* Adds one policy in one format, at every budget. */
static weir_status add_budgets(
    weir_matrix *m, weir_matrix_cell cell, const char *budgets, weir_error *error
)
{
    char text[24];
    bool fits;
    if (strcmp(cell.policy, "full") == 0) {
        cell.percent = 100;
        return add_cell(m, &cell, error);
    }
    while (next_part(text, sizeof text, &budgets, ',', &fits)) {
        if (!fits) return weir_error_set(error, WEIR_EINVAL, "budgets: one is empty or too long");
        WEIR_TRY(parse_budget(&cell, text, error));
        WEIR_TRY(add_cell(m, &cell, error));
    }
    return WEIR_OK;
}

/* Parses and checks "name:options". */
static weir_status parse_policy(weir_matrix_cell *cell, char *text, weir_error *error)
{
    char *const colon = strchr(text, ':');
    weir_policy_options options;
    if (colon != NULL) *colon = '\0';
    (void)snprintf(cell->options, sizeof cell->options, "%s", colon != NULL ? colon + 1 : "");
    WEIR_TRY(weir_policy_options_default(&options, text, error));
    WEIR_TRY(weir_policy_options_set(&options, cell->options, error));
    (void)snprintf(cell->policy, sizeof cell->policy, "%s", weir_policy_name(&options));
    return WEIR_OK;
}

static weir_status add_policies(
    weir_matrix *m, const char *format, const char *policies, const char *budgets, weir_error *error
)
{
    char text[WEIR_MATRIX_TEXT];
    bool fits;
    while (next_part(text, sizeof text, &policies, ';', &fits)) {
        weir_matrix_cell cell = { .result = NULL };
        if (!fits) return weir_error_set(error, WEIR_EINVAL, "policies: one is empty or too long");
        (void)snprintf(cell.format, sizeof cell.format, "%s", format);
        WEIR_TRY(parse_policy(&cell, text, error));
        WEIR_TRY(add_budgets(m, cell, budgets, error));
    }
    return WEIR_OK;
}

weir_status weir_matrix_policies(weir_buffer *out, bool has_calibration, weir_error *error)
{
    const char *name, *summary;
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && (name = weir_policy_at(i, &summary)) != NULL; i++) {
        const char *const options = weir_policy_matrix_options(i, has_calibration);
        if (options == NULL) continue;
        status = weir_buffer_format(
            out, "%s%s%s%s", out->size > 0 ? ";" : "", name, options[0] != '\0' ? ":" : "", options
        );
    }
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "no memory for the list of policies");
}

weir_status weir_matrix_plan(
    weir_matrix *matrix, const char *policies, const char *budgets, const char *formats,
    weir_error *error
)
{
    char format[32];
    bool fits;
    weir_kv_pair pair;
    *matrix = (weir_matrix){ .cells = calloc(WEIR_MATRIX_CELLS, sizeof *matrix->cells) };
    if (matrix->cells == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %d cells", (int)WEIR_MATRIX_CELLS);
    while (next_part(format, sizeof format, &formats, ',', &fits)) {
        if (!fits || !weir_kv_pair_parse(&pair, format))
            return weir_error_set(
                error, WEIR_EINVAL, "formats: \"%.31s\" is not a KV format", format
            );
        WEIR_TRY(add_policies(matrix, format, policies, budgets, error));
    }
    if (matrix->n == 0)
        return weir_error_set(error, WEIR_EINVAL, "no policy, budget or format is given");
    return WEIR_OK;
}

void weir_matrix_free(weir_matrix *matrix)
{
    for (int32_t i = 0; i < matrix->n; i++) json_decref(matrix->cells[i].result);
    json_decref(matrix->others);
    free(matrix->cells);
    *matrix = (weir_matrix){ 0 };
}

void weir_matrix_budget(char out[24], const weir_matrix_cell *cell)
{
    if (cell->budget > 0)
        (void)snprintf(out, 24, "%lld", (long long)cell->budget);
    else
        (void)snprintf(out, 24, "%d%%", (int)cell->percent);
}

/* ---- keeping --------------------------------------------------------------------------------- */
static bool is_field(const json_t *line, const char *key, const char *value)
{
    const char *const text = json_string_value(json_object_get(line, key));
    return text != NULL && strcmp(text, value) == 0;
}

static bool is_of(const json_t *line, const weir_matrix_cell *cell, const char *source)
{
    char budget[24];
    weir_matrix_budget(budget, cell);
    return is_field(line, "policy", cell->policy) && is_field(line, "options", cell->options) &&
           is_field(line, "format", cell->format) && is_field(line, "budget", budget) &&
           is_field(line, "source", source);
}

static weir_status path_of(
    char path[MOST_PATH], const weir_matrix *m, const char *name, weir_error *error
)
{
    const int n = snprintf(path, MOST_PATH, "%s/%s", m->folder, name);
    return n > 0 && n < MOST_PATH
               ? WEIR_OK
               : weir_error_set(error, WEIR_EINVAL, "%.40s..: the path is too long", m->folder);
}

/* Stores a line as the result of its cell, or with the others. */
static weir_status take_line(weir_matrix *m, json_t *line, const char *source, weir_error *error)
{
    for (int32_t i = 0; i < m->n; i++) {
        weir_matrix_cell *const cell = &m->cells[i];
        if (!is_of(line, cell, source)) continue;
        if (cell->result == NULL) cell->result = json_incref(line);
        return WEIR_OK;
    }
    return json_array_append(m->others, line) == 0
               ? WEIR_OK
               : weir_error_set(error, WEIR_ENOMEM, "no memory for results");
}

static weir_status read_results(
    weir_matrix *m, const char *path, const char *source, weir_error *error
)
{
    weir_buffer text = { 0 };
    weir_error why = { 0 };
    weir_status status = weir_file_read(&text, path, MOST_BYTES, &why);
    for (size_t at = 0, end, number = 1; status == WEIR_OK && at < text.size;
         at = end + 1, number++) {
        json_t *line = NULL;
        char name[MOST_PATH + 32];
        for (end = at; end < text.size && text.data[end] != '\n';) end++;
        (void)snprintf(name, sizeof name, "%s, result %zu", path, number);
        status = weir_json_parse(&line, text.data + at, end - at, name, 8, &why);
        if (status == WEIR_OK) status = take_line(m, line, source, &why);
        json_decref(line);
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK || status == WEIR_ENOTFOUND) return WEIR_OK;
    return weir_error_set(
        error, status, "%s%s", why.text,
        status == WEIR_EFORMAT ? "; remove the damaged line, or use another folder (--out)" : ""
    );
}

weir_status weir_matrix_resume(
    weir_matrix *matrix, const char *folder, const char *source, weir_error *error
)
{
    char path[MOST_PATH];
    matrix->folder = folder;
    matrix->others = json_array();
    if (matrix->others == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for results");
    if (!weir_file_is_directory(folder) && mkdir(folder, 0777) != 0)
        return weir_error_set(
            error, WEIR_EIO, "%s: cannot create the folder: %s", folder, strerror(errno)
        );
    WEIR_TRY(path_of(path, matrix, "results.jsonl", error));
    WEIR_TRY(read_results(matrix, path, source, error));
    return weir_matrix_save(matrix, error);
}

static weir_status write_file(
    const weir_matrix *m, const char *name, const weir_buffer *text, weir_error *error
)
{
    char path[MOST_PATH];
    WEIR_TRY(path_of(path, m, name, error));
    return weir_file_write_atomic(path, text->data != NULL ? text->data : "", text->size, error);
}

static weir_status add_line(weir_buffer *text, const json_t *result)
{
    char *const line = weir_json_text(result, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const weir_status status = line != NULL ? weir_buffer_format(text, "%s\n", line) : WEIR_ENOMEM;
    weir_memory_give(line);
    return status;
}

weir_status weir_matrix_save(const weir_matrix *matrix, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(matrix->others); i++)
        status = add_line(&text, json_array_get(matrix->others, i));
    for (int32_t i = 0; status == WEIR_OK && i < matrix->n; i++)
        if (matrix->cells[i].result != NULL) status = add_line(&text, matrix->cells[i].result);
    status = status == WEIR_OK ? write_file(matrix, "results.jsonl", &text, error)
                               : weir_error_set(error, status, "no memory for results");
    weir_buffer_free(&text);
    return status;
}

/* ---- what people look at --------------------------------------------------------------------- */
static const char *const columns[] = { "accuracy",
                                       "low",
                                       "high",
                                       "perplexity",
                                       "kept",
                                       "evicted",
                                       "bytes",
                                       "tokens_per_second",
                                       "text_tokens_per_second",
                                       "seconds" };
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Appends the text in quotes, with quotes doubled. */
static weir_status add_quoted(weir_buffer *out, const char *text)
{
    WEIR_TRY(weir_buffer_text(out, "\""));
    for (const char *c = text; *c != '\0'; c++)
        WEIR_TRY(weir_buffer_format(out, *c == '"' ? "\"%c" : "%c", *c));
    return weir_buffer_text(out, "\"");
}

static weir_status write_csv(const weir_matrix *m, weir_error *error)
{
    weir_buffer text = { 0 };
    weir_status status = weir_buffer_text(&text, "format,policy,options,budget");
    for (int c = 0; status == WEIR_OK && c < COLUMNS; c++)
        status = weir_buffer_format(&text, ",%s", columns[c]);
    if (status == WEIR_OK) status = weir_buffer_text(&text, ",problem\n");
    for (int32_t i = 0; status == WEIR_OK && i < m->n; i++) {
        const weir_matrix_cell *const cell = &m->cells[i];
        char budget[24];
        weir_matrix_budget(budget, cell);
        status = weir_buffer_format(&text, "%s,%s,", cell->format, cell->policy);
        if (status == WEIR_OK) status = add_quoted(&text, cell->options);
        if (status == WEIR_OK) status = weir_buffer_format(&text, ",%s", budget);
        for (int c = 0; status == WEIR_OK && c < COLUMNS; c++) {
            const json_t *const value = json_object_get(cell->result, columns[c]);
            status = json_is_number(value)
                         ? weir_buffer_format(&text, ",%.9g", json_number_value(value))
                         : weir_buffer_text(&text, ",");
        }
        const char *const problem = json_string_value(json_object_get(cell->result, "problem"));
        if (status == WEIR_OK) status = weir_buffer_text(&text, ",");
        if (status == WEIR_OK) status = add_quoted(&text, problem != NULL ? problem : "");
        if (status == WEIR_OK) status = weir_buffer_text(&text, "\n");
    }
    status = status == WEIR_OK ? write_file(m, "results.csv", &text, error)
                               : weir_error_set(error, status, "no memory for a table");
    weir_buffer_free(&text);
    return status;
}

/* Points of one policy in one format, by ascending percentage. */
typedef struct curve {
    const weir_matrix_cell *first;
    char name[WEIR_MATRIX_TEXT + 40];
    double x[MOST_BUDGETS], y[MOST_BUDGETS];
    size_t n;
} curve;

static void add_point(curve *c, double x, double y)
{
    size_t at = c->n;
    if (c->n == MOST_BUDGETS) return;
    for (; at > 0 && c->x[at - 1] > x; at--) c->x[at] = c->x[at - 1], c->y[at] = c->y[at - 1];
    c->x[at] = x;
    c->y[at] = y;
    c->n++;
}

static curve *curve_of(curve *curves, size_t *n, const weir_matrix_cell *cell)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(curves[i].first->policy, cell->policy) == 0 &&
            strcmp(curves[i].first->options, cell->options) == 0)
            return &curves[i];
    if (*n == WEIR_PLOT_CURVES) return NULL;
    curve *const c = &curves[(*n)++];
    *c = (curve){ .first = cell };
    (void)snprintf(
        c->name, sizeof c->name, "%s%s%s", cell->policy, cell->options[0] != '\0' ? " " : "",
        cell->options
    );
    return c;
}

/* A format's curves of one column; nothing if it was not measured at budgets in percent. */
static weir_status plot(
    const weir_matrix *m, const char *format, const char *column, weir_error *error
)
{
    static curve curves[WEIR_PLOT_CURVES];
    weir_plot_curve shown[WEIR_PLOT_CURVES];
    size_t n = 0, n_points = 0;
    for (int32_t i = 0; i < m->n; i++) {
        const weir_matrix_cell *const cell = &m->cells[i];
        const json_t *const value = json_object_get(cell->result, column);
        if (strcmp(cell->format, format) != 0 || cell->percent == 0 || !json_is_number(value))
            continue;
        curve *const c = curve_of(curves, &n, cell);
        if (c != NULL) add_point(c, cell->percent, json_number_value(value)), n_points++;
    }
    if (n_points == 0) return WEIR_OK;
    for (size_t i = 0; i < n; i++)
        shown[i] = (weir_plot_curve){ curves[i].name, curves[i].x, curves[i].y, curves[i].n };
    char title[80], name[80];
    weir_buffer svg = { 0 };
    const weir_plot_labels labels = { title, "rows kept, percent", column };
    (void)snprintf(title, sizeof title, "%s by KV policy and budget, %s", column, format);
    (void)snprintf(name, sizeof name, "%s-%s.svg", column, format);
    for (char *c = name; *c != '\0'; c++) *c = *c == '/' ? '_' : *c;
    weir_status status =
        weir_plot_curves(&svg, &labels, shown, n, &(weir_plot_range){ .log_x = true }, error);
    if (status == WEIR_OK) status = write_file(m, name, &svg, error);
    weir_buffer_free(&svg);
    return status;
}

weir_status weir_matrix_finish(const weir_matrix *matrix, weir_error *error)
{
    WEIR_TRY(write_csv(matrix, error));
    for (int32_t i = 0; i < matrix->n; i++) {
        bool is_first = true;
        for (int32_t k = 0; k < i; k++)
            is_first = is_first && strcmp(matrix->cells[k].format, matrix->cells[i].format) != 0;
        if (!is_first) continue;
        WEIR_TRY(plot(matrix, matrix->cells[i].format, "accuracy", error));
        WEIR_TRY(plot(matrix, matrix->cells[i].format, "perplexity", error));
    }
    return WEIR_OK;
}
