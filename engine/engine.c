/* engine/engine.c - opens the parts in order and closes them in reverse: files, architecture, weights, KV store, text, service. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/engine_internal.h"
#include "engine/schedule/documents.h"

struct weir_engine {
    weir_config            config;
    weir_plan              plan;
    weir_arch_set         *archs;
    weir_tensor_directory *directory, *adapter; /* adapter: NULL without model.adapter */
    weir_stream           *stream;
    weir_model            *model;
    weir_ledger           *ledger;
    weir_ledger_payer      tables_payer, tokenizer_payer;
    bool                   f32_activations;
    weir_kv_choice         kv_choice;
    weir_kv_pair          *kv_formats; /* [layers with KV] */
    weir_kv_store         *store;
    weir_prefix           *prefix; /* NULL: kv.reuse is off, or there is no service */
    weir_policies          policies;
    weir_kv_evictor       *evictor; /* NULL: there is nothing to evict */
    weir_runner           *runner;
    weir_tokenizer        *tokenizer;
    weir_chat_template    *chat;
    weir_error             chat_problem; /* of a template that is there and cannot be used */
    weir_service          *service;
    weir_sessions         *sessions; /* NULL: neither sessions.dir nor a server's states.dir is given, or there is no service */
    weir_states           *states; /* NULL: none is served */
    weir_purse             states_purse; /* states.memory, which the account packs holds */
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

static weir_status read_formats(weir_kv_choice *choice, const weir_config *config, weir_error *error)
{
    choice->n_wide = config->kv.wide_layers;
    choice->n_wide_tokens = config->kv.wide_sinks;
    if (weir_kv_pair_parse(&choice->rest, config->kv.format) && weir_kv_pair_parse(&choice->wide, config->kv.wide_format)) return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG, "kv.format = \"%.40s\", kv.wide_format = \"%.40s\": no KV formats", config->kv.format,
                          config->kv.wide_format);
}

/* The configured formats, for every layer that keeps KV rows. */
static weir_status choose_formats(weir_engine *engine, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(engine->model);
    const int64_t           n = weir_model_kv_layers(engine->model), dim = shape->head_dim;
    weir_kv_choice *const   choice = &engine->kv_choice;
    if (n == 0) return WEIR_OK;
    if (2 * choice->n_wide < n) WEIR_TRY(weir_kv_pair_check(choice->rest, dim, dim, "kv.format", error));
    if (choice->n_wide > 0 || choice->n_wide_tokens > 0) WEIR_TRY(weir_kv_pair_check(choice->wide, dim, dim, "kv.wide_format", error));
    engine->kv_formats = weir_memory_take_zero((size_t)n, sizeof *engine->kv_formats);
    if (engine->kv_formats == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for %lld layers", (long long)n);
    weir_kv_choice_fill(engine->kv_formats, n, choice);
    choice->n_wide_tokens = weir_kv_choice_sinks(choice, n).n_pages * (int64_t)WEIR_PAGE_TOKENS;
    return WEIR_OK;
}

/* GGUF files may hold queries and keys in another order of rows than the checkpoints that adapters are trained on. */
static weir_status open_adapter(weir_engine *engine, weir_error *error)
{
    const char *const path = engine->config.model.adapter;
    WEIR_TRY(weir_tensor_directory_open(&engine->adapter, path, error));
    if (weir_tensor_directory_container(engine->adapter) != WEIR_CONTAINER_SAFETENSORS)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "model.adapter: %.400s is a GGUF file; adapters are safetensors files", path);
    if (weir_tensor_directory_container(engine->directory) != WEIR_CONTAINER_SAFETENSORS)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "model.adapter: %.400s goes with a safetensors checkpoint; %.400s is GGUF, which may have its rows in another order", path,
            weir_tensor_directory_path(engine->directory));
    return WEIR_OK;
}

/* A step must hold a block of a prompt. */
static weir_status check_chunk(const weir_engine *engine, weir_error *error)
{
    const int32_t block = weir_model_block_rows(engine->model);
    if (engine->config.batch.chunk >= block) return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG,
                          "batch.chunk = %lld: architecture %s reads prompts in blocks of %d rows (block_rows), which a step must hold; "
                          "raise batch.chunk, or lower block_rows",
                          (long long)engine->config.batch.chunk, weir_model_arch(engine->model), (int)block);
}

/* Names, shapes and bindings of the model file, and what its KV is kept in. */
static weir_status open_model(weir_engine *engine, weir_error *error)
{
    const weir_arch  *arch = NULL;
    const char *const more_archs = engine->config.model.arch_dir;
    WEIR_TRY(read_formats(&engine->kv_choice, &engine->config, error));
    WEIR_TRY(weir_arch_set_open(&engine->archs, more_archs[0] != '\0' ? more_archs : NULL, error));
    WEIR_TRY(weir_tensor_directory_open(&engine->directory, engine->config.model.path, error));
    if (engine->config.model.arch[0] != '\0')
        WEIR_TRY(weir_arch_find(&arch, engine->archs, engine->config.model.arch, engine->directory, error));
    else
        WEIR_TRY(weir_arch_match(&arch, engine->archs, engine->directory, error));
    if (engine->config.model.adapter[0] != '\0') WEIR_TRY(open_adapter(engine, error));
    WEIR_TRY(open_stream(engine, error));
    engine->f32_activations = weir_plan_wants_f32(&engine->config, engine->directory);
    const weir_model_settings settings = { .activations = engine->f32_activations ? WEIR_ACTIVATIONS_F32 : WEIR_ACTIVATIONS_FAST,
                                           .adapter = engine->adapter,
                                           .kv_format = engine->kv_choice.rest };
    WEIR_TRY(weir_model_bind(&engine->model, engine->directory, arch, engine->stream, &settings, error));
    WEIR_TRY(check_chunk(engine, error));
    return choose_formats(engine, error);
}

/* Most commands need no chat: a template that cannot be read is said once here, and to those who ask for it. */
static weir_status open_chat(weir_engine *engine, weir_error *error)
{
    const char *const text = weir_tokenizer_chat_template(engine->tokenizer);
    if (text == NULL) return WEIR_OK;
    const weir_status status = weir_chat_template_open(&engine->chat, text, strlen(text), &engine->chat_problem);
    if (status == WEIR_ENOMEM) return weir_error_set(error, status, "%s", engine->chat_problem.text);
    if (status != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s: the chat template cannot be used, so chats are refused: %s",
                 weir_tensor_directory_path(engine->directory), engine->chat_problem.text);
    return WEIR_OK;
}

/* A checkpoint without tokenizer can still be measured: only a broken one is an error. */
static weir_status open_text(weir_engine *engine, weir_error *error)
{
    const weir_status status = weir_tokenizer_open(&engine->tokenizer, engine->directory, error);
    if (status == WEIR_ENOTFOUND) return WEIR_OK;
    if (status != WEIR_OK) return status;
    if ((int64_t)weir_tokenizer_size(engine->tokenizer) > weir_model_shape(engine->model)->n_vocab)
        return weir_error_set(error, WEIR_EMISMATCH, "%s: the tokenizer has %zu ids, the embedding only %lld rows",
                              weir_tensor_directory_path(engine->directory), weir_tokenizer_size(engine->tokenizer),
                              (long long)weir_model_shape(engine->model)->n_vocab);
    return open_chat(engine, error);
}

/* Runs `open` with the account as payer. A refusal looks like missing memory to it; the ledger's arithmetic is the better text. */
static weir_status paid_by(weir_engine *engine, weir_account account, weir_ledger_payer *payer,
                           weir_status (*open)(weir_engine *engine, weir_error *error), weir_error *error)
{
    weir_error refused = { 0 };
    weir_ledger_payer_init(payer, engine->ledger, account, &refused);
    weir_payer *const before = weir_payer_set(&payer->payer);
    const weir_status status = open(engine, error);
    (void)weir_payer_set(before);
    payer->refused = NULL;
    if (status != WEIR_ENOMEM || refused.code != WEIR_EFULL) return status;
    return weir_error_set(error, WEIR_EFULL, "the plan does not fit: %s", refused.text);
}

/* Headers and architecture. */
static weir_status prepare_model(weir_engine *engine, const weir_engine_options *options, weir_error *error)
{
    engine->config = *options->config;
    WEIR_TRY(weir_config_check(&engine->config, error));
    const size_t caps[WEIR_TIER_COUNT] = {
        [WEIR_TIER_HOST] = weir_plan_cap(&engine->config), [WEIR_TIER_DISK] = (size_t)engine->config.memory.disk
    };
    if (weir_ledger_open(&engine->ledger, caps) != WEIR_OK) return weir_error_set(error, WEIR_ENOMEM, "no memory for the ledger");
    return paid_by(engine, WEIR_ACCOUNT_OTHER, &engine->tables_payer, open_model, error);
}

/* Pages that memory.disk has room for; where sessions are saved, the other half is theirs. Pages are larger with a disk than without. None
 * when all tokens of all texts are sinks: those stay in memory. */
static weir_status plan_disk(weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error)
{
    const bool    shares = weir_plan_has_sessions(&engine->config, options->with_service);
    const int64_t disk = engine->config.memory.disk / (shares ? 2 : 1), per_block = weir_kv_pages_for(spec, 1);
    const bool    are_all_sinks = spec->sinks.n_pages * (int64_t)WEIR_PAGE_TOKENS >= weir_plan_context(&engine->config, engine->model);
    if (disk == 0 || per_block == 0 || are_all_sinks) return WEIR_OK;
    spec->n_disk_pages = per_block;
    const int64_t bytes = (int64_t)weir_kv_block_room(spec), most = INT32_MAX / 2 / per_block;
    spec->n_disk_pages = (disk / bytes < most ? disk / bytes : most) * per_block;
    if (spec->n_disk_pages > 0 || shares) return WEIR_OK;
    return weir_error_set(error, WEIR_EFULL,
                          "memory.disk = %lldB holds no KV pages: those of 64 tokens take %lld bytes there; raise it, or set it to 0",
                          (long long)engine->config.memory.disk, (long long)bytes);
}

/* memory.disk_dir, or where there is room as a rule; not /tmp, which may be memory. */
static const char *disk_folder(const weir_config *config)
{
    const char *const temporary = getenv("TMPDIR");
    if (config->memory.disk_dir[0] != '\0') return config->memory.disk_dir;
    if (config->sessions.dir[0] != '\0') return config->sessions.dir;
    return temporary != NULL && temporary[0] != '\0' ? temporary : "/var/tmp";
}

static weir_kv_spec kv_spec(const weir_engine *engine)
{
    const weir_shape *const shape = weir_model_shape(engine->model);
    const int64_t           n_layers = weir_model_kv_layers(engine->model);
    return (weir_kv_spec){ .n_layers = n_layers,
                           .n_kv_heads = shape->n_kv_heads,
                           .key_dim = shape->head_dim,
                           .value_dim = shape->head_dim,
                           .formats = engine->kv_formats,
                           .sinks = weir_kv_choice_sinks(&engine->kv_choice, n_layers),
                           .disk_folder = disk_folder(&engine->config) };
}

static weir_identity_parts identity_parts(const weir_engine *engine, const weir_kv_spec *spec)
{
    return (weir_identity_parts){ .config = &engine->config,
                                  .directory = engine->directory,
                                  .adapter = engine->adapter,
                                  .model = engine->model,
                                  .tokenizer = engine->tokenizer,
                                  .spec = spec,
                                  .formats = &engine->kv_choice,
                                  .f32_activations = engine->f32_activations };
}

/* Headers, architecture, tokenizer and plan: nothing larger is allocated. */
static weir_status prepare(weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error)
{
    WEIR_TRY(prepare_model(engine, options, error));
    WEIR_TRY(paid_by(engine, WEIR_ACCOUNT_TOKENIZER, &engine->tokenizer_payer, open_text, error));
    if (weir_plan_has_states(&engine->config, options->with_server))
        WEIR_TRY(weir_ledger_reserve(engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PACKS, (size_t)engine->config.states.memory, error));
    *spec = kv_spec(engine);
    WEIR_TRY(plan_disk(engine, options, spec, error));
    const weir_identity_parts identity = identity_parts(engine, spec);
    WEIR_TRY(weir_policies_open(&engine->policies, &identity, error));
    spec->evicts = weir_policies_are_there(&engine->policies);
    const weir_plan_parts parts = { .config = &engine->config,
                                    .model = engine->model,
                                    .spec = spec,
                                    .formats = &engine->kv_choice,
                                    .policies = &engine->policies,
                                    .cap = weir_ledger_cap(engine->ledger, WEIR_TIER_HOST),
                                    .tokenizer = weir_ledger_used(engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_TOKENIZER),
                                    .packs = weir_ledger_used(engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PACKS),
                                    .other = weir_ledger_used(engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_OTHER),
                                    .with_service = options->with_service,
                                    .with_server = options->with_server };
    WEIR_TRY(weir_plan_make(&engine->plan, &parts, error));
    engine->plan.f32_activations = engine->f32_activations;
    name_model(engine);
    spec->n_pages = engine->plan.kv_pages;
    spec->n_disk_pages = engine->plan.kv_disk_pages;
    spec->n_sink_pages = engine->plan.kv_sink_pages;
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

static bool is_lossy(const weir_engine *engine)
{
    const weir_kv_sinks *const sinks = &weir_kv_store_spec(engine->store)->sinks;
    return weir_kv_any_lossy(engine->kv_formats, weir_model_kv_layers(engine->model)) ||
           weir_kv_any_lossy(&sinks->pair, sinks->n_pages > 0);
}

static weir_status open_service(weir_engine *engine, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(engine->model);
    weir_service_parts      parts = { .runner = engine->runner,
                                      .store = engine->store,
                                      .ledger = engine->ledger,
                                      .chunk = (int32_t)engine->config.batch.chunk,
                                      .policy = weir_policies_are_there(&engine->policies) ? &engine->policies.service : NULL,
                                      .info = { .model_name = engine->plan.model,
                                                .n_vocab = (int32_t)shape->n_vocab,
                                                .n_valid_vocab = (int32_t)shape->n_vocab,
                                                .d_model = (int32_t)shape->d_model,
                                                .n_layers = (int32_t)shape->n_layers,
                                                .window = engine->plan.window,
                                                .trained_context = engine->plan.trained_context,
                                                .n_slots = engine->plan.n_slots,
                                                .queue_limit = engine->plan.queue_limit,
                                                .n_parameters = weir_model_parameters(engine->model),
                                                .model_bytes = (int64_t)weir_model_weight_bytes(engine->model),
                                                .kv_page_bytes = engine->plan.kv_page_bytes,
                                                .kv_pages_total = engine->plan.kv_pages,
                                                .kv_bytes_per_token = engine->plan.kv_bytes_per_token,
                                                .kv_bytes_per_sink = engine->plan.kv_bytes_per_sink,
                                                .recurrent_bytes = (int64_t)weir_model_recurrent_bytes(engine->model),
                                                .banks = weir_model_banks(engine->model, NULL),
                                                .kv_open_bytes = (int64_t)weir_kv_open_rows_bytes(weir_kv_store_spec(engine->store)),
                                                .kv_format = engine->plan.kv_format,
                                                .k_format = engine->plan.k_format,
                                                .v_format = engine->plan.v_format,
                                                .wide_format = engine->plan.wide_format,
                                                .wide_layers = engine->plan.wide_layers,
                                                .sink_tokens = engine->plan.sink_tokens,
                                                .kv_per_request = engine->plan.kv_per_request,
                                                .kv_per_client = engine->plan.kv_per_key,
                                                .kv_is_lossy = is_lossy(engine) } };
    if (strcmp(engine->config.kv.reuse, "on") == 0) {
        const weir_prefix_limits limits = { .n_nodes = engine->plan.n_runs,
                                            .n_snapshots = engine->plan.n_snapshots,
                                            .snapshot_bytes = weir_model_recurrent_bytes(engine->model),
                                            .n_cut = engine->plan.n_cut,
                                            .cut_bytes = engine->plan.cut_bytes };
        WEIR_TRY(weir_prefix_open(&engine->prefix, engine->store, engine->ledger, &limits, error));
        parts.prefix = engine->prefix;
    }
    if (engine->tokenizer != NULL) {
        parts.info.n_valid_vocab = (int32_t)weir_tokenizer_size(engine->tokenizer);
        parts.stop_ids = weir_tokenizer_stop_ids(engine->tokenizer, &parts.n_stop_ids);
    }
    return weir_service_open(&engine->service, &parts, error);
}

/* Without sessions.dir they carry states, whose paths are given. */
static weir_status open_sessions(weir_engine *engine, const weir_kv_spec *spec, bool with_states, weir_error *error)
{
    const bool has_folder = weir_plan_has_sessions(&engine->config, true);
    if (!has_folder && !with_states) return WEIR_OK;
    const weir_identity_parts parts = identity_parts(engine, spec);
    const int32_t             share = engine->plan.n_snapshots / 4; /* a session must not push out the states of all others */
    weir_sessions_options     options = { .folder = has_folder ? engine->config.sessions.dir : engine->config.states.dir,
                                          .service = engine->service,
                                          .limit = (int32_t)engine->config.sessions.limit,
                                          .disk = engine->config.memory.disk - (int64_t)engine->plan.kv_disk,
                                          .saves_unasked = has_folder && engine->config.sessions.autosave,
                                          .n_states = share > 1 ? share : 1 };
    WEIR_TRY(weir_identity_of(&options.identity, &parts, error));
    return weir_sessions_open(&engine->sessions, &options, error);
}

/* A database that `weir db create` made, or one with vectors and states as they are. */
static weir_status open_states(weir_engine *engine, weir_error *error)
{
    const uint64_t *const     model = weir_sessions_identity_of(engine->sessions)->model;
    const weir_states_options options = { .folder = engine->config.states.dir,
                                          .model = model,
                                          .writes = true,
                                          .payer = &engine->states_purse.payer,
                                          .disk = engine->config.states.disk };
    const weir_states_kind    kind = { .model = { model[0], model[1] },
                                       .dim = (int32_t)weir_model_shape(engine->model)->d_model,
                                       .embedding = WEIR_DOCUMENTS_EMBEDDING };
    weir_purse_init(&engine->states_purse, (size_t)engine->config.states.memory);
    weir_status status = weir_states_open(&engine->states, &options, error);
    if (status == WEIR_ENOTFOUND) {
        WEIR_TRY(weir_states_create(engine->config.states.dir, &kind, error));
        status = weir_states_open(&engine->states, &options, error);
    }
    if (status != WEIR_ENOMEM) return status;
    return weir_error_prefix(error, WEIR_EFULL, "states.memory = %lldB is too little", (long long)engine->config.states.memory);
}

int32_t weir_engine_restore_sessions(weir_engine *engine)
{
    return weir_engine_sessions(engine) != NULL && engine->config.sessions.autosave ? weir_sessions_restore_recent(engine->sessions) : 0;
}

int32_t weir_engine_save_sessions(weir_engine *engine)
{
    return weir_engine_sessions(engine) != NULL && engine->config.sessions.autosave ? weir_sessions_save_recent(engine->sessions) : 0;
}

static weir_status open_evictor(weir_engine *engine, weir_error *error)
{
    if (!weir_policies_are_there(&engine->policies)) return WEIR_OK;
    weir_policies_turn(&engine->policies, engine->model);
    WEIR_TRY(weir_kv_evictor_open(&engine->evictor, engine->store, engine->stream, engine->ledger, error));
    weir_runner_evict_with(engine->runner, engine->evictor);
    return WEIR_OK;
}

static weir_status open_all(weir_engine *engine, const weir_engine_options *options, weir_error *error)
{
    weir_kv_spec spec;
    WEIR_TRY(prepare(engine, options, &spec, error));
    warn_of_unused(engine);
    WEIR_TRY(weir_ledger_reserve(engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PROCESS, engine->plan.process, error));
    WEIR_TRY(weir_model_load(engine->model, engine->ledger, options->progress, options->user, error));
    if (spec.n_disk_pages > 0) (void)mkdir(spec.disk_folder, 0700); /* that it cannot be made is found out when a file is */
    WEIR_TRY(weir_kv_store_open(&engine->store, &spec, engine->ledger, error));
    const weir_runner_limits limits = { .rows = (int32_t)engine->config.batch.chunk + engine->plan.n_slots,
                                        .works = engine->plan.n_slots,
                                        .logits = engine->plan.n_slots + weir_plan_scored_rows(engine->model),
                                        .hot = (int32_t)engine->config.kv.tiers.hot };
    WEIR_TRY(weir_runner_open(&engine->runner, engine->model, engine->ledger, &spec, &limits, error));
    WEIR_TRY(open_evictor(engine, error));
    if (!options->with_service) return WEIR_OK;
    WEIR_TRY(open_service(engine, error));
    const bool with_states = weir_plan_has_states(&engine->config, options->with_server);
    WEIR_TRY(open_sessions(engine, &spec, with_states, error));
    return with_states ? open_states(engine, error) : WEIR_OK;
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

static void describe(weir_model_facts *out, weir_engine *engine)
{
    const weir_model *const model = engine->model;
    const weir_shape *const shape = weir_model_shape(model);
    const int32_t           n_slots = (int32_t)engine->config.batch.max_sequences;
    enum { MORE_ROWS = 1024 };
    const weir_workspace_limits limits = { .rows = (int32_t)engine->config.batch.chunk + n_slots,
                                           .segments = n_slots,
                                           .logits = n_slots + weir_plan_scored_rows(model),
                                           .context = (int32_t)shape->context,
                                           .formats = engine->kv_formats };
    const weir_kv_spec          spec = kv_spec(engine);
    weir_workspace_limits       more = limits;
    more.rows += MORE_ROWS;
    name_model(engine);
    *out = (weir_model_facts){ .parameters = weir_model_parameters(model),
                               .trained_context = shape->context,
                               .n_layers = shape->n_layers,
                               .n_kv_layers = weir_model_kv_layers(model),
                               .n_heads = shape->n_heads,
                               .n_kv_heads = shape->n_kv_heads,
                               .key_dim = shape->head_dim,
                               .value_dim = shape->head_dim,
                               .d_model = shape->d_model,
                               .d_ffn = shape->d_ffn,
                               .n_vocab = shape->n_vocab,
                               .recurrent_bytes = (int64_t)weir_model_recurrent_bytes(model),
                               .weight_bytes = (int64_t)weir_model_weight_bytes(model),
                               .activation_bytes = (int64_t)weir_workspace_bytes(model, &limits),
                               .activation_row_bytes =
                                   (int64_t)(weir_workspace_bytes(model, &more) - weir_workspace_bytes(model, &limits)) / MORE_ROWS,
                               .kv_bytes_per_token = (int64_t)weir_kv_block_room(&spec) / WEIR_PAGE_TOKENS,
                               .kv_bytes_per_sink = (int64_t)weir_kv_sink_block_room(&spec) / WEIR_PAGE_TOKENS,
                               .sink_tokens = (int64_t)spec.sinks.n_pages * WEIR_PAGE_TOKENS,
                               .tied = weir_model_tied(model) };
    weir_kv_choice_print(out->kv_format, &engine->kv_choice);
    (void)snprintf(out->model, sizeof out->model, "%s", engine->plan.model);
    (void)snprintf(out->arch, sizeof out->arch, "%s", weir_model_arch(model));
}

weir_status weir_engine_describe(weir_model_facts *out, const weir_engine_options *options, weir_error *error)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    const weir_status status = prepare_model(engine, options, error);
    if (status == WEIR_OK) describe(out, engine);
    weir_engine_close(engine);
    return status;
}

void weir_engine_close(weir_engine *engine)
{
    if (engine == NULL) return;
    weir_states_close(engine->states);
    weir_sessions_close(engine->sessions);
    weir_service_close(engine->service);
    weir_runner_close(engine->runner);
    weir_kv_evictor_close(engine->evictor);
    weir_policies_close(&engine->policies);
    weir_prefix_close(engine->prefix);
    weir_kv_store_close(engine->store);
    weir_memory_give(engine->kv_formats);
    weir_chat_template_close(engine->chat);
    weir_tokenizer_close(engine->tokenizer);
    weir_model_close(engine->model);
    weir_stream_close(engine->stream);
    weir_tensor_directory_close(engine->adapter);
    weir_tensor_directory_close(engine->directory);
    weir_arch_set_close(engine->archs);
    const weir_account set_aside[] = { WEIR_ACCOUNT_PROCESS, WEIR_ACCOUNT_PACKS };
    for (size_t i = 0; engine->ledger != NULL && i < sizeof set_aside / sizeof set_aside[0]; i++)
        weir_ledger_return(engine->ledger, WEIR_TIER_HOST, set_aside[i], weir_ledger_used(engine->ledger, WEIR_TIER_HOST, set_aside[i]));
    weir_ledger_close(engine->ledger); /* last: it is paid back by all others */
    free(engine);
}

const weir_service_policy *weir_engine_policy(const weir_engine *engine)
{
    return weir_policies_are_there(&engine->policies) ? &engine->policies.service : NULL;
}

weir_status weir_engine_keep(const weir_engine *engine, weir_keeping **out, const weir_service_policy *policy, int32_t n_texts,
                             int32_t rows, int32_t n_prompt, int32_t n_new, weir_error *error)
{
    const weir_service_policy *const by = policy != NULL ? policy : &engine->policies.service;
    *out = NULL;
    if (weir_policy_is_full(&by->options)) return WEIR_OK;
    weir_keeping_options wish = weir_policies_wish(by, rows, n_prompt, n_new);
    wish.n_texts = n_texts;
    return weir_keeping_open(out, &wish, engine->ledger, error);
}

const weir_plan *weir_engine_plan_of(const weir_engine *engine) { return &engine->plan; }
weir_service    *weir_engine_service(const weir_engine *engine) { return engine->service; }
weir_states     *weir_engine_states(const weir_engine *engine) { return engine->states; }
weir_sessions   *weir_engine_carrier(const weir_engine *engine) { return engine->sessions; }
weir_sessions *weir_engine_sessions(const weir_engine *engine) { return engine->config.sessions.dir[0] != '\0' ? engine->sessions : NULL; }
const weir_tokenizer     *weir_engine_tokenizer(const weir_engine *engine) { return engine->tokenizer; }
const weir_chat_template *weir_engine_chat(const weir_engine *engine) { return engine->chat; }
const char               *weir_engine_chat_problem(const weir_engine *engine)
{
    return engine->chat_problem.text[0] != '\0' ? engine->chat_problem.text : NULL;
}
struct weir_model    *weir_engine_model(const weir_engine *engine) { return engine->model; }
struct weir_runner   *weir_engine_runner(const weir_engine *engine) { return engine->runner; }
struct weir_kv_store *weir_engine_store(const weir_engine *engine) { return engine->store; }
struct weir_ledger   *weir_engine_ledger(const weir_engine *engine) { return engine->ledger; }
struct weir_stream   *weir_engine_stream(const weir_engine *engine) { return engine->stream; }
