/* tools/measure/run_report.c - weir plan --report: parses shapes and lists; tools/report computes
 * and prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/open.h"
#include "kernels/abi/dtype.h"
#include "tools/report/print.h"
#include "tools/report/shapes.h"

typedef struct request {
    weir_report report;
    weir_report_assumptions assumptions;
    weir_report_shape shapes[WEIR_REPORT_LIST], known[WEIR_REPORT_LIST];
} request;

/* ---- lists ----------------------------------------------------------------------------------- */

/* Calls `add` with each name of a list; ECONFIG if one is empty or too long. */
static weir_status each_name(
    request *r, const char *option, const char *list,
    weir_status (*add)(request *r, const char *name, weir_error *error), weir_error *error
)
{
    for (;; list++) {
        char name[64];
        const size_t length = strcspn(list, ",");
        if (length == 0 || length >= sizeof name)
            return weir_error_set(
                error, WEIR_ECONFIG,
                "--%s: must be names of at most 63 letters, separated by commas", option
            );
        memcpy(name, list, length);
        name[length] = '\0';
        const weir_status status = add(r, name, error);
        if (status != WEIR_OK) return weir_error_prefix(error, status, "--%s", option);
        list += length;
        if (*list == '\0') return WEIR_OK;
    }
}

static weir_status add_shape(request *r, const char *name, weir_error *error)
{
    if (r->report.n_shapes == WEIR_REPORT_LIST)
        return weir_error_set(error, WEIR_ECONFIG, "at most %d", (int)WEIR_REPORT_LIST);
    WEIR_TRY(weir_report_shape_find(&r->shapes[r->report.n_shapes], name, error));
    r->report.n_shapes++;
    return WEIR_OK;
}

static weir_status add_format(request *r, const char *name, weir_error *error)
{
    weir_report *const report = &r->report;
    if (report->n_formats == WEIR_REPORT_LIST)
        return weir_error_set(error, WEIR_ECONFIG, "at most %d", (int)WEIR_REPORT_LIST);
    const weir_kv_format found = weir_kv_format_named(name);
    if (found != WEIR_KV_FORMAT_COUNT) {
        report->formats[report->n_formats++] = found;
        return WEIR_OK;
    }
    char names[200] = "";
    size_t at = 0;
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) {
        const int n = snprintf(
            names + at, sizeof names - at, "%s%s", f > 0 ? ", " : "",
            weir_kv_format_name((weir_kv_format)f)
        );
        if (n > 0 && (size_t)n < sizeof names - at) at += (size_t)n;
    }
    return weir_error_set(
        error, WEIR_ECONFIG, "no KV format is called \"%s\"; there are %s", name, names
    );
}

static size_t positive_numbers(
    const weir_arguments *arguments, const char *option, int64_t *out, weir_status *status,
    weir_error *error
)
{
    int64_t numbers[WEIR_OPTION_NUMBERS] = { 0 };
    const size_t n = weir_argument_numbers(arguments, option, numbers);
    for (size_t i = 0; i < n; i++) {
        if (numbers[i] < 1)
            *status = weir_error_set(
                error, WEIR_ECONFIG, "--%s: a report needs numbers of at least 1", option
            );
        out[i] = numbers[i];
    }
    return n;
}

static weir_status read_lists(request *r, const weir_arguments *arguments, weir_error *error)
{
    weir_report *report = &r->report;
    int64_t bandwidths[WEIR_OPTION_NUMBERS] = { 0 };
    weir_status status = WEIR_OK;
    const char *const formats = weir_argument(arguments, "format");
    if (formats != NULL) WEIR_TRY(each_name(r, "format", formats, add_format, error));
    report->n_contexts = positive_numbers(arguments, "context", report->contexts, &status, error);
    report->n_batches = positive_numbers(arguments, "batch", report->batches, &status, error);
    report->n_bandwidths = positive_numbers(arguments, "bandwidth", bandwidths, &status, error);
    for (size_t i = 0; i < report->n_bandwidths; i++)
        report->bandwidths[i] = (double)bandwidths[i] * 1e9;
    return status;
}

/* ---- assumptions and shapes ------------------------------------------------------------------ */

static weir_status read_assumptions(request *r, const weir_arguments *arguments, weir_error *error)
{
    const char *const name = weir_argument(arguments, "assumptions"), *const weights =
                                                                          weir_argument(
                                                                              arguments, "weights"
                                                                          );
    const bool seed = name != NULL && strcmp(name, "seed") == 0;
    if (name != NULL && !seed && strcmp(name, "engine") != 0)
        return weir_error_set(
            error, WEIR_ECONFIG, "--assumptions %.60s: must be engine or seed", name
        );
    r->assumptions = seed ? weir_report_seed : weir_report_engine;
    if (!seed) r->assumptions.chunk = arguments->config.batch.chunk;
    r->report.assumptions = &r->assumptions;
    if (weights == NULL) return WEIR_OK;
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++) {
        const weir_dtype_info info = weir_dtype_of((weir_dtype)i);
        if (strcmp(info.name, weights) != 0) continue;
        r->assumptions.weight_elements = info.block_elements;
        r->assumptions.weight_block = info.block_bytes;
        r->assumptions.weight_format = info.name;
        return WEIR_OK;
    }
    return weir_error_set(
        error, WEIR_ECONFIG,
        "--weights %.60s: no such type; there are bf16, f32, q8_0, q6_k, q5_k, "
        "q4_k, q4_0 and others",
        weights
    );
}

static weir_status add_model(request *r, const weir_config *config, weir_error *error)
{
    weir_plan plan;
    const weir_engine_facts *const facts = &plan.facts;
    int64_t activation_row_bytes;
    weir_report_shape *const shape = &r->shapes[r->report.n_shapes];
    /* Plans a server, as `weir plan` does. */
    const weir_engine_options options = { .config = config,
                                          .with_service = true,
                                          .with_server = true };
    WEIR_TRY(weir_engine_describe(&plan, &activation_row_bytes, &options, error));
    *shape = (weir_report_shape
    ){ .parameters = facts->n_parameters,
       .layer_embedding = facts->n_layer_embedding,
       .context = facts->trained_context,
       .n_layers = facts->n_layers,
       /* A window is memory of a fixed size. */
       .n_kv_layers = facts->n_kv_layers - facts->n_window_layers,
       .n_heads = facts->n_heads,
       .n_kv_heads = facts->n_kv_heads,
       .key_dim = facts->key_dim,
       .value_dim = facts->value_dim,
       .n_local_layers = facts->n_local_layers,
       .n_local_kv_heads = facts->n_local_kv_heads,
       .local_key_dim = facts->local_key_dim,
       .local_value_dim = facts->local_value_dim,
       .d_model = facts->d_model,
       .d_ffn = facts->d_ffn,
       .n_vocab = facts->n_vocab,
       .recurrent_bytes = facts->recurrent_bytes + facts->kv_window_bytes,
       .activation_row_bytes = activation_row_bytes,
       .weight_bytes = facts->weight_bytes,
       .activation_bytes = (int64_t)(plan.activations + plan.near_activations),
       .kv_per_token = facts->kv_bytes_per_token,
       .kv_per_sink = facts->kv_bytes_per_sink,
       .sink_tokens = facts->sink_tokens,
       .tied = facts->is_tied };
    if (facts->values_alias_keys) {
        shape->key_dim = facts->head_key_dim;
        shape->value_dim = facts->head_value_dim;
        shape->latent_dim = facts->value_dim;
        shape->rope_dim = facts->key_dim - facts->value_dim;
    }
    (void)snprintf(shape->kv_format, sizeof shape->kv_format, "%s", facts->kv_format);
    (void)snprintf(shape->name, sizeof shape->name, "%.63s", facts->model);
    (void)snprintf(shape->title, sizeof shape->title, "%.63s (%.28s)", facts->model, facts->arch);
    r->report.n_shapes++;
    return WEIR_OK;
}

static weir_status read_shapes(request *r, const weir_arguments *arguments, weir_error *error)
{
    const char *const names = weir_argument(arguments, "shape");
    r->report.shapes = r->shapes;
    r->report.known = r->known;
    for (const weir_report_file *file = weir_report_files;
         file->name != NULL && r->report.n_known < WEIR_REPORT_LIST; file++)
        WEIR_TRY(
            weir_report_shape_read(&r->known[r->report.n_known++], file->name, file->text, error)
        );
    if (names != NULL && strcmp(names, "all") == 0) {
        memcpy(r->shapes, r->known, sizeof r->shapes);
        r->report.n_shapes = r->report.n_known;
    } else if (names != NULL) {
        WEIR_TRY(each_name(r, "shape", names, add_shape, error));
    } else if (r->assumptions.narrow_ffn) {
        WEIR_TRY(add_shape(r, "llama-2-7b", error));
    } else {
        WEIR_TRY(add_model(r, &arguments->config, error));
    }
    for (size_t i = 0; i < r->report.n_shapes; i++)
        if (weir_argument_given(arguments, "weights")) r->shapes[i].weight_bytes = 0;
    return WEIR_OK;
}

/* ---- out ------------------------------------------------------------------------------------- */

static weir_status write_plot(const weir_report *report, const char *path, weir_error *error)
{
    weir_buffer plot = { 0 };
    weir_status status = weir_report_svg(report, &plot, error);
    if (status == WEIR_ENOMEM) status = weir_error_set(error, status, "no memory for the plot");
    if (status == WEIR_OK) status = weir_file_write_atomic(path, plot.data, plot.size, error);
    weir_buffer_free(&plot);
    return status;
}

static int report_on(request *r, const weir_arguments *arguments)
{
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    const char *const plot = weir_argument(arguments, "svg");
    weir_status status = read_assumptions(r, arguments, &error);
    if (status == WEIR_OK) status = read_lists(r, arguments, &error);
    if (status == WEIR_OK) status = read_shapes(r, arguments, &error);
    if (status == WEIR_OK) status = weir_report_complete(&r->report, &error);
    if (status == WEIR_OK && plot != NULL) status = write_plot(&r->report, plot, &error);
    if (status != WEIR_OK) return weir_fail(status, &error);
    status = weir_argument_given(arguments, "json") ? weir_report_json(&r->report, &text)
                                                    : weir_report_text(&r->report, &text);
    const int code =
        status == WEIR_OK
            ? weir_print(&text)
            : weir_fail(weir_error_set(&error, status, "no memory for the report"), &error);
    weir_buffer_free(&text);
    return code;
}

int weir_run_report(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    request *const r = calloc(1, sizeof *r);
    if (r == NULL)
        return weir_fail(weir_error_set(&error, WEIR_ENOMEM, "no memory for a report"), &error);
    const int code = report_on(r, arguments);
    free(r);
    return code;
}
