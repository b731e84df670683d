/* engine/engine.c - opens the parts in order and closes them in reverse: files, architecture, weights, KV store, text, service. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/engine_internal.h"

struct weir_engine {
    weir_config            config;
    weir_plan              plan;
    weir_arch_set         *archs;
    weir_tensor_directory *directory;
    weir_stream           *stream;
    weir_model            *model;
    weir_ledger           *ledger;
    weir_kv_store         *store;
    weir_runner           *runner;
    weir_tokenizer        *tokenizer;
    weir_chat_template    *chat;
    weir_service          *service;
};

/* model.name, else the file without its ending, else the folder. */
static void name_model(weir_engine *engine)
{
    char path[WEIR_CONFIG_TEXT];
    if (engine->config.model.name[0] != '\0') {
        (void)snprintf(engine->plan.model, sizeof engine->plan.model, "%.255s", engine->config.model.name);
        return;
    }
    (void)snprintf(path, sizeof path, "%s", weir_tensor_directory_path(engine->directory));
    char *const base = basename(path), *const dot = strrchr(base, '.');
    if (dot != NULL && dot != base && (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".safetensors") == 0)) *dot = '\0';
    (void)snprintf(engine->plan.model, sizeof engine->plan.model, "%.255s", base);
}

static weir_status open_stream(weir_engine *engine, weir_error *error)
{
    weir_stream_options options = { .n_threads = (int32_t)engine->config.kernels.threads, .isa = engine->config.kernels.isa };
    for (const weir_config_pin *pin = engine->config.kernels.pin; pin < engine->config.kernels.pin + WEIR_CONFIG_PINS && pin->op[0] != '\0';
         pin++) {
        weir_op op;
        if (!weir_op_from_name(pin->op, &op))
            return weir_error_set(error, WEIR_ECONFIG, "kernels.pin.%s: no such op; `weir bench --explain` lists them", pin->op);
        options.pins[op] = pin->kernel;
    }
    return weir_stream_open(&engine->stream, &options, error);
}

/* Headers, architecture and plan: nothing large is allocated. */
static weir_status prepare(weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error)
{
    const weir_arch *arch = NULL;
    engine->config = *options->config;
    WEIR_TRY(weir_config_check(&engine->config, error));
    const char *const more_archs = engine->config.model.arch_dir;
    WEIR_TRY(weir_arch_set_open(&engine->archs, more_archs[0] != '\0' ? more_archs : NULL, error));
    WEIR_TRY(weir_tensor_directory_open(&engine->directory, engine->config.model.path, error));
    WEIR_TRY(weir_arch_match(&arch, engine->archs, engine->directory, error));
    WEIR_TRY(open_stream(engine, error));
    const bool f32 = weir_plan_wants_f32(&engine->config, engine->directory);
    WEIR_TRY(weir_model_bind(&engine->model, engine->directory, arch, engine->stream, f32 ? WEIR_ACTIVATIONS_F32 : WEIR_ACTIVATIONS_FAST,
                             error));
    const weir_shape *const shape = weir_model_shape(engine->model);
    *spec = (weir_kv_spec){ .n_layers = weir_model_kv_layers(engine->model),
                            .n_kv_heads = shape->n_kv_heads,
                            .key_dim = shape->head_dim,
                            .value_dim = shape->head_dim,
                            .dtype = strcmp(engine->config.kv.format, "f32") == 0 ? WEIR_F32 : WEIR_F16 };
    WEIR_TRY(weir_plan_make(&engine->plan, &engine->config, engine->model, spec, error));
    engine->plan.f32_activations = f32;
    name_model(engine);
    spec->n_pages = engine->plan.kv_pages;
    spec->max_rows = engine->plan.window;
    return WEIR_OK;
}

static void warn_of_unused(const weir_engine *engine)
{
    const char  *names[4] = { 0 };
    const size_t n = weir_model_unused(engine->model, names, 4);
    if (n > 0)
        weir_log(WEIR_LOG_WARNING, "%s: %zu tensors are not used by architecture %s, the first is %s", engine->plan.model, n,
                 engine->plan.arch, names[0]);
}

/* A checkpoint without tokenizer or template can still be measured: only a broken one is an error. */
static weir_status open_text(weir_engine *engine, weir_error *error)
{
    weir_status status = weir_tokenizer_open(&engine->tokenizer, engine->directory, error);
    if (status == WEIR_ENOTFOUND) return WEIR_OK;
    if (status != WEIR_OK) return status;
    if ((int64_t)weir_tokenizer_size(engine->tokenizer) > weir_model_shape(engine->model)->n_vocab)
        return weir_error_set(error, WEIR_EMISMATCH, "%s: the tokenizer has %zu ids, the embedding only %lld rows",
                              weir_tensor_directory_path(engine->directory), weir_tokenizer_size(engine->tokenizer),
                              (long long)weir_model_shape(engine->model)->n_vocab);
    const char *const text = weir_tokenizer_chat_template(engine->tokenizer);
    if (text == NULL) return WEIR_OK;
    status = weir_chat_template_open(&engine->chat, text, strlen(text), error);
    return status == WEIR_OK ? WEIR_OK
                             : weir_error_prefix(error, status, "%s: chat template", weir_tensor_directory_path(engine->directory));
}

static weir_status open_service(weir_engine *engine, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(engine->model);
    weir_service_parts      parts = { .runner = engine->runner,
                                      .store = engine->store,
                                      .ledger = engine->ledger,
                                      .recurrent_bytes = weir_model_recurrent_bytes(engine->model),
                                      .chunk = (int32_t)engine->config.batch.chunk,
                                      .info = { .model_name = engine->plan.model,
                                                .n_vocab = (int32_t)shape->n_vocab,
                                                .n_valid_vocab = (int32_t)shape->n_vocab,
                                                .d_model = (int32_t)shape->d_model,
                                                .n_layers = (int32_t)shape->n_layers,
                                                .window = engine->plan.window,
                                                .trained_context = engine->plan.trained_context,
                                                .n_slots = engine->plan.n_slots,
                                                .queue_limit = engine->config.batch.queue > 0 ? (int32_t)engine->config.batch.queue
                                                                                              : 4 * engine->plan.n_slots,
                                                .n_parameters = weir_model_parameters(engine->model),
                                                .model_bytes = (int64_t)weir_model_weight_bytes(engine->model),
                                                .kv_page_bytes = engine->plan.kv_page_bytes,
                                                .kv_pages_total = engine->plan.kv_pages } };
    if (engine->tokenizer != NULL) {
        parts.info.n_valid_vocab = (int32_t)weir_tokenizer_size(engine->tokenizer);
        parts.stop_ids = weir_tokenizer_stop_ids(engine->tokenizer, &parts.n_stop_ids);
    }
    return weir_service_open(&engine->service, &parts, error);
}

static weir_status open_all(weir_engine *engine, const weir_engine_options *options, weir_error *error)
{
    weir_kv_spec spec;
    WEIR_TRY(prepare(engine, options, &spec, error));
    warn_of_unused(engine);
    const size_t caps[WEIR_TIER_COUNT] = { [WEIR_TIER_HOST] = engine->plan.cap };
    if (weir_ledger_open(&engine->ledger, caps) != WEIR_OK) return weir_error_set(error, WEIR_ENOMEM, "no memory for the ledger");
    WEIR_TRY(weir_model_load(engine->model, engine->ledger, options->progress, options->user, error));
    WEIR_TRY(open_text(engine, error));
    WEIR_TRY(weir_kv_store_open(&engine->store, &spec, engine->ledger, error));
    const weir_runner_limits limits = { .rows = (int32_t)engine->config.batch.chunk + engine->plan.n_slots,
                                        .works = engine->plan.n_slots,
                                        .logits = engine->plan.n_slots + WEIR_SCORED_ROWS };
    WEIR_TRY(weir_runner_open(&engine->runner, engine->model, engine->ledger, &spec, &limits, error));
    return options->with_service ? open_service(engine, error) : WEIR_OK;
}

weir_status weir_engine_open(weir_engine **out, const weir_engine_options *options, weir_error *error)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    const weir_status status = open_all(engine, options, error);
    if (status != WEIR_OK)
        weir_engine_close(engine);
    else
        *out = engine;
    return status;
}

weir_status weir_engine_plan(weir_plan *out, const weir_engine_options *options, weir_error *error)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    weir_kv_spec      spec;
    const weir_status status = prepare(engine, options, &spec, error);
    if (status == WEIR_OK) *out = engine->plan;
    weir_engine_close(engine);
    return status;
}

void weir_engine_close(weir_engine *engine)
{
    if (engine == NULL) return;
    weir_service_close(engine->service);
    weir_runner_close(engine->runner);
    weir_kv_store_close(engine->store);
    weir_chat_template_close(engine->chat);
    weir_tokenizer_close(engine->tokenizer);
    weir_model_close(engine->model);
    weir_ledger_close(engine->ledger);
    weir_stream_close(engine->stream);
    weir_tensor_directory_close(engine->directory);
    weir_arch_set_close(engine->archs);
    free(engine);
}

const weir_plan          *weir_engine_plan_of(const weir_engine *engine) { return &engine->plan; }
weir_service             *weir_engine_service(const weir_engine *engine) { return engine->service; }
const weir_tokenizer     *weir_engine_tokenizer(const weir_engine *engine) { return engine->tokenizer; }
const weir_chat_template *weir_engine_chat(const weir_engine *engine) { return engine->chat; }
struct weir_model        *weir_engine_model(const weir_engine *engine) { return engine->model; }
struct weir_runner       *weir_engine_runner(const weir_engine *engine) { return engine->runner; }
struct weir_kv_store     *weir_engine_store(const weir_engine *engine) { return engine->store; }
struct weir_ledger       *weir_engine_ledger(const weir_engine *engine) { return engine->ledger; }
struct weir_stream       *weir_engine_stream(const weir_engine *engine) { return engine->stream; }
