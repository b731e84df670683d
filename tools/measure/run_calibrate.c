/* tools/measure/run_calibrate.c - weir calibrate: statistics of a model's queries over a text, for
 * policies that score keys with them. */
#include <stdio.h>

#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/kv/policy/calibration.h"
#include "engine/schedule/evaluate.h"
#include "tools/measure/evaluate.h"

typedef struct run {
    const weir_service_policy *policy;
    weir_calibrator *calibrator;
    int64_t n_queries; /* per layer */
} run;

static void add(void *user, int64_t kv_layer, const float *queries, int32_t n_rows)
{
    run *const r = user;
    const weir_policy_shape *const s = &r->policy->shape;
    int64_t layer = 0;
    while (layer < s->n_layers && r->policy->layers[layer] != kv_layer) layer++;
    if (layer == s->n_layers) return;
    weir_calibrator_add(
        r->calibrator, layer,
        &(weir_policy_queries){ .data = queries,
                                .n = n_rows,
                                .head_stride = s->key_dim,
                                .row_stride = s->n_heads * s->key_dim }
    );
    if (layer == 0) r->n_queries += n_rows;
}

/* Computes every whole window of the text, each from an empty state. */
static weir_status read_windows(
    run *r, const weir_engine *engine, const weir_ids *ids, int32_t window, weir_error *error
)
{
    weir_runner *const runner = weir_engine_runner(engine);
    const size_t n = ids->count / (size_t)window;
    weir_kv_sequence sequence = { 0 };
    if (n == 0)
        return weir_error_set(
            error, WEIR_EINVAL,
            "the text has %zu tokens, fewer than one window of %d; lower --window", ids->count,
            (int)window
        );
    weir_status status = weir_kv_sequence_open(
        &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
        weir_model_recurrent_bytes(weir_engine_model(engine)), error
    );
    if (status == WEIR_OK) status = weir_runner_show_queries(runner, add, r, error);
    weir_progress_begin("calibrating", "windows", (int64_t)n);
    for (size_t i = 0; status == WEIR_OK && i < n; i++) {
        status = weir_progress_step((int64_t)i, error);
        if (status != WEIR_OK) break;
        weir_kv_sequence_clear(&sequence);
        status = weir_evaluate(
            runner, &sequence,
            &(weir_evaluation){ .tokens = ids->data + i * (size_t)window,
                                .n_tokens = window,
                                .decode_from = INT32_MAX,
                                .stopped = &weir_interrupted },
            error
        );
        status = weir_progress_after(status, (int64_t)i, error);
    }
    weir_progress_end();
    weir_error late;
    if (weir_runner_show_queries(runner, NULL, NULL, &late) != WEIR_OK && status == WEIR_OK)
        status = weir_error_set(error, late.code, "%s", late.text);
    weir_kv_sequence_close(&sequence);
    return status;
}

static weir_status calibrate(
    run *r, const weir_engine *engine, const weir_arguments *arguments, int32_t window,
    weir_error *error
)
{
    weir_ids ids = { 0 };
    size_t n_bytes;
    weir_calibration *calibration = NULL;
    const float theta = (float)weir_model_shape(weir_engine_model(engine))->rope_theta;
    if (r->policy == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "no layer of this model keeps KV rows of the whole sequence"
        );
    weir_status status =
        weir_eval_tokens(&ids, &n_bytes, engine, weir_argument(arguments, "text"), error);
    if (status == WEIR_OK)
        status = weir_calibrator_open(&r->calibrator, &r->policy->shape, theta, error);
    if (status == WEIR_OK) status = read_windows(r, engine, &ids, window, error);
    if (status == WEIR_OK) status = weir_calibrator_finish(r->calibrator, &calibration, error);
    if (status == WEIR_OK)
        status = weir_calibration_write(weir_argument(arguments, "out"), calibration, error);
    weir_calibration_close(calibration);
    weir_calibrator_close(r->calibrator);
    weir_ids_free(&ids);
    return status;
}

int weir_run_calibrate(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    const int32_t window = (int32_t)weir_argument_int(arguments, "window", 1024);
    config.batch.max_sequences = 1;
    config.model.context = window;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    run r = { .policy = weir_engine_policy(engine) };
    weir_stop_on_interrupt();
    const weir_status status = calibrate(&r, engine, arguments, window, &error);
    if (status == WEIR_OK)
        (void)printf(
            "%s: %lld queries of each head, %lld layers, %lld heads; use it with --policy "
            "triattention --calibration %s\n",
            weir_argument(arguments, "out"), (long long)r.n_queries,
            (long long)r.policy->shape.n_layers, (long long)r.policy->shape.n_heads,
            weir_argument(arguments, "out")
        );
    weir_engine_close(engine);
    return weir_end(status, &error);
}
