/* engine/cli/run_kv_quality.c - weir eval kv-quality: a row per format, as text or JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cli/evaluate.h"
#include "engine/cli/open.h"
#include "engine/model/model.h"
#include "offload/ledger.h"

enum { ROWS = 64 };

typedef struct format_row {
    weir_kv_pair    pair;
    weir_kv_quality quality;
} format_row;

/* "q8_0,q8_0/turbo4". */
static weir_status parse_list(format_row *rows, int32_t *n, const char *list, weir_error *error)
{
    for (const char *at = list; *n < ROWS;) {
        char         name[WEIR_KV_PAIR_TEXT];
        const size_t length = strcspn(at, ",");
        (void)snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        if (!weir_kv_pair_parse(&rows[(*n)++].pair, name))
            return weir_error_set(error, WEIR_EINVAL, "--formats: \"%s\" is no KV format; kv.format in --help-config lists them", name);
        if (at[length] == '\0') return WEIR_OK;
        at += length + 1;
    }
    return weir_error_set(error, WEIR_EINVAL, "--formats: at most %d", ROWS);
}

/* Every format for both, and coarse values beside finer keys, which feel rounding more; those that the heads allow. */
static void list_all(format_row *rows, int32_t *n, const weir_shape *shape)
{
    static const weir_kv_pair mixed[] = { { WEIR_KV_Q8_0, WEIR_KV_Q4_0 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO4 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO3 },
                                          { WEIR_KV_Q8_0, WEIR_KV_TURBO2 },
                                          { WEIR_KV_INT8, WEIR_KV_KIVI4 } };
    enum { MIXED = sizeof mixed / sizeof mixed[0] };
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT + MIXED; f++) {
        const weir_kv_format format = (weir_kv_format)f;
        const weir_kv_pair   pair = f < WEIR_KV_FORMAT_COUNT ? (weir_kv_pair){ format, format } : mixed[f - WEIR_KV_FORMAT_COUNT];
        if (weir_kv_pair_check(pair, shape->head_dim, shape->head_dim, "", NULL) == WEIR_OK) rows[(*n)++].pair = pair;
    }
}

static void print_header(void)
{
    (void)printf("%-16s %11s %11s %9s %10s %10s %10s %10s\n", "format", "bytes/token", "perplexity", "change", "KL mean", "KL 99 %",
                 "KL most", "same token");
}

static void print_row(const format_row *row, double reference)
{
    char                         name[WEIR_KV_PAIR_TEXT];
    const weir_kv_quality *const q = &row->quality;
    weir_kv_pair_print(name, row->pair);
    (void)printf("%-16s %11lld %11.4f %+7.3f %% %10.2e %10.2e %10.2e %8.2f %%\n", name, (long long)q->bytes_per_token, q->perplexity,
                 100.0 * (q->perplexity / reference - 1.0), q->kl_mean, q->kl_99, q->kl_most, 100.0 * q->same_best);
    (void)fflush(stdout);
}

static json_t *row_json(const format_row *row)
{
    char                         name[WEIR_KV_PAIR_TEXT];
    const weir_kv_quality *const q = &row->quality;
    weir_kv_pair_print(name, row->pair);
    return json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "format", name, "k_format", weir_kv_format_name(row->pair.k),
                     "v_format", weir_kv_format_name(row->pair.v), "bytes_per_token", (json_int_t)q->bytes_per_token, "perplexity",
                     q->perplexity, "kl_mean", q->kl_mean, "kl_99", q->kl_99, "kl_max", q->kl_most, "same_token", q->same_best);
}

static weir_status measure(json_t *out, const weir_engine *engine, const weir_kv_quality_task *task, weir_kv_choice choice,
                           format_row *rows, int32_t n, bool as_json, weir_error *error)
{
    const weir_kv_pair f32 = { WEIR_KV_F32, WEIR_KV_F32 };
    format_row         reference = { .pair = f32 };
    int64_t            n_scored = 0;
    WEIR_TRY(weir_eval_kv_quality(&reference.quality, &n_scored, engine, task, &(weir_kv_choice){ .rest = f32 }, error));
    if (!as_json) print_header();
    for (int32_t i = 0; i < n; i++) {
        choice.rest = rows[i].pair;
        WEIR_TRY(weir_eval_kv_quality(&rows[i].quality, &n_scored, engine, task, &choice, error));
        (void)json_array_append_new(json_object_get(out, "rows"), row_json(&rows[i]));
        if (!as_json) print_row(&rows[i], reference.quality.perplexity);
    }
    (void)json_object_set_new(out, "perplexity_f32", json_real(reference.quality.perplexity));
    (void)json_object_set_new(out, "scored", json_integer(n_scored));
    if (!as_json)
        (void)printf("%lld tokens in windows of %d, against f32 (perplexity %.4f); KL in nats\n", (long long)n_scored, (int)task->window,
                     reference.quality.perplexity);
    return WEIR_OK;
}

static weir_status run(json_t *out, const weir_engine *engine, const weir_arguments *arguments, int32_t window, weir_error *error)
{
    format_row           rows[ROWS] = { 0 };
    int32_t              n = 0;
    weir_ids             text = { 0 };
    size_t               n_bytes;
    const char *const    list = weir_argument(arguments, "formats");
    weir_kv_quality_task task = { &text, window, (int32_t)weir_argument_int(arguments, "limit", 0) };
    weir_kv_choice       choice = { .n_wide = arguments->config.kv.wide_layers };
    if (!weir_kv_pair_parse(&choice.wide, arguments->config.kv.wide_format))
        return weir_error_set(error, WEIR_EINVAL, "kv.wide_format: no KV format");
    if (list != NULL)
        WEIR_TRY(parse_list(rows, &n, list, error));
    else
        list_all(rows, &n, weir_model_shape(weir_engine_model(engine)));
    weir_status status = weir_eval_tokens(&text, &n_bytes, engine, weir_argument(arguments, "text"), error);
    if (status == WEIR_OK) status = measure(out, engine, &task, choice, rows, n, weir_argument_given(arguments, "json"), error);
    weir_ids_free(&text);
    return status;
}

int weir_run_eval_kv_quality(const weir_arguments *arguments)
{
    weir_engine  *engine = NULL;
    weir_error    error = { 0 };
    weir_config   config = arguments->config;
    const int32_t window = (int32_t)weir_argument_int(arguments, "window", 512);
    config.batch.max_sequences = 1;
    config.kv.wide_layers = 0;
    (void)snprintf(config.kv.format, sizeof config.kv.format, "f32");
    if (config.model.context == 0) config.model.context = window;
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    json_t *const     out = json_pack("{s:i, s:[]}", "window", (int)window, "rows");
    const weir_status status = run(out, engine, arguments, window, &error);
    weir_engine_close(engine);
    if (status != WEIR_OK)
        code = weir_fail(status, &error);
    else if (weir_argument_given(arguments, "json"))
        code = json_dumpf(out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && puts("") >= 0 ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
    json_decref(out);
    return code;
}
