/* engine/open/model.c - opens the model file: architecture, adapter, KV formats, tokenizer, chat
 * template. Reads nothing large. */
#include <stdio.h>
#include <string.h>

#include "engine/base/log.h"
#include "engine/base/machine_memory.h"
#include "engine/base/memory.h"
#include "engine/open/engine_internal.h"
#include "engine/open/pooling.h"
#include "engine/open/ranking.h"
#include "kernels/abi/kv_format_text.h"

weir_status weir_engine_open_stream(
    weir_stream **out, const weir_config *config, int32_t n_threads, weir_device *device,
    weir_error *error
)
{
    weir_stream_options options = { .n_threads = n_threads,
                                    .isa = config->kernels.isa,
                                    .device = device };
    for (const weir_config_pin *pin = config->kernels.pin;
         pin < config->kernels.pin + WEIR_CONFIG_PINS && pin->op[0] != '\0'; pin++) {
        weir_op op;
        if (!weir_op_from_name(pin->op, &op))
            return weir_error_set(
                error, WEIR_ECONFIG,
                "kernels.pin.%s: no such op; `weir bench --explain` lists them", pin->op
            );
        options.pins[op] = pin->kernel;
    }
    return weir_stream_open(out, &options, error);
}

static weir_status read_formats(
    weir_kv_choice *choice, const weir_config *config, weir_error *error
)
{
    choice->n_wide = config->kv.wide_layers;
    choice->n_wide_tokens = config->kv.wide_sinks;
    if (weir_kv_pair_parse(&choice->rest, config->kv.format) &&
        weir_kv_pair_parse(&choice->wide, config->kv.wide_format))
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "kv.format = \"%.40s\", kv.wide_format = \"%.40s\": not KV formats",
        config->kv.format, config->kv.wide_format
    );
}

/* Checks that the formats can hold rows of this width. */
static weir_status check_formats(
    const weir_kv_choice *choice, int64_t n_layers, const weir_kv_geometry *g, weir_error *error
)
{
    if (2 * choice->n_wide < n_layers)
        WEIR_TRY(weir_kv_pair_check(choice->rest, g, "kv.format", error));
    if (choice->n_wide > 0 || choice->n_wide_tokens > 0)
        WEIR_TRY(weir_kv_pair_check(choice->wide, g, "kv.wide_format", error));
    return WEIR_OK;
}

/* Layers that share rows find only those in pages: unsealed rows are in memory of one layer at a
 * time. Refuses formats with unsealed rows where layers share rows. */
static weir_status check_sharing(const weir_engine *engine, weir_error *error)
{
    const int64_t n = weir_model_kv_layers(engine->model);
    const weir_kv_sinks sinks = weir_kv_choice_sinks(&engine->kv_choice, n);
    for (int64_t i = 0; i < n && weir_model_shares_rows(engine->model); i++)
        if (weir_kv_any_unsealed(engine->kv_formats[i], sinks))
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "kv.format = \"%.40s\", kv.wide_format = \"%.40s\": layers of this model read the "
                "KV rows of others, which these formats do not allow:" WEIR_KV_PAGE_TEXT
                "; choose another",
                engine->config.kv.format, engine->config.kv.wide_format
            );
    return WEIR_OK;
}

/* Sets the configured formats for every layer with KV rows. */
static weir_status choose_formats(weir_engine *engine, weir_error *error)
{
    const int64_t n = weir_model_kv_layers(engine->model) + weir_model_window_layers(engine->model);
    const weir_kv_geometry *const geometry = weir_model_kv_geometry(engine->model);
    const int32_t *const numbers = weir_model_kv_numbers(engine->model);
    weir_kv_choice *const choice = &engine->kv_choice;
    weir_memory_give(engine->kv_formats);
    engine->kv_formats = NULL;
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n; i++) WEIR_TRY(check_formats(choice, n, &geometry[i], error));
    engine->kv_formats = weir_memory_take_zero((size_t)n, sizeof *engine->kv_formats);
    if (engine->kv_formats == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for %lld layers", (long long)n);
    for (int64_t i = 0; i < n; i++)
        engine->kv_formats[numbers[i]] = weir_kv_choice_of(choice, i, n);
    WEIR_TRY(check_sharing(engine, error));
    choice->n_wide_tokens = weir_kv_choice_sinks(choice, n).n_pages * (int64_t)WEIR_PAGE_TOKENS;
    return WEIR_OK;
}

/* GGUF files may order the rows of queries and keys differently from the checkpoints that adapters
 * are trained on. */
static weir_status open_adapter(weir_engine *engine, weir_error *error)
{
    const char *const path = engine->config.model.adapter;
    WEIR_TRY(weir_tensor_directory_open(&engine->adapter, path, error));
    if (weir_tensor_directory_container(engine->adapter) != WEIR_CONTAINER_SAFETENSORS)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "model.adapter: %.400s is a GGUF file; adapters are safetensors files", path
        );
    if (weir_tensor_directory_container(engine->directory) != WEIR_CONTAINER_SAFETENSORS)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "model.adapter: %.400s goes with a safetensors checkpoint; %.400s is GGUF, whose rows "
            "may be in another order",
            path, weir_tensor_directory_path(engine->directory)
        );
    return WEIR_OK;
}

/* A step must hold a whole block of a prompt, also while others decode. */
static weir_status check_chunk(const weir_engine *engine, weir_error *error)
{
    const int32_t block = weir_model_block_rows(engine->model);
    const int64_t tokens = engine->config.batch.tokens,
                  left = tokens - engine->config.batch.max_sequences;
    if (tokens > 0 && left < block)
        return weir_error_set(
            error, WEIR_ECONFIG,
            "batch.tokens = %lld leaves %lld tokens for prompts while batch.max_sequences decode, "
            "and architecture %s reads prompts in blocks of %d (block_rows); raise batch.tokens, "
            "or lower block_rows",
            (long long)tokens, (long long)left, weir_model_arch(engine->model), (int)block
        );
    if (engine->config.batch.chunk >= block) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "batch.chunk = %lld: architecture %s reads prompts in blocks of %d rows "
        "(block_rows), which a step must hold; "
        "raise batch.chunk, or lower block_rows",
        (long long)engine->config.batch.chunk, weir_model_arch(engine->model), (int)block
    );
}

/* Whether layers with a window drop the rows before it. Formats that code 64 rows together, and
 * first tokens in another format, are for sequences that have all rows. Not measured on a GPU. */
static bool drops_windows(const weir_engine *engine)
{
    const weir_kv_choice *const choice = &engine->kv_choice;
    const weir_kv_sinks none = { 0 };
    return !engine->config.kv.full_windows && engine->device == NULL &&
           choice->n_wide_tokens == 0 && !weir_kv_any_unsealed(choice->rest, none) &&
           !weir_kv_any_unsealed(choice->wide, none);
}

static weir_expert_settings expert_settings(const weir_config *config)
{
    const char *const reads = config->memory.expert_reads;
    const size_t cap = weir_plan_cap(config), machine = weir_machine_memory("");
    return (weir_expert_settings){ .bytes = (size_t)config->memory.experts,
                                   .page_cache = machine > cap ? machine - cap : 0,
                                   .reads = strcmp(reads, "direct") == 0 ? WEIR_EXPERT_READS_DIRECT
                                            : strcmp(reads, "cached") == 0
                                                ? WEIR_EXPERT_READS_CACHED
                                                : WEIR_EXPERT_READS_AUTO,
                                   .prefetches = config->memory.expert_prefetch,
                                   .pins = config->memory.expert_pins,
                                   .timeout_ns = config->memory.experts_timeout_ms * 1000000 };
}

/* Binds the tensors and chooses the formats, by the numbers of the layers with KV. */
static weir_status bind_model(weir_engine *engine, weir_error *error)
{
    weir_model_close(engine->model);
    engine->model = NULL;
    engine->f32_activations = weir_plan_wants_f32(&engine->config, engine->directory);
    const weir_model_settings settings = { .activations = engine->f32_activations
                                                              ? WEIR_ACTIVATIONS_F32
                                                              : WEIR_ACTIVATIONS_FAST,
                                           .adapter = engine->adapter,
                                           .context = engine->config.model.context,
                                           .kv_format = engine->kv_choice.rest,
                                           .experts = expert_settings(&engine->config),
                                           .drops_windows = drops_windows(engine),
                                           .with_mtp = engine->with_mtp && engine->device == NULL };
    WEIR_TRY(weir_model_bind(
        &engine->model, engine->directory, engine->arch, engine->stream, &settings, error
    ));
    WEIR_TRY(check_chunk(engine, error));
    return choose_formats(engine, error);
}

static weir_status bind_on_device(weir_engine *engine, weir_error *error)
{
    WEIR_TRY(weir_engine_open_stream(
        &engine->stream, &engine->config, (int32_t)engine->config.kernels.threads, engine->device,
        error
    ));
    return bind_model(engine, error);
}

/* Checks that the device has kernels for all ops by planning a small step; for some KV formats it
 * has none. */
static bool device_runs(const weir_engine *engine, weir_error *why)
{
    enum { ROWS = 64, CONTEXT = 256 };
    const weir_workspace_limits limits = {
        .rows = ROWS,
        .segments = 1,
        .logits = 1,
        .context = CONTEXT,
        .formats = engine->kv_formats,
        .sinks = weir_kv_choice_sinks(&engine->kv_choice, weir_model_kv_layers(engine->model))
    };
    weir_stream_memory planned;
    return weir_workspace_scratch(&planned, engine->model, &limits, why) != WEIR_EUNSUPPORTED;
}

static void say_why(const weir_engine *engine)
{
    const char *const asked = engine->config.kernels.device;
    if (engine->device == NULL && strcmp(asked, "auto") != 0 && engine->device_why[0] != '\0')
        weir_log(
            WEIR_LOG_WARNING, "kernels.device = \"%s\": the CPU does the work: %s", asked,
            engine->device_why
        );
}

static void leave_device(weir_engine *engine, const char *why)
{
    weir_model_close(engine->model);
    weir_stream_close(engine->stream);
    engine->model = NULL;
    engine->stream = NULL;
    weir_ledger_use_device(engine->ledger, NULL);
    weir_device_close(engine->device);
    engine->device = NULL;
    (void)snprintf(engine->device_why, sizeof engine->device_why, "%s", why);
}

/* Opens the model file and checks its tensors; sets the KV formats. */
static weir_status open_model(weir_engine *engine, weir_error *error)
{
    const char *const more_archs = engine->config.model.arch_dir;
    WEIR_TRY(read_formats(&engine->kv_choice, &engine->config, error));
    /* First, so that the memory of its files is not taken besides that of all architectures. */
    WEIR_TRY(weir_tensor_directory_open(&engine->directory, engine->config.model.path, error));
    WEIR_TRY(weir_arch_set_open(
        &engine->archs, more_archs[0] != '\0' ? more_archs : NULL, engine->blocks, error
    ));
    if (engine->config.model.arch[0] != '\0')
        WEIR_TRY(weir_arch_find(
            &engine->arch, engine->archs, engine->config.model.arch, engine->directory, error
        ));
    else
        WEIR_TRY(weir_arch_match(&engine->arch, engine->archs, engine->directory, error));
    weir_arch_set_keep(engine->archs, engine->arch);
    if (engine->config.model.adapter[0] != '\0') WEIR_TRY(open_adapter(engine, error));
    WEIR_TRY(bind_on_device(engine, error));
    weir_error why = { 0 };
    const char *const host_only = weir_model_host_only(engine->model);
    if (engine->device != NULL && (host_only != NULL || !device_runs(engine, &why))) {
        leave_device(engine, host_only != NULL ? host_only : why.text);
        WEIR_TRY(bind_on_device(engine, error));
    }
    say_why(engine);
    return WEIR_OK;
}

/* Most commands need no chat: an unusable template is logged once here, and is an error only for
 * commands that need it. */
static weir_status open_chat(weir_engine *engine, weir_error *error)
{
    const char *const text = weir_tokenizer_chat_template(engine->tokenizer);
    if (text == NULL) return WEIR_OK;
    const weir_status status =
        weir_chat_template_open(&engine->chat, text, strlen(text), &engine->chat_problem);
    if (status == WEIR_ENOMEM)
        return weir_error_set(error, status, "%s", engine->chat_problem.text);
    if (status != WEIR_OK)
        weir_log(
            WEIR_LOG_WARNING, "%s: the chat template cannot be used, so chats are refused: %s",
            weir_tensor_directory_path(engine->directory), engine->chat_problem.text
        );
    return WEIR_OK;
}

/* A checkpoint without a tokenizer can still be measured: only a broken one is an error. */
static weir_status open_text(weir_engine *engine, weir_error *error)
{
    const int64_t n_vocab = weir_model_shape(engine->model)->n_vocab;
    WEIR_TRY(weir_pooling_of(&engine->pooling, NULL, engine->directory, error));
    WEIR_TRY(weir_ranking_of(&engine->ranking, engine->directory, n_vocab, error));
    const weir_status status = weir_tokenizer_open(&engine->tokenizer, engine->directory, error);
    if (status == WEIR_ENOTFOUND) return WEIR_OK;
    if (status != WEIR_OK) return status;
    if ((int64_t)weir_tokenizer_size(engine->tokenizer) > n_vocab)
        return weir_error_set(
            error, WEIR_EMISMATCH, "%s: the tokenizer has %zu ids, the embedding only %lld rows",
            weir_tensor_directory_path(engine->directory), weir_tokenizer_size(engine->tokenizer),
            (long long)n_vocab
        );
    return open_chat(engine, error);
}

/* Runs `open` with the account as tracker. `open` reports a refusal as out of memory, perhaps with
 * what it was for (a file); the ledger's sums are added. */
static weir_status paid_by(
    weir_engine *engine, weir_account account, weir_ledger_tracker *tracker,
    weir_status (*open)(weir_engine *engine, weir_error *error), weir_error *error
)
{
    weir_error refused = { 0 };
    weir_ledger_tracker_init(tracker, engine->ledger, account, &refused);
    weir_memory_tracker *const before = weir_memory_tracker_set(&tracker->tracker);
    const weir_status status = open(engine, error);
    (void)weir_memory_tracker_set(before);
    tracker->refused = NULL;
    if (status != WEIR_ENOMEM || refused.code != WEIR_EFULL) return status;
    const bool says_what = error != NULL && error->code == WEIR_ENOMEM && error->text[0] != '\0';
    char what[600];
    (void
    )snprintf(what, sizeof what, "%.590s%s", says_what ? error->text : "", says_what ? "; " : "");
    return weir_error_set(error, WEIR_EFULL, "%sthe plan does not fit: %s", what, refused.text);
}

weir_status weir_engine_open_model(
    weir_engine *engine, const weir_engine_options *options, weir_error *error
)
{
    engine->config = *options->config;
    engine->blocks = options->blocks;
    /* Experts that are read when they are needed are those of the model's own layers. */
    engine->with_mtp = options->with_service && engine->config.memory.experts == 0 &&
                       strcmp(engine->config.speculation.method, "off") != 0 &&
                       strcmp(engine->config.speculation.mtp, "off") != 0;
    WEIR_TRY(weir_config_check(&engine->config, error));
    WEIR_TRY(weir_device_open(
        &engine->device, engine->config.kernels.device, engine->device_why,
        sizeof engine->device_why, error
    ));
    const size_t caps[WEIR_TIER_COUNT] = {
        [WEIR_TIER_HOST] = weir_plan_cap(&engine->config),
        [WEIR_TIER_DEVICE] = weir_plan_device_cap(&engine->config, engine->device),
        [WEIR_TIER_DISK] = (size_t)engine->config.memory.disk
    };
    if (weir_ledger_open(&engine->ledger, caps) != WEIR_OK)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the ledger");
    weir_ledger_use_device(engine->ledger, engine->device);
    return paid_by(engine, WEIR_ACCOUNT_OTHER, &engine->tables_tracker, open_model, error);
}

weir_status weir_engine_keep_windows(weir_engine *engine, weir_error *error)
{
    engine->config.kv.full_windows = true;
    return paid_by(engine, WEIR_ACCOUNT_OTHER, &engine->tables_tracker, bind_model, error);
}

weir_status weir_engine_drop_mtp(weir_engine *engine, weir_error *error)
{
    engine->with_mtp = false;
    return paid_by(engine, WEIR_ACCOUNT_OTHER, &engine->tables_tracker, bind_model, error);
}

weir_status weir_engine_open_text(weir_engine *engine, weir_error *error)
{
    return paid_by(engine, WEIR_ACCOUNT_TOKENIZER, &engine->tokenizer_tracker, open_text, error);
}
