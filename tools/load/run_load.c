/* tools/load/run_load.c - weir load: reads its options, asks the server for its model and the
 * length of words, sends the load, and prints what came back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/base/file.h"
#include "engine/cli/command.h"
#include "engine/cli/print.h"
#include "engine/cli/progress.h"
#include "engine/formats/json.h"
#include "tools/load/output.h"

enum { OPEN_STREAMS = 1024, PROBE_MS = 60000, MEMORY_MS = 5000 };

typedef struct load {
    const weir_arguments *arguments;
    weir_load_target target;
    weir_load_form form;
    weir_buffer model;
    weir_workload_options workload_options;
    weir_workload workload;
    weir_load_options options;
    weir_goodput goodput;
    weir_load_plot plot;
    weir_load_result result;
    weir_load_summary summary;
    weir_server_memory memory;
} load;

/* ---- options --------------------------------------------------------------------------------- */

static weir_status read_number(
    double *out, const weir_arguments *arguments, const char *name, weir_error *error
)
{
    const char *const text = weir_argument(arguments, name);
    char *end = NULL;
    if (text == NULL) return WEIR_OK;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0.0)
        return weir_error_set(
            error, WEIR_EINVAL, "--%s %.40s: must be a number, 0 or more", name, text
        );
    *out = value;
    return WEIR_OK;
}

/* One of two words; the first is the default. */
static weir_status read_word(
    bool *is_second, const weir_arguments *arguments, const char *name, const char *first,
    const char *second, weir_error *error
)
{
    const char *const text = weir_argument(arguments, name);
    *is_second = text != NULL && strcmp(text, second) == 0;
    if (text == NULL || *is_second || strcmp(text, first) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "--%s %.40s: must be %s or %s", name, text, first, second
    );
}

static weir_status read_length(
    weir_length *out, const weir_arguments *arguments, const char *name, const char *otherwise,
    weir_error *error
)
{
    const char *const text = weir_argument(arguments, name);
    return weir_length_parse(out, text != NULL ? text : otherwise, name, error);
}

static weir_status read_form(load *l, weir_error *error)
{
    bool is_completion = false;
    WEIR_TRY(read_word(&is_completion, l->arguments, "endpoint", "chat", "completions", error));
    l->form.is_chat = !is_completion;
    l->form.ignore_eos = !weir_argument_given(l->arguments, "stop-at-eos");
    l->form.has_temperature = true;
    WEIR_TRY(read_number(&l->form.temperature, l->arguments, "temperature", error));
    if (l->form.temperature > 2.0)
        return weir_error_set(error, WEIR_EINVAL, "--temperature must be from 0 to 2");
    l->form.seed = (uint64_t)weir_argument_int(l->arguments, "seed", 0);
    return WEIR_OK;
}

static weir_status read_workload(load *l, weir_error *error)
{
    const weir_arguments *const a = l->arguments;
    weir_workload_options *const o = &l->workload_options;
    o->seed = (uint64_t)weir_argument_int(a, "seed", 0);
    o->prefix = (int32_t)weir_argument_int(a, "prefix", 0);
    o->n_groups = (int32_t)weir_argument_int(a, "groups", 1);
    o->n_turns = (int32_t)weir_argument_int(a, "turns", 1);
    WEIR_TRY(read_length(&o->prompt, a, "prompt", "512", error));
    WEIR_TRY(read_length(&o->answer, a, "answer", "128", error));
    WEIR_TRY(read_number(&o->rate, a, "rate", error));
    WEIR_TRY(read_number(&o->seconds, a, "duration", error));
    WEIR_TRY(read_number(&o->think, a, "think", error));
    o->n_requests = weir_argument_int(a, "requests", o->seconds > 0.0 ? 0 : 100);
    WEIR_TRY(weir_workload_make(&l->workload, o, error));
    l->options.is_open = o->rate > 0.0;
    l->options.n_streams =
        (int32_t)weir_argument_int(a, "concurrency", l->options.is_open ? OPEN_STREAMS : 1);
    l->options.prefix = o->prefix;
    l->options.seconds = o->seconds;
    l->options.timeout_ms = 1000 * weir_argument_int(a, "timeout", 600);
    return WEIR_OK;
}

static weir_status read_options(load *l, weir_error *error)
{
    const weir_arguments *const a = l->arguments;
    const char *const key = weir_argument(a, "api-key"), *const shared = getenv("WEIR_API_KEY");
    const char *const goodput = weir_argument(a, "goodput");
    bool is_time = false;
    WEIR_TRY(weir_load_target_parse(
        &l->target, weir_argument(a, "url"), key != NULL ? key : shared, error
    ));
    WEIR_TRY(read_word(&is_time, a, "plot-by", "cdf", "time", error));
    l->plot = is_time ? WEIR_LOAD_PLOT_TIME : WEIR_LOAD_PLOT_CDF;
    if (goodput != NULL) WEIR_TRY(weir_goodput_parse(&l->goodput, goodput, error));
    WEIR_TRY(read_form(l, error));
    return read_workload(l, error);
}

/* A socket for each stream, and some files. */
static weir_status raise_limit(int32_t n_streams, weir_error *error)
{
    struct rlimit limit;
    const rlim_t needed = (rlim_t)n_streams + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return WEIR_OK;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    if (limit.rlim_cur >= needed && setrlimit(RLIMIT_NOFILE, &limit) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL,
        "%d requests at a time need %llu open files, this user may have %llu: lower --concurrency "
        "or raise `ulimit -n`",
        (int)n_streams, (unsigned long long)needed, (unsigned long long)limit.rlim_max
    );
}

/* ---- the load -------------------------------------------------------------------------------- */

static weir_status ask_server(load *l, weir_error *error)
{
    const char *const model = weir_argument(l->arguments, "model");
    WEIR_TRY(weir_load_target_find(&l->target, error));
    if (model != NULL) {
        l->form.model = model;
    } else {
        WEIR_TRY(weir_load_first_model(&l->model, &l->target, PROBE_MS, error));
        l->form.model = l->model.data;
    }
    return weir_load_form_probe(&l->form, &l->target, PROBE_MS, error);
}

static void show(void *user, int64_t n_done)
{
    (void)user;
    weir_progress_tick(n_done);
}

static weir_status send_load(load *l, weir_error *error)
{
    l->options.target = &l->target;
    l->options.form = &l->form;
    l->options.workload = &l->workload;
    l->options.stopped = &weir_interrupted;
    l->options.progress = show;
    WEIR_TRY(raise_limit(l->options.n_streams, error));
    WEIR_TRY(ask_server(l, error));
    weir_stop_on_interrupt();
    weir_progress_begin(
        "sending", "requests", l->workload_options.n_requests > 0 ? l->workload.n_turns : 0
    );
    WEIR_TRY(weir_load_run(&l->result, &l->options, error));
    weir_progress_end();
    if (!l->result.is_stopped) weir_server_memory_read(&l->memory, &l->target, MEMORY_MS);
    const weir_status status = weir_load_summarise(&l->summary, &l->result, &l->goodput);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "no memory for the figures");
}

/* ---- output ---------------------------------------------------------------------------------- */

static weir_status write_plot(const load *l, const weir_load_report *report, weir_error *error)
{
    const char *const path = weir_argument(l->arguments, "plot");
    weir_buffer svg = { 0 };
    if (path == NULL) return WEIR_OK;
    weir_status status = weir_load_draw(&svg, report, l->plot, error);
    if (status == WEIR_OK) status = weir_file_write_atomic(path, svg.data, svg.size, error);
    weir_buffer_free(&svg);
    return status;
}

/* The JSON with one object for each request. */
static weir_status write_json(const load *l, const weir_load_report *report, weir_error *error)
{
    const char *const path = weir_argument(l->arguments, "out");
    weir_buffer text = { 0 };
    if (path == NULL) return WEIR_OK;
    json_t *const root = weir_load_json(report, true);
    weir_status status =
        root == NULL ? WEIR_ENOMEM
                     : weir_json_write(&text, root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(root);
    if (status == WEIR_OK) status = weir_buffer_text(&text, "\n");
    if (status == WEIR_OK)
        status = weir_file_write_atomic(path, text.data, text.size, error);
    else
        status = weir_error_set(error, status, "no memory for %s", path);
    weir_buffer_free(&text);
    return status;
}

static int print_report(const load *l, const weir_load_report *report)
{
    weir_buffer text = { 0 };
    if (weir_argument_given(l->arguments, "json"))
        return weir_print_json(weir_load_json(report, false));
    const int code =
        weir_load_print(&text, report) == WEIR_OK ? weir_print(&text) : WEIR_EXIT_FAILED;
    weir_buffer_free(&text);
    return code;
}

/* A load without a single answer has failed. */
static int report_load(load *l)
{
    weir_error error = { 0 };
    const weir_load_report report = { .url = weir_argument(l->arguments, "url"),
                                      .form = &l->form,
                                      .workload = &l->workload_options,
                                      .options = &l->options,
                                      .goodput = &l->goodput,
                                      .summary = &l->summary,
                                      .memory = &l->memory,
                                      .result = &l->result };
    int code = print_report(l, &report);
    weir_status status = write_json(l, &report, &error);
    if (status == WEIR_OK && l->summary.n_good > 0) status = write_plot(l, &report, &error);
    if (status != WEIR_OK) return weir_fail(status, &error);
    if (code == WEIR_EXIT_OK && l->result.is_stopped) code = WEIR_EXIT_INTERRUPTED;
    if (code == WEIR_EXIT_OK && l->summary.n_good == 0) {
        (void)fputs("weir: no request was answered\n", stderr);
        code = WEIR_EXIT_FAILED;
    }
    return code;
}

int weir_run_load(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    load l = { .arguments = arguments };
    weir_status status = read_options(&l, &error);
    if (status == WEIR_OK) status = send_load(&l, &error);
    weir_progress_end();
    const int code = status == WEIR_OK ? report_load(&l) : weir_fail(status, &error);
    weir_load_result_free(&l.result);
    weir_workload_free(&l.workload);
    weir_buffer_free(&l.model);
    return code;
}
