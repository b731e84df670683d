/* tools/measure/run_eval.c - weir eval perplexity and eval retrieval: run, then print text or
 * JSON. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "offload/ledger.h"
#include "tools/measure/evaluate.h"

/* ---- perplexity ------------------------------------------------------------------------------ */
static json_t *perplexity_json(
    const weir_perplexity *result, const weir_config *config, bool by_position
)
{
    json_t *const out = json_pack(
        "{s:f, s:f, s:f, s:I, s:I, s:i, s:I, s:I, s:I, s:s, s:I}", "nll", result->nll, "perplexity",
        result->perplexity, "bits_per_byte", result->bits_per_byte, "tokens",
        (json_int_t)result->n_tokens, "scored", (json_int_t)result->n_scored, "window",
        (int)result->window, "bytes", (json_int_t)result->kv_bytes, "kept",
        (json_int_t)result->n_kept, "evicted", (json_int_t)result->n_evicted, "policy",
        config->kv.policy.name, "budget", (json_int_t)config->kv.policy.budget
    );
    json_t *const list = out != NULL && by_position ? json_array() : NULL;
    for (int32_t i = 0; list != NULL && i < result->n_places; i++) {
        const weir_perplexity_place *const place = &result->places[i];
        (void)json_array_append_new(
            list, json_pack(
                      "{s:i, s:i, s:I, s:f, s:f}", "first", (int)place->first, "end",
                      (int)place->end, "scored", (json_int_t)place->n_scored, "nll", place->nll,
                      "perplexity", exp(place->nll)
                  )
        );
    }
    if (list != NULL) (void)json_object_set_new(out, "positions", list);
    return out;
}

static void print_perplexity(const weir_perplexity *result, bool by_position)
{
    (void)printf(
        "perplexity %.4f, nll %.6f, %.4f bits per byte over %lld tokens in windows of %d\n",
        result->perplexity, result->nll, result->bits_per_byte, (long long)result->n_scored,
        (int)result->window
    );
    if (!by_position) return;
    (void)printf("%-19s %10s %10s %11s\n", "positions", "tokens", "nll", "perplexity");
    for (int32_t i = 0; i < result->n_places; i++) {
        const weir_perplexity_place *const place = &result->places[i];
        (void)printf(
            "%8d ..%8d %10lld %10.6f %11.4f\n", (int)place->first, (int)place->end - 1,
            (long long)place->n_scored, place->nll, exp(place->nll)
        );
    }
}

int weir_run_eval_perplexity(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_perplexity result;
    weir_config config = arguments->config;
    const bool is_stream = weir_argument_given(arguments, "stream"),
               by_position = weir_argument_given(arguments, "by-position");
    const int32_t window = is_stream ? 0 : (int32_t)weir_argument_int(arguments, "window", 512);
    if (is_stream && weir_argument_given(arguments, "window"))
        return weir_fail(
            weir_error_set(
                &error, WEIR_EINVAL,
                "--stream takes no --window: the stream is as long as the text and model.context"
            ),
            &error
        );
    config.batch.max_sequences = 1;
    if (config.model.context == 0 && !is_stream) config.model.context = window;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    weir_stop_on_interrupt();
    const weir_status status =
        weir_eval_perplexity(&result, engine, weir_argument(arguments, "text"), window, 0, &error);
    weir_engine_close(engine);
    if (status != WEIR_OK) return weir_end(status, &error);
    if (weir_argument_given(arguments, "json"))
        return weir_print_json(perplexity_json(&result, &config, by_position));
    print_perplexity(&result, by_position);
    return WEIR_EXIT_OK;
}

/* ---- retrieval ------------------------------------------------------------------------------- */
static double share(double sum, int32_t n) { return sum / (double)(n > 0 ? n : 1); }

static json_t *retrieval_json(const weir_retrieval *result, const weir_config *config)
{
    json_t *const rows = json_array();
    for (size_t i = 0; i < result->n_rows; i++) {
        const weir_retrieval_row *const row = &result->rows[i];
        json_t *const one = json_pack(
            "{s:s, s:i, s:i, s:i, s:f}", "task", row->task, "length", (int)row->length, "right",
            (int)row->n_right, "items", (int)row->n_items, "accuracy",
            share(row->score, row->n_items)
        );
        if (one != NULL && row->depth >= 0)
            (void)json_object_set_new(one, "depth", json_integer(row->depth));
        (void)json_array_append_new(rows, one);
    }
    return json_pack(
        "{s:f, s:[f, f], s:i, s:i, s:I, s:I, s:I, s:s, s:I, s:o}", "accuracy",
        share(result->score, result->n_items), "likely", result->likely.low, result->likely.high,
        "right", (int)result->n_right, "items", (int)result->n_items, "bytes",
        (json_int_t)result->kv_bytes, "kept", (json_int_t)result->n_kept, "evicted",
        (json_int_t)result->n_evicted, "policy", config->kv.policy.name, "budget",
        (json_int_t)config->kv.policy.budget, "rows", rows
    );
}

static void print_retrieval(const weir_retrieval *result)
{
    bool has_depth = false;
    for (size_t i = 0; i < result->n_rows; i++) has_depth = has_depth || result->rows[i].depth >= 0;
    (void)printf(
        "%-16s %8s %*s%8s %8s %9s\n", "task", "length", has_depth ? 8 : 0,
        has_depth ? "depth " : "", "right", "items", "accuracy"
    );
    for (size_t i = 0; i < result->n_rows; i++) {
        const weir_retrieval_row *const row = &result->rows[i];
        char depth[16] = "";
        if (row->n_items == 0) continue;
        if (row->depth >= 0) (void)snprintf(depth, sizeof depth, "%d %% ", (int)row->depth);
        (void)printf(
            "%-16s %8d %*s%8d %8d %9.3f\n", row->task, (int)row->length, has_depth ? 8 : 0, depth,
            (int)row->n_right, (int)row->n_items, share(row->score, row->n_items)
        );
    }
    (void)printf(
        "%-16s %8s %*s%8d %8d %9.3f (95 %%: %.3f to %.3f)\n", "all", "", has_depth ? 8 : 0, "",
        (int)result->n_right, (int)result->n_items, share(result->score, result->n_items),
        result->likely.low, result->likely.high
    );
}

int weir_run_eval_retrieval(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_retrieval result = { 0 };
    int code = weir_open(&engine, &arguments->config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    weir_stop_on_interrupt();
    weir_status status = weir_eval_retrieval(
        &result, engine, weir_argument(arguments, "items"),
        (int32_t)weir_argument_int(arguments, "limit", 0), &error
    );
    const char *const plot = weir_argument(arguments, "svg");
    if (status == WEIR_OK && plot != NULL) status = weir_retrieval_plot(&result, plot, &error);
    if (status != WEIR_OK)
        code = weir_end(status, &error);
    else if (weir_argument_given(arguments, "json"))
        code = weir_print_json(retrieval_json(&result, &arguments->config));
    else
        print_retrieval(&result);
    weir_retrieval_free(&result);
    weir_engine_close(engine);
    return code;
}
