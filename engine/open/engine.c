/* engine/open/engine.c - opens the parts in order and closes them in reverse: files, architecture,
 * weights, KV store, text, service. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/engine_parts.h"
#include "engine/open/engine_internal.h"

/* Pages that fit in this many bytes of a lower tier; *n stays 0 if none are configured. */
static weir_status count_cold(
    int64_t *n, const weir_kv_spec *spec, int64_t bytes, const char *key, bool may_be_none,
    weir_error *error
)
{
    const int64_t block = (int64_t)weir_kv_block_stride(spec),
                  per_block = weir_kv_pages_for(spec, 1), most = INT32_MAX / 2 / per_block;
    *n = (bytes / block < most ? bytes / block : most) * per_block;
    if (*n > 0 || bytes == 0 || may_be_none) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFULL,
        "%s = %lldB holds no KV pages: those of 64 tokens take %lld bytes there; "
        "raise it, or set it to 0",
        key, (long long)bytes, (long long)block
    );
}

/* Pages that fit in the lower tiers; if sessions are saved, they get the other half of memory.disk.
 * Pages are larger with a lower tier than without. None if all tokens of all sequences are sinks:
 * those stay in memory. */
static weir_status plan_cold(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    const bool shares = weir_plan_has_sessions(&engine->config, options->with_service);
    const int64_t disk = engine->config.memory.disk / (shares ? 2 : 1),
                  host = spec->has_device ? engine->config.kv.tiers.host : 0;
    const bool are_all_sinks = spec->sinks.n_pages * (int64_t)WEIR_PAGE_TOKENS >=
                               weir_plan_context(&engine->config, engine->model);
    int64_t n_disk, n_host;
    if (engine->config.kv.tiers.host > 0 && !spec->has_device)
        weir_log(
            WEIR_LOG_WARNING,
            "kv.tiers.host is for KV pages of a GPU; the CPU is used, and keeps them in memory.host"
        );
    if ((disk == 0 && host == 0) || weir_kv_pages_for(spec, 1) == 0 || are_all_sinks)
        return WEIR_OK;
    spec->pages.n_disk = weir_kv_pages_for(spec, 1); /* any number: page sizes are rounded now */
    WEIR_TRY(count_cold(&n_disk, spec, disk, "memory.disk", shares, error));
    WEIR_TRY(count_cold(&n_host, spec, host, "kv.tiers.host", false, error));
    spec->pages.n_disk = n_disk;
    spec->pages.n_host = n_host;
    return WEIR_OK;
}

/* memory.disk_dir, or a folder that usually has space; not /tmp, which may be in memory. */
const char *weir_engine_disk_folder(const weir_config *config)
{
    const char *const temporary = getenv("TMPDIR");
    if (config->memory.disk_dir[0] != '\0') return config->memory.disk_dir;
    if (config->sessions.dir[0] != '\0') return config->sessions.dir;
    return temporary != NULL && temporary[0] != '\0' ? temporary : "/var/tmp";
}

/* The layers that drop rows come after the others. */
static weir_kv_windows_spec windows_spec(const weir_engine *engine)
{
    const int64_t n_layers = weir_model_kv_layers(engine->model);
    const weir_kv_geometry *const geometry = weir_model_kv_geometry(engine->model);
    if (weir_model_window_layers(engine->model) == 0) return (weir_kv_windows_spec){ 0 };
    return (weir_kv_windows_spec){
        .n_layers = weir_model_window_layers(engine->model),
        .geometry = geometry + n_layers,
        .formats = engine->kv_formats + n_layers,
        .step_rows = weir_plan_step_rows(
            &engine->config, engine->model, engine->config.batch.chunk,
            (int32_t)engine->config.batch.max_sequences, engine->device != NULL
        ),
    };
}

static weir_kv_spec kv_spec(const weir_engine *engine)
{
    const int64_t n_layers = weir_model_kv_layers(engine->model);
    return (weir_kv_spec){ .n_layers = n_layers,
                           .windows = windows_spec(engine),
                           .geometry = weir_model_kv_geometry(engine->model),
                           .formats = engine->kv_formats,
                           .sinks = weir_kv_choice_sinks(&engine->kv_choice, n_layers),
                           .disk_folder = weir_engine_disk_folder(&engine->config),
                           .has_device = engine->device != NULL };
}

weir_status weir_engine_read(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    WEIR_TRY(weir_engine_open_model(engine, options, error));
    WEIR_TRY(weir_engine_open_text(engine, error));
    return weir_engine_lay_out(engine, options, spec, error);
}

/* The KV memory but for its size, and the policies, which depend on its layers. */
static weir_status lay_out_kv(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    *spec = kv_spec(engine);
    WEIR_TRY(plan_cold(engine, options, spec, error));
    const weir_identity_parts identity = weir_engine_identity(engine, spec);
    WEIR_TRY(weir_policies_open(&engine->policies, &identity, error));
    spec->evicts = weir_policies_are_there(&engine->policies);
    engine->policies.service.shape.hides_mass =
        !weir_model_shows_mass(engine->model, spec->formats, spec->sinks);
    return WEIR_OK;
}

weir_status weir_engine_lay_out(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    if (weir_plan_has_states(&engine->config, options->with_server))
        WEIR_TRY(weir_ledger_reserve(
            engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PACKS,
            (size_t)engine->config.states.memory, error
        ));
    return lay_out_kv(engine, options, spec, error);
}

weir_plan_parts weir_engine_plan_parts(
    const weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec
)
{
    const weir_ledger *const ledger = engine->ledger;
    const weir_tier host = WEIR_TIER_HOST;
    return (weir_plan_parts){ .config = &engine->config,
                              .path = weir_tensor_directory_path(engine->directory),
                              .model = engine->model,
                              .n_valid_vocab = engine->tokenizer != NULL
                                                   ? (int32_t)weir_tokenizer_size(engine->tokenizer)
                                                   : 0,
                              .pooling = engine->pooling,
                              .ranking = engine->ranking,
                              .stream = engine->stream,
                              .spec = spec,
                              .formats = &engine->kv_choice,
                              .policies = &engine->policies,
                              .cap = weir_ledger_cap(ledger, host),
                              .device_cap = weir_ledger_cap(ledger, WEIR_TIER_DEVICE),
                              .device = engine->device,
                              .device_why = engine->device_why,
                              .tokenizer = weir_ledger_used(ledger, host, WEIR_ACCOUNT_TOKENIZER),
                              .packs = weir_ledger_used(ledger, host, WEIR_ACCOUNT_PACKS),
                              .other = weir_ledger_used(ledger, host, WEIR_ACCOUNT_OTHER),
                              .with_service = options->with_service,
                              .with_files = engine->with_files,
                              .with_server = options->with_server };
}

/* True if the other layers have room for no fewer tokens than if all layers shared the memory of
 * the windows, or for all sequences. */
static bool are_windows_worth_it(const weir_plan *plan, const weir_kv_spec *spec)
{
    const size_t main = weir_kv_block_stride(spec),
                 window = weir_kv_windows_block_bytes(&spec->windows);
    return plan->kv_rows >= (int64_t)plan->facts.window * plan->facts.n_slots || main == 0 ||
           plan->kv / main >= (plan->kv + plan->kv_windows) / (main + window);
}

/* There is memory for the windows of all sequences at once. If that is too much, all rows of fewer
 * sequences may fit. */
static weir_status make_plan(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    weir_error ignored = { 0 };
    weir_plan_parts parts = weir_engine_plan_parts(engine, options, spec);
    const weir_status status =
        weir_plan_make(&engine->plan, &parts, spec->windows.n_layers > 0 ? &ignored : error);
    if (spec->windows.n_layers == 0 ||
        (status == WEIR_OK && are_windows_worth_it(&engine->plan, spec)))
        return status;
    if (status != WEIR_OK && status != WEIR_EFULL)
        return weir_error_set(error, status, "%s", ignored.text);
    weir_log(
        WEIR_LOG_INFO,
        "layers with a sliding window keep all rows, as with kv.full_windows: the windows of "
        "%" PRId64 " sequences take too much of the memory; lower batch.max_sequences",
        engine->config.batch.max_sequences
    );
    WEIR_TRY(weir_engine_keep_windows(engine, error));
    weir_policies_close(&engine->policies);
    WEIR_TRY(lay_out_kv(engine, options, spec, error));
    parts = weir_engine_plan_parts(engine, options, spec);
    return weir_plan_make(&engine->plan, &parts, error);
}

/* True if the draft head takes no context, or little: an eighth of the KV pages. */
static bool has_room_for_head(const weir_engine *engine)
{
    const weir_engine_facts *const facts = &engine->plan.facts;
    return facts->window >= weir_plan_context(&engine->config, engine->model) ||
           facts->mtp_bytes + facts->mtp_row_bytes <= (int64_t)(engine->plan.kv / 8);
}

/* Without the draft head where it does not fit, unless it is asked for. */
static weir_status make_plan_with_head(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    weir_error ignored = { 0 };
    const bool full_windows = engine->config.kv.full_windows;
    const bool may_drop = weir_model_mtp_bytes(engine->model) > 0 &&
                          strcmp(engine->config.speculation.mtp, "auto") == 0;
    const weir_status status = make_plan(engine, options, spec, may_drop ? &ignored : error);
    if (!may_drop || (status == WEIR_OK && has_room_for_head(engine))) return status;
    if (status != WEIR_OK && status != WEIR_EFULL)
        return weir_error_set(error, status, "%s", ignored.text);
    weir_log(WEIR_LOG_INFO, "the model's draft head is not loaded: it does not fit in memory");
    engine->config.kv.full_windows = full_windows;
    WEIR_TRY(weir_engine_drop_mtp(engine, error));
    weir_policies_close(&engine->policies);
    WEIR_TRY(lay_out_kv(engine, options, spec, error));
    return make_plan(engine, options, spec, error);
}

/* Reads headers, architecture and tokenizer, and plans; no more. *spec has no sizes of the plan. */
static weir_status prepare(
    weir_engine *engine, const weir_engine_options *options, weir_kv_spec *spec, weir_error *error
)
{
    weir_engine_warn_of_limit(options->config);
    weir_status status = weir_engine_read(engine, options, spec, error);
    if (status != WEIR_OK) return weir_plan_read_least(options, engine->with_files, status, error);
    status = make_plan_with_head(engine, options, spec, error);
    if (status != WEIR_OK) return weir_plan_say_least(engine, options, spec, status, error);
    engine->plan.f32_activations = engine->f32_activations;
    return WEIR_OK;
}

static weir_status open_evictor(weir_engine *engine, const weir_kv_spec *spec, weir_error *error)
{
    if (!weir_policies_are_there(&engine->policies)) return WEIR_OK;
    const weir_identity_parts identity = weir_engine_identity(engine, spec);
    WEIR_TRY(weir_policies_identify(&engine->policies, &identity, error));
    weir_policies_set_rope(&engine->policies, engine->model);
    WEIR_TRY(
        weir_kv_evictor_open(&engine->evictor, engine->store, engine->stream, engine->ledger, error)
    );
    weir_runner_evict_with(engine->runner, engine->evictor);
    return WEIR_OK;
}

/* A thread reads what a policy needs from disk, while steps go on. */
static weir_status open_pruner(weir_engine *engine, weir_error *error)
{
    if (engine->device != NULL || weir_pruner_bytes(weir_kv_store_spec(engine->store)) == 0)
        return WEIR_OK;
    WEIR_TRY(weir_engine_open_stream(&engine->pruner_stream, &engine->config, 1, NULL, error));
    return weir_pruner_open(
        &engine->pruner, engine->store, engine->pruner_stream, engine->ledger, error
    );
}

static weir_status open_nested(
    weir_engine *engine, const weir_engine_options *options, const weir_kv_spec *spec,
    weir_error *error
)
{
    const weir_plan_parts parts = weir_engine_plan_parts(engine, options, spec);
    const weir_runner_limits limits =
        weir_plan_nested(&engine->plan, &parts, engine->config.batch.chunk);
    if (limits.rows == 0) return WEIR_OK;
    WEIR_TRY(weir_runner_open(&engine->nested, engine->model, engine->ledger, spec, &limits, error)
    );
    weir_runner_evict_with(engine->nested, engine->evictor);
    return WEIR_OK;
}

static weir_status open_all(
    weir_engine *engine, const weir_engine_options *options, weir_error *error
)
{
    weir_kv_spec spec = { 0 };
    WEIR_TRY(prepare(engine, options, &spec, error));
    spec.pages = engine->plan.facts.kv_pages;
    spec.max_rows = spec.windows.max_rows = engine->plan.facts.window;
    spec.windows.n_blocks = engine->plan.facts.n_window_blocks;
    spec.table_bytes = engine->plan.tables;
    weir_engine_warn(engine);
    WEIR_TRY(weir_ledger_reserve(
        engine->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PROCESS, engine->plan.process, error
    ));
    WEIR_TRY(weir_model_load(engine->model, engine->ledger, options->progress, options->user, error)
    );
    /* A failure is noticed when a file is opened in it. */
    if (spec.pages.n_disk > 0 && spec.disk_folder != NULL) (void)mkdir(spec.disk_folder, 0700);
    WEIR_TRY(weir_kv_store_open(&engine->store, &spec, engine->ledger, error));
    const weir_runner_limits limits = {
        .rows = weir_plan_step_rows(
            &engine->config, engine->model, engine->config.batch.chunk, engine->plan.facts.n_slots,
            engine->plan.has_device
        ),
        .items = engine->plan.facts.n_slots,
        .logits = engine->plan.facts.n_slots + weir_plan_scored_rows(engine->model),
        .hot = (int32_t)engine->config.kv.tiers.hot
    };
    WEIR_TRY(weir_runner_open(&engine->runner, engine->model, engine->ledger, &spec, &limits, error)
    );
    WEIR_TRY(open_evictor(engine, &spec, error));
    if (!options->with_service) return WEIR_OK;
    WEIR_TRY(open_pruner(engine, error));
    WEIR_TRY(open_nested(engine, options, &spec, error));
    WEIR_TRY(weir_engine_open_service(engine, error));
    const bool with_states = weir_plan_has_states(&engine->config, options->with_server);
    const bool needs_sessions =
        with_states || weir_plan_has_files(&engine->config, engine->with_files);
    WEIR_TRY(weir_engine_open_sessions(engine, &spec, needs_sessions, error));
    return with_states ? weir_engine_open_states(engine, error) : WEIR_OK;
}

static weir_status open_engine(
    weir_engine **out, const weir_engine_options *options, bool with_files, weir_error *error
)
{
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    engine->with_server = options->with_server;
    engine->with_files = with_files;
    const weir_status status = open_all(engine, options, error);
    if (status != WEIR_OK)
        weir_engine_close(engine);
    else
        *out = engine;
    return status;
}

weir_status weir_engine_open_with(
    weir_engine **out, const weir_engine_options *options, weir_error *error
)
{
    return open_engine(out, options, false, error);
}

weir_status weir_engine_open_with_files(
    weir_engine **out, const weir_engine_options *options, weir_error *error
)
{
    return open_engine(out, options, options->with_service, error);
}

static weir_status plan_only(
    weir_plan *out, const weir_engine_options *options, bool with_least, weir_error *error
)
{
    weir_kv_spec spec;
    weir_engine *const engine = calloc(1, sizeof *engine);
    if (engine == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the engine");
    const weir_status status = prepare(engine, options, &spec, error);
    if (status == WEIR_OK) *out = engine->plan;
    if (status == WEIR_OK && with_least) {
        out->least = weir_plan_least(engine, options, &spec);
        out->least_varies = spec.windows.n_layers > 0 || out->facts.mtp_bytes > 0;
    }
    weir_engine_close(engine);
    return status;
}

weir_status weir_engine_plan(weir_plan *out, const weir_engine_options *options, weir_error *error)
{
    return plan_only(out, options, false, error);
}

weir_status weir_engine_plan_least(
    weir_plan *out, const weir_engine_options *options, weir_error *error
)
{
    return plan_only(out, options, true, error);
}

void weir_engine_close(weir_engine *engine)
{
    if (engine == NULL) return;
    weir_states_close(engine->states);
    weir_sessions_close(engine->sessions);
    weir_service_close(engine->service);
    weir_runner_close(engine->nested);
    weir_runner_close(engine->runner);
    weir_pruner_close(engine->pruner);
    weir_stream_close(engine->pruner_stream);
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
        weir_ledger_return(
            engine->ledger, WEIR_TIER_HOST, set_aside[i],
            weir_ledger_used(engine->ledger, WEIR_TIER_HOST, set_aside[i])
        );
    weir_ledger_close(engine->ledger); /* last: all others return their memory to it */
    weir_device_close(engine->device); /* only then the device, which holds that memory */
    free(engine);
}

const weir_service_policy *weir_engine_policy(const weir_engine *engine)
{
    return weir_policies_are_there(&engine->policies) ? &engine->policies.service : NULL;
}

weir_status weir_engine_policy_run_open(
    const weir_engine *engine, weir_policy_run **out, const weir_service_policy *policy,
    int32_t n_sequences, int32_t rows, int32_t n_prompt, int32_t n_new, weir_error *error
)
{
    const weir_service_policy *const by = policy != NULL ? policy : &engine->policies.service;
    *out = NULL;
    if (weir_policy_is_full(&by->options)) return WEIR_OK;
    weir_policy_run_options run = weir_policies_run_options(by, rows, n_prompt, n_new);
    run.n_sequences = n_sequences;
    return weir_policy_run_open(out, &run, engine->ledger, error);
}

const weir_config *weir_engine_config(const weir_engine *engine) { return &engine->config; }
const weir_plan *weir_engine_plan_of(const weir_engine *engine) { return &engine->plan; }
weir_service *weir_engine_service(const weir_engine *engine) { return engine->service; }
weir_states *weir_engine_states(const weir_engine *engine) { return engine->states; }
weir_sessions *weir_engine_state_sessions(const weir_engine *engine) { return engine->sessions; }
weir_sessions *weir_engine_sessions(const weir_engine *engine)
{
    return engine->config.sessions.dir[0] != '\0' ? engine->sessions : NULL;
}
const weir_tokenizer *weir_engine_tokenizer(const weir_engine *engine) { return engine->tokenizer; }
const weir_chat_template *weir_engine_chat(const weir_engine *engine) { return engine->chat; }
const char *weir_engine_chat_problem(const weir_engine *engine)
{
    return engine->chat_problem.text[0] != '\0' ? engine->chat_problem.text : NULL;
}
struct weir_model *weir_engine_model(const weir_engine *engine) { return engine->model; }
struct weir_runner *weir_engine_runner(const weir_engine *engine) { return engine->runner; }
struct weir_kv_store *weir_engine_store(const weir_engine *engine) { return engine->store; }
struct weir_prefix *weir_engine_prefix(const weir_engine *engine) { return engine->prefix; }
struct weir_ledger *weir_engine_ledger(const weir_engine *engine) { return engine->ledger; }
struct weir_stream *weir_engine_stream(const weir_engine *engine) { return engine->stream; }
