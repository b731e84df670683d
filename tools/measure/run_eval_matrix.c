/* tools/measure/run_eval_matrix.c - weir eval matrix: policies by budgets by formats, cell by cell;
 * can be interrupted and resumed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/clock.h"
#include "engine/cli/open.h"
#include "tools/measure/evaluate.h"
#include "tools/measure/matrix.h"

enum { EVERY = 64 };

typedef struct run {
    const char *items, *text;
    int32_t limit, window;
    weir_config base;
} run;

/* Sets the cell's policy; a budget in percent depends on the prompt or the window. */
static void configure(
    weir_config *config, const run *r, const weir_matrix_cell *cell, int64_t budget
)
{
    *config = r->base;
    (void)snprintf(config->kv.format, sizeof config->kv.format, "%s", cell->format);
    (void)snprintf(config->kv.policy.name, sizeof config->kv.policy.name, "%s", cell->policy);
    (void
    )snprintf(config->kv.policy.options, sizeof config->kv.policy.options, "%s", cell->options);
    config->kv.policy.budget = strcmp(cell->policy, "full") == 0 ? 0 : budget;
    config->sessions.dir[0] = '\0';
}

static void configure_items(weir_config *config, const run *r, const weir_matrix_cell *cell)
{
    configure(config, r, cell, cell->budget > 0 ? cell->budget : 1 << 20);
}

static void configure_text(weir_config *config, const run *r, const weir_matrix_cell *cell)
{
    configure(
        config, r, cell, cell->budget > 0 ? cell->budget : (int64_t)r->window * cell->percent / 100
    );
    config->batch.max_sequences = 1;
    if (config->model.context == 0) config->model.context = r->window;
}

static weir_status open_engine(
    weir_engine **engine, const weir_config *config, bool with_service, weir_error *error
)
{
    return weir_engine_open_with(
        engine, &(weir_engine_options){ .config = config, .with_service = with_service }, error
    );
}

/* Wall time, including other load on the machine; bench --policies measures the cost of a policy
 * alone. */
static void put_speed(json_t *out, const char *name, double n_tokens, int64_t start)
{
    const double seconds = (double)(weir_clock_ns() - start) * 1e-9;
    (void)json_object_set_new(out, name, json_real(seconds > 0 ? n_tokens / seconds : 0));
}

static weir_status answer(
    json_t *out, const run *r, const weir_matrix_cell *cell, weir_error *error
)
{
    weir_engine *engine = NULL;
    weir_retrieval result = { 0 };
    weir_config config;
    configure_items(&config, r, cell);
    WEIR_TRY(open_engine(&engine, &config, true, error));
    const bool by_percent = cell->budget == 0 && strcmp(cell->policy, "full") != 0;
    const int64_t start = weir_clock_ns();
    const weir_status status = weir_eval_retrieval_within(
        &result, engine, r->items, r->limit, by_percent ? cell->percent : 0, error
    );
    if (status == WEIR_OK) {
        (void)json_object_set_new(
            out, "accuracy", json_real(result.n_items > 0 ? result.score / result.n_items : 0)
        );
        (void)json_object_set_new(out, "low", json_real(result.likely.low));
        (void)json_object_set_new(out, "high", json_real(result.likely.high));
        (void)json_object_set_new(out, "kept", json_integer(result.n_kept));
        (void)json_object_set_new(out, "evicted", json_integer(result.n_evicted));
        (void)json_object_set_new(out, "bytes", json_integer(result.kv_bytes));
        put_speed(
            out, "tokens_per_second", (double)((result.n_kept + result.n_evicted) * result.n_items),
            start
        );
    }
    weir_retrieval_free(&result);
    weir_engine_close(engine);
    return status;
}

/* Methods that act only at the end of prompts are also run every EVERY tokens of a text. */
static weir_status score(json_t *out, const run *r, const weir_matrix_cell *cell, weir_error *error)
{
    weir_engine *engine = NULL;
    weir_perplexity result;
    weir_config config;
    configure_text(&config, r, cell);
    WEIR_TRY(open_engine(&engine, &config, false, error));
    const int32_t every = strstr(cell->options, "every=") == NULL ? EVERY : 0;
    const int64_t start = weir_clock_ns();
    const weir_status status =
        weir_eval_perplexity(&result, engine, r->text, r->window, every, error);
    if (status == WEIR_OK) {
        (void)json_object_set_new(out, "perplexity", json_real(result.perplexity));
        put_speed(out, "text_tokens_per_second", (double)result.n_scored, start);
    }
    weir_engine_close(engine);
    return status;
}

/* An impossible cell (a budget below what the method always keeps) is a result, too. */
static bool is_result(weir_status status)
{
    return status == WEIR_ECONFIG || status == WEIR_EINVAL;
}

static weir_status run_cell(
    weir_matrix_cell *cell, const run *r, const char *source, weir_error *error
)
{
    char budget[24];
    weir_error why = { 0 };
    weir_status status = WEIR_OK;
    const int64_t start = weir_clock_ns();
    weir_matrix_budget(budget, cell);
    cell->result = json_pack(
        "{s:s, s:s, s:s, s:s, s:s}", "policy", cell->policy, "options", cell->options, "format",
        cell->format, "budget", budget, "source", source
    );
    if (r->items != NULL) status = answer(cell->result, r, cell, &why);
    if (status == WEIR_OK && r->text != NULL) status = score(cell->result, r, cell, &why);
    (void)json_object_set_new(
        cell->result, "seconds", json_real((double)(weir_clock_ns() - start) * 1e-9)
    );
    if (is_result(status)) {
        (void)json_object_set_new(cell->result, "problem", json_string(why.text));
        return WEIR_OK;
    }
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "%s", why.text);
}

static void print_cell(const weir_matrix_cell *cell, int32_t done, int32_t n)
{
    char budget[24];
    weir_matrix_budget(budget, cell);
    (void)printf(
        "%4d/%-4d %-12s %-14s %-24s %6s", (int)done, (int)n, cell->format, cell->policy,
        cell->options, budget
    );
    for (int i = 0; i < 2; i++) {
        const json_t *const value =
            json_object_get(cell->result, i == 0 ? "accuracy" : "perplexity");
        if (json_is_number(value))
            (void
            )printf(i == 0 ? "  accuracy %.3f" : "  perplexity %.3f", json_number_value(value));
    }
    const char *const problem = json_string_value(json_object_get(cell->result, "problem"));
    (void)printf("%s%s\n", problem != NULL ? "  " : "", problem != NULL ? problem : "");
    (void)fflush(stdout);
}

static int stopped(int32_t done, int32_t n, weir_error *error)
{
    return weir_end(
        weir_error_set(
            error, WEIR_ECANCELED,
            "interrupted after %d of %d cells; the same command continues from here", (int)done,
            (int)n
        ),
        error
    );
}

static int run_cells(weir_matrix *matrix, const run *r, const char *source, weir_error *error)
{
    weir_stop_on_interrupt();
    for (int32_t i = 0; i < matrix->n; i++) {
        if (matrix->cells[i].result == NULL) {
            weir_status status = run_cell(&matrix->cells[i], r, source, error);
            if (status == WEIR_OK) status = weir_matrix_save(matrix, error);
            if (status == WEIR_ECANCELED) return stopped(i, matrix->n, error);
            if (status != WEIR_OK) return weir_end(status, error);
        }
        print_cell(&matrix->cells[i], i + 1, matrix->n);
        if (weir_interrupted && i + 1 < matrix->n) return stopped(i + 1, matrix->n, error);
    }
    const weir_status status = weir_matrix_finish(matrix, error);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, error);
}

/* Finds what prevents any cell of a policy (statistics that are missing or of another model, a
 * model that does not fit) before the first cell is measured. */
static weir_status check_cells(const weir_matrix *matrix, const run *r, weir_error *error)
{
    const weir_matrix_cell *before = NULL;
    for (int32_t i = 0; i < matrix->n; i++) {
        const weir_matrix_cell *const cell = &matrix->cells[i];
        weir_config config;
        weir_plan plan;
        weir_error why = { 0 };
        if (cell->result != NULL) continue;
        const bool is_next = before != NULL && strcmp(cell->policy, before->policy) == 0 &&
                             strcmp(cell->options, before->options) == 0;
        before = cell;
        if (is_next) continue;
        if (r->items != NULL)
            configure_items(&config, r, cell);
        else
            configure_text(&config, r, cell);
        const weir_engine_options options = { .config = &config, .with_service = r->items != NULL };
        const weir_status status = weir_engine_plan(&plan, &options, &why);
        if (status != WEIR_OK && !is_result(status))
            return weir_error_set(
                error, status, "%s in %s: %s", cell->policy, cell->format, why.text
            );
    }
    return WEIR_OK;
}

/* What results depend on besides their cell: what is measured, and every setting that affects more
 * than memory. */
static weir_status describe_source(char *out, size_t size, const run *r, weir_error *error)
{
    weir_config config = r->base, none;
    weir_buffer text = { 0 };
    weir_config_default(&none);
    config.memory = none.memory;
    config.server = none.server;
    config.sessions = none.sessions;
    config.log = none.log;
    (void)snprintf(config.kv.format, sizeof config.kv.format, "%s", none.kv.format);
    weir_status status = weir_config_print(&config, &text);
    if (status == WEIR_OK)
        status = weir_buffer_format(
            &text, "items %s text %s", r->items != NULL ? r->items : "",
            r->text != NULL ? r->text : ""
        );
    if (status == WEIR_OK)
        (void)snprintf(
            out, size, "%.300s items %.300s first %d, text %.300s window %d, settings %016" PRIx64,
            r->base.model.path, r->items != NULL ? r->items : "-", (int)r->limit,
            r->text != NULL ? r->text : "-", (int)r->window,
            (uint64_t)XXH3_64bits(text.data, text.size)
        );
    weir_buffer_free(&text);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_set(error, status, "no memory for the settings");
}

int weir_run_eval_matrix(const weir_arguments *arguments)
{
    weir_matrix matrix = { 0 };
    weir_error error = { 0 };
    char source[1024];
    const char *const policies = weir_argument(arguments, "policies"),
                      *const budgets = weir_argument(arguments, "budgets"),
                      *const formats = weir_argument(arguments, "formats");
    run r = { .items = weir_argument(arguments, "items"),
              .text = weir_argument(arguments, "text"),
              .limit = (int32_t)weir_argument_int(arguments, "limit", 0),
              .window = (int32_t)weir_argument_int(arguments, "window", 512),
              .base = arguments->config };
    if (r.items == NULL && r.text == NULL)
        return weir_fail(
            weir_error_set(&error, WEIR_EINVAL, "give --items, --text or both"), &error
        );
    const bool has_calibration = r.base.kv.policy.calibration[0] != '\0';
    weir_buffer usual = { 0 };
    weir_status status = weir_matrix_policies(&usual, has_calibration, &error);
    if (status == WEIR_OK)
        status = weir_matrix_plan(
            &matrix, policies != NULL ? policies : usual.data,
            budgets != NULL ? budgets : "50%,25%,12%", formats != NULL ? formats : r.base.kv.format,
            &error
        );
    weir_buffer_free(&usual);
    if (status == WEIR_OK) status = describe_source(source, sizeof source, &r, &error);
    if (status == WEIR_OK)
        status = weir_matrix_resume(&matrix, weir_argument(arguments, "out"), source, &error);
    if (status == WEIR_OK) status = check_cells(&matrix, &r, &error);
    const int code =
        status == WEIR_OK ? run_cells(&matrix, &r, source, &error) : weir_fail(status, &error);
    weir_matrix_free(&matrix);
    return code;
}
