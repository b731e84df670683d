/* tools/measure/run_kv_quality.c - weir eval kv-quality: a row per format, as text or JSON. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/kv/pool/store.h"
#include "engine/model/model.h"
#include "offload/ledger.h"
#include "tools/measure/evaluate.h"

enum { ROWS = 64, FILES = 16, TITLE = 15 };

typedef struct score { /* of one file of questions */
    int32_t n_right, n_items;
} score;

typedef struct format_row {
    weir_kv_pair pair;
    weir_kv_quality quality;
    score scores[FILES];
} format_row;

typedef struct item_files {
    char paths[FILES][PATH_MAX];
    int32_t n, most; /* most: questions of each file, 0: all */
} item_files;

/* All results. */
typedef struct table {
    format_row rows[ROWS];
    int32_t n;
    item_files files;
    double reference; /* perplexity with f32 */
    int64_t n_scored;
} table;

static weir_status parse_files(item_files *files, const char *list, weir_error *error)
{
    for (const char *at = list; at != NULL && files->n < FILES;) {
        const size_t length = strcspn(at, ",");
        if (length == 0 || length >= PATH_MAX)
            return weir_error_set(
                error, WEIR_EINVAL, "--items: must be names of files, separated by commas"
            );
        memcpy(files->paths[files->n++], at, length);
        if (at[length] == '\0') return WEIR_OK;
        at += length + 1;
    }
    return list == NULL ? WEIR_OK
                        : weir_error_set(error, WEIR_EINVAL, "--items: at most %d files", FILES);
}

static const char *file_name(const char *path)
{
    const char *const last = strrchr(path, '/');
    return last != NULL ? last + 1 : path;
}

/* "q8_0,q8_0/turbo4". */
static weir_status parse_list(format_row *rows, int32_t *n, const char *list, weir_error *error)
{
    for (const char *at = list; *n < ROWS;) {
        char name[WEIR_KV_PAIR_TEXT];
        const size_t length = strcspn(at, ",");
        (void)snprintf(
            name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at
        );
        if (!weir_kv_pair_parse(&rows[(*n)++].pair, name))
            return weir_error_set(
                error, WEIR_EINVAL,
                "--formats: \"%s\" is not a KV format; kv.format in --help-config lists them", name
            );
        if (at[length] == '\0') return WEIR_OK;
        at += length + 1;
    }
    return weir_error_set(error, WEIR_EINVAL, "--formats: at most %d", ROWS);
}

/* Every format for both, and coarser values than keys, which are more sensitive to rounding; only
 * those that the model allows. */
static void list_all(format_row *rows, int32_t *n, const weir_engine *engine)
{
    const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine));
    const bool shares = weir_model_shares_rows(weir_engine_model(engine));
    const weir_kv_sinks none = { 0 };
    static const weir_kv_pair mixed[] = { { WEIR_KV_Q8_0, WEIR_KV_Q4_0 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO3 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO2 },
                                          { WEIR_KV_INT8, WEIR_KV_KIVI4 } };
    enum { MIXED = sizeof mixed / sizeof mixed[0] };
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT + MIXED; f++) {
        const weir_kv_format format = (weir_kv_format)f;
        const weir_kv_pair pair = f < WEIR_KV_FORMAT_COUNT ? (weir_kv_pair){ format, format }
                                                           : mixed[f - WEIR_KV_FORMAT_COUNT];
        bool fits = !shares || !weir_kv_any_unsealed(pair, none);
        for (int64_t i = 0; i < spec->n_layers; i++)
            fits = fits && weir_kv_pair_check(pair, &spec->geometry[i], "", NULL) == WEIR_OK;
        if (fits) rows[(*n)++].pair = pair;
    }
}

static void print_header(const item_files *files)
{
    (void)printf(
        "%-16s %11s %11s %9s %10s %10s %10s %10s", "format", "bytes/token", "perplexity", "change",
        "KL mean", "KL 99 %", "KL most", "same token"
    );
    for (int32_t i = 0; i < files->n; i++) {
        const char *const name = file_name(files->paths[i]);
        (void)printf(
            " %*.*s", TITLE, (int)(strcspn(name, ".") < TITLE ? strcspn(name, ".") : TITLE), name
        );
    }
    (void)printf("\n");
}

static void print_row(const table *t, const format_row *row)
{
    char name[WEIR_KV_PAIR_TEXT], right[TITLE + 10];
    const weir_kv_quality *const q = &row->quality;
    weir_kv_pair_print(name, row->pair);
    (void)printf(
        "%-16s %11lld %11.4f %+7.3f %% %10.2e %10.2e %10.2e %8.2f %%", name, (long long)q->bytes,
        q->perplexity, 100.0 * (q->perplexity / t->reference - 1.0), q->kl_mean, q->kl_99,
        q->kl_most, 100.0 * q->same_best
    );
    for (int32_t i = 0; i < t->files.n; i++) {
        (void)snprintf(
            right, sizeof right, "%d/%d", (int)row->scores[i].n_right, (int)row->scores[i].n_items
        );
        (void)printf(" %*s", TITLE, right);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

static json_t *row_json(const table *t, const format_row *row)
{
    char name[WEIR_KV_PAIR_TEXT];
    const weir_kv_quality *const q = &row->quality;
    weir_kv_pair_print(name, row->pair);
    json_t *const out = json_pack(
        "{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "format", name, "k_format",
        weir_kv_format_name(row->pair.k), "v_format", weir_kv_format_name(row->pair.v),
        "bytes_per_token", (json_int_t)q->bytes, "perplexity", q->perplexity, "kl_mean", q->kl_mean,
        "kl_99", q->kl_99, "kl_max", q->kl_most, "same_token", q->same_best
    );
    if (t->files.n == 0) return out;
    json_t *const files = json_array();
    for (int32_t i = 0; i < t->files.n; i++) {
        const score *const one = &row->scores[i];
        (void)json_array_append_new(
            files, json_pack(
                       "{s:s, s:i, s:i, s:f}", "file", file_name(t->files.paths[i]), "right",
                       (int)one->n_right, "items", (int)one->n_items, "accuracy",
                       (double)one->n_right / (double)one->n_items
                   )
        );
    }
    (void)json_object_set_new(out, "retrieval", files);
    return out;
}

static weir_status measure_texts(
    table *t, const weir_engine *engine, const weir_kv_quality_task *task, weir_kv_choice choice,
    bool prints, weir_error *error
)
{
    const weir_kv_pair f32 = { WEIR_KV_F32, WEIR_KV_F32 };
    weir_kv_quality reference;
    WEIR_TRY(weir_eval_kv_quality(
        &reference, &t->n_scored, engine, task, &(weir_kv_choice){ .rest = f32, .wide = f32 }, error
    ));
    t->reference = reference.perplexity;
    if (prints) print_header(&t->files);
    for (int32_t i = 0; i < t->n; i++) {
        choice.rest = t->rows[i].pair;
        WEIR_TRY(
            weir_eval_kv_quality(&t->rows[i].quality, &t->n_scored, engine, task, &choice, error)
        );
        if (prints) print_row(t, &t->rows[i]);
    }
    return WEIR_OK;
}

static weir_status run_texts(
    table *t, const weir_engine *engine, const weir_arguments *arguments, int32_t window,
    bool prints, weir_error *error
)
{
    weir_ids text = { 0 };
    size_t n_bytes;
    const char *const list = weir_argument(arguments, "formats");
    weir_kv_quality_task task = { &text, window,
                                  (int32_t)weir_argument_int(arguments, "limit", 0) };
    weir_kv_choice choice = { .n_wide = arguments->config.kv.wide_layers,
                              .n_wide_tokens = arguments->config.kv.wide_sinks };
    if (!weir_kv_pair_parse(&choice.wide, arguments->config.kv.wide_format))
        return weir_error_set(error, WEIR_EINVAL, "kv.wide_format: not a KV format");
    if (list != NULL)
        WEIR_TRY(parse_list(t->rows, &t->n, list, error));
    else
        list_all(t->rows, &t->n, engine);
    weir_status status =
        weir_eval_tokens(&text, &n_bytes, engine, weir_argument(arguments, "text"), error);
    if (status == WEIR_OK) status = measure_texts(t, engine, &task, choice, prints, error);
    weir_ids_free(&text);
    return status;
}

/* Runs the questions in an engine with this format, as served. Returns the exit code. */
static int count_answers(format_row *row, const item_files *files, const weir_config *base)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = *base;
    char name[WEIR_KV_PAIR_TEXT];
    weir_status status = WEIR_OK;
    weir_kv_pair_print(name, row->pair);
    (void)snprintf(config.kv.format, sizeof config.kv.format, "%s", name);
    config.sessions.dir[0] = '\0';
    const int code = weir_open(&engine, &config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    for (int32_t i = 0; status == WEIR_OK && i < files->n; i++) {
        weir_retrieval result = { 0 };
        status = weir_eval_retrieval(&result, engine, files->paths[i], files->most, &error);
        if (status != WEIR_OK) break;
        row->scores[i] = (score){ result.n_right, result.n_items };
        weir_retrieval_free(&result);
    }
    weir_engine_close(engine);
    return weir_end(status, &error);
}

/* Questions come after the texts, so that one engine is open at a time. */
static int run_items(table *t, const weir_config *config, bool prints)
{
    if (t->files.n == 0) return WEIR_EXIT_OK;
    if (prints) print_header(&t->files);
    for (int32_t i = 0; i < t->n; i++) {
        const int code = count_answers(&t->rows[i], &t->files, config);
        if (code != WEIR_EXIT_OK) return code;
        if (prints) print_row(t, &t->rows[i]);
    }
    return WEIR_EXIT_OK;
}

static int print_end(const table *t, int32_t window, bool as_json)
{
    if (!as_json) {
        (void)printf(
            "%lld tokens in windows of %d, against f32 (perplexity %.4f); KL in nats%s\n",
            (long long)t->n_scored, (int)window, t->reference,
            t->files.n > 0 ? "; correct answers of those asked" : ""
        );
        return WEIR_EXIT_OK;
    }
    json_t *const out = json_pack(
        "{s:i, s:[], s:f, s:I}", "window", (int)window, "rows", "perplexity_f32", t->reference,
        "scored", (json_int_t)t->n_scored
    );
    for (int32_t i = 0; i < t->n; i++)
        (void)json_array_append_new(json_object_get(out, "rows"), row_json(t, &t->rows[i]));
    const bool written =
        json_dumpf(out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && puts("") >= 0;
    json_decref(out);
    return written ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

static int run_table(table *t, const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    const bool as_json = weir_argument_given(arguments, "json");
    const int32_t window = (int32_t)weir_argument_int(arguments, "window", 512);
    t->files.most = (int32_t)weir_argument_int(arguments, "item-limit", 0);
    weir_status status = parse_files(&t->files, weir_argument(arguments, "items"), &error);
    if (status != WEIR_OK) return weir_fail(status, &error);
    config.batch.max_sequences = 1;
    config.kv.wide_layers = config.kv.wide_sinks = 0;
    config.kv.full_windows = true; /* formats are compared on all rows */
    (void)snprintf(config.kv.format, sizeof config.kv.format, "f32");
    if (config.model.context == 0) config.model.context = window;
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    weir_stop_on_interrupt();
    status = run_texts(t, engine, arguments, window, !as_json && t->files.n == 0, &error);
    weir_engine_close(engine);
    if (status != WEIR_OK) return weir_end(status, &error);
    code = run_items(t, &arguments->config, !as_json);
    return code == WEIR_EXIT_OK ? print_end(t, window, as_json) : code;
}

int weir_run_eval_kv_quality(const weir_arguments *arguments)
{
    weir_error error = { 0 };
    table *const t = calloc(1, sizeof *t);
    if (t == NULL)
        return weir_fail(weir_error_set(&error, WEIR_ENOMEM, "no memory for the table"), &error);
    const int code = run_table(t, arguments);
    free(t);
    return code;
}
