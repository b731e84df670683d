/* tools/measure/run_state_quality.c - weir eval states: a row per form, as text or JSON. */
#include <jansson.h>
#include <stdio.h>

#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "engine/engine_parts.h"
#include "engine/model/model.h"
#include "tools/measure/evaluate.h"

typedef struct table {
    weir_kv_quality rows[WEIR_STATE_FORMS];
    int64_t n_scored;
} table;

static void print_table(const table *t, const weir_state_quality_task *task)
{
    (void)printf(
        "%-6s %11s %11s %9s %10s %10s %10s %10s\n", "states", "bytes", "perplexity", "change",
        "KL mean", "KL 99 %", "KL most", "same token"
    );
    for (int i = 0; i < WEIR_STATE_FORMS; i++) {
        const weir_kv_quality *const q = &t->rows[i];
        (void)printf(
            "%-6s %11lld %11.4f %+7.3f %% %10.2e %10.2e %10.2e %8.2f %%\n",
            weir_state_form_name((weir_state_form)i), (long long)q->bytes, q->perplexity,
            100.0 * (q->perplexity / t->rows[WEIR_STATE_F32].perplexity - 1.0), q->kl_mean,
            q->kl_99, q->kl_most, 100.0 * q->same_best
        );
    }
    (void)printf(
        "%lld tokens, %d to %d of each window; KL in nats\n", (long long)t->n_scored,
        (int)task->before + 1, (int)task->window - 1
    );
}

static json_t *table_json(const table *t, const weir_state_quality_task *task)
{
    json_t *const rows = json_array();
    for (int i = 0; i < WEIR_STATE_FORMS; i++) {
        const weir_kv_quality *const q = &t->rows[i];
        (void)json_array_append_new(
            rows, json_pack(
                      "{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "states",
                      weir_state_form_name((weir_state_form)i), "bytes", (json_int_t)q->bytes,
                      "perplexity", q->perplexity, "kl_mean", q->kl_mean, "kl_99", q->kl_99,
                      "kl_max", q->kl_most, "same_token", q->same_best
                  )
        );
    }
    return json_pack(
        "{s:i, s:i, s:I, s:o}", "window", (int)task->window, "before", (int)task->before, "scored",
        (json_int_t)t->n_scored, "rows", rows
    );
}

static weir_status measure(
    table *t, const weir_engine *engine, const weir_arguments *arguments,
    weir_state_quality_task *task, weir_error *error
)
{
    weir_ids text = { 0 };
    size_t n_bytes;
    const int32_t block = weir_model_block_rows(weir_engine_model(engine));
    weir_status status =
        weir_eval_tokens(&text, &n_bytes, engine, weir_argument(arguments, "text"), error);
    task->text = &text;
    task->before -= task->before % block;
    for (int i = 0; status == WEIR_OK && i < WEIR_STATE_FORMS; i++)
        status = weir_eval_state_quality(
            &t->rows[i], &t->n_scored, engine, task, (weir_state_form)i, error
        );
    task->text = NULL;
    weir_ids_free(&text);
    return status;
}

int weir_run_eval_state_quality(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    table t = { 0 };
    weir_config config = arguments->config;
    weir_state_quality_task task = { .window = (int32_t)weir_argument_int(arguments, "window", 512),
                                     .most_windows =
                                         (int32_t)weir_argument_int(arguments, "limit", 0) };
    task.before = (int32_t)weir_argument_int(arguments, "before", task.window / 2);
    config.batch.max_sequences = 3;
    (void)snprintf(config.kv.format, sizeof config.kv.format, "f32");
    if (config.model.context == 0) config.model.context = task.window;
    int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    weir_stop_on_interrupt();
    const weir_status status = measure(&t, engine, arguments, &task, &error);
    weir_engine_close(engine);
    if (status != WEIR_OK) return weir_end(status, &error);
    if (weir_argument_given(arguments, "json")) return weir_print_json(table_json(&t, &task));
    print_table(&t, &task);
    return WEIR_EXIT_OK;
}
