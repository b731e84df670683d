/* tools/measure/run_imatrix.c - weir imatrix: the mean squares of the inputs of a model's matrices
 * over a text, for weir convert. */
#include <stdio.h>
#include <string.h>

#include "engine/cli/open.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"
#include "offload/dispatch.h"
#include "tools/convert/collect.h"
#include "tools/measure/evaluate.h"

typedef struct run {
    const weir_engine *engine;
    const weir_arguments *arguments;
    int32_t window;
    int64_t n_windows;
    weir_collected collected;
} run;

/* Logits of all rows are computed, so that the output matrix sees all of them. */
static void skip(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    (void)user, (void)first, (void)n_rows, (void)logits;
}

/* Computes every whole window of the text, each from an empty state. */
static weir_status read_windows(
    run *r, const weir_ids *ids, weir_collector *collector, weir_error *error
)
{
    weir_stream *const stream = weir_engine_stream(r->engine);
    weir_kv_sequence sequence = { 0 };
    const int64_t n = (int64_t)(ids->count / (size_t)r->window),
                  most = weir_argument_int(r->arguments, "limit", INT32_MAX);
    r->n_windows = n < most ? n : most;
    if (n == 0)
        return weir_error_set(
            error, WEIR_EINVAL,
            "the text has %zu tokens, fewer than one window of %d; lower --window", ids->count,
            (int)r->window
        );
    weir_status status = weir_kv_sequence_open(
        &sequence, weir_engine_store(r->engine), weir_engine_ledger(r->engine),
        weir_model_recurrent_bytes(weir_engine_model(r->engine)), error
    );
    weir_stream_observe(stream, weir_collector_see, collector);
    weir_progress_begin("reading", "windows", r->n_windows);
    for (int64_t i = 0; status == WEIR_OK && i < r->n_windows; i++) {
        status = weir_progress_step(i, error);
        if (status != WEIR_OK) break;
        weir_kv_sequence_clear(&sequence);
        status = weir_evaluate(
            weir_engine_runner(r->engine), &sequence,
            &(weir_evaluation){ .tokens = ids->data + i * r->window,
                                .n_tokens = r->window,
                                .decode_from = INT32_MAX,
                                .visit = skip,
                                .stopped = &weir_interrupted },
            error
        );
        status = weir_progress_after(status, i, error);
    }
    weir_progress_end();
    weir_stream_observe(stream, NULL, NULL);
    weir_kv_sequence_close(&sequence);
    return status;
}

/* The name of the text without its folders. */
static const char *base_name(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static weir_status collect(run *r, weir_error *error)
{
    const weir_config *const config = &r->arguments->config;
    const char *const text = weir_argument(r->arguments, "text");
    weir_collector *collector = NULL;
    weir_ids ids = { 0 };
    size_t n_bytes;
    WEIR_TRY(weir_collector_open(
        &collector, weir_engine_model(r->engine), config->model.path,
        config->model.arch_dir[0] != '\0' ? config->model.arch_dir : NULL, error
    ));
    weir_status status = weir_eval_tokens(&ids, &n_bytes, r->engine, text, error);
    if (status == WEIR_OK) status = read_windows(r, &ids, collector, error);
    if (status == WEIR_OK)
        status = weir_collector_write(
            &r->collected, collector, weir_argument(r->arguments, "out"), base_name(text),
            (uint32_t)r->n_windows, (uint32_t)r->window, error
        );
    weir_ids_free(&ids);
    weir_collector_close(collector);
    return status;
}

int weir_run_imatrix(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_config config = arguments->config;
    run r = { .arguments = arguments,
              .window = (int32_t)weir_argument_int(arguments, "window", 512) };
    if (config.model.adapter[0] != '\0' || config.model.arch[0] != '\0' ||
        config.memory.experts > 0) {
        const weir_status refused = weir_error_set(
            &error, WEIR_ECONFIG,
            "model.adapter, model.arch and memory.experts are not for `weir imatrix`: it reads the "
            "inputs of the checkpoint's own matrices, which must be in memory"
        );
        return weir_end(refused, &error);
    }
    (void)snprintf(config.kernels.device, sizeof config.kernels.device, "cpu");
    config.batch.max_sequences = 1;
    config.model.context = r.window;
    const int code = weir_open(&engine, &config, WEIR_USE_RUNNER);
    if (code != WEIR_EXIT_OK) return code;
    r.engine = engine;
    weir_stop_on_interrupt();
    const weir_status status = collect(&r, &error);
    if (status == WEIR_OK)
        (void)printf(
            "%s: inputs of %zu tensors over %lld tokens; %zu matrices (experts) had none\n",
            weir_argument(arguments, "out"), r.collected.n_tensors,
            (long long)(r.n_windows * r.window), r.collected.n_unused
        );
    weir_engine_close(engine);
    return weir_end(status, &error);
}
