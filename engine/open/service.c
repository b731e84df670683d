/* engine/open/service.c - opens the scheduler's service with its prefix cache, sessions and
 * states. */
#include <string.h>

#include "engine/open/engine_internal.h"
#include "engine/session/state_service.h"

weir_identity_parts weir_engine_identity(const weir_engine *engine, const weir_kv_spec *spec)
{
    return (weir_identity_parts){ .config = &engine->config,
                                  .directory = engine->directory,
                                  .adapter = engine->adapter,
                                  .model = engine->model,
                                  .tokenizer = engine->tokenizer,
                                  .spec = spec,
                                  .formats = &engine->kv_choice,
                                  .stream = engine->stream,
                                  .f32_activations = engine->f32_activations };
}

weir_status weir_engine_open_service(weir_engine *engine, weir_error *error)
{
    weir_service_parts parts = {
        .runner = engine->runner,
        .nested = engine->nested,
        .store = engine->store,
        .ledger = engine->ledger,
        .pruner = engine->pruner,
        .chunk = (int32_t)engine->config.batch.chunk,
        .mixed_chunk = (int32_t)engine->config.batch.mixed_chunk,
        .step_rows = (int32_t)engine->config.batch.tokens,
        .long_prompt = (int32_t)engine->config.batch.long_prompt,
        .n_drafts = weir_plan_drafts(&engine->config, engine->model, engine->plan.has_device),
        .draft_match = (int32_t)engine->config.speculation.match,
        .policy = weir_policies_are_there(&engine->policies) ? &engine->policies.service : NULL,
        .facts = &engine->plan.facts,
    };
    if (strcmp(engine->config.kv.reuse, "on") == 0) {
        const weir_prefix_limits limits = {
            .n_nodes = engine->plan.n_runs,
            .n_snapshots = engine->plan.n_snapshots,
            .snapshot_bytes = weir_model_recurrent_bytes(engine->model),
            .n_pruned = engine->plan.n_pruned,
            .pruned_bytes = engine->plan.pruned_bytes,
            .n_cold = engine->plan.n_cold_states,
            .disk_folder = weir_engine_disk_folder(&engine->config),
            .n_cold_windows = (int32_t)engine->plan.facts.n_cold_windows,
            .window_bytes = weir_kv_windows_block_bytes(&weir_kv_store_spec(engine->store)->windows)
        };
        WEIR_TRY(weir_prefix_open(&engine->prefix, engine->store, engine->ledger, &limits, error));
        parts.prefix = engine->prefix;
    }
    if (engine->tokenizer != NULL)
        parts.stop_ids = weir_tokenizer_stop_ids(engine->tokenizer, &parts.n_stop_ids);
    WEIR_TRY(weir_service_open(&engine->service, &parts, error));
    return weir_service_start(engine->service, error);
}

weir_status weir_engine_open_sessions(
    weir_engine *engine, const weir_kv_spec *spec, bool needs_one, weir_error *error
)
{
    const bool has_folder = weir_plan_has_sessions(&engine->config, true);
    if (!has_folder && !needs_one) return WEIR_OK;
    const weir_identity_parts parts = weir_engine_identity(engine, spec);
    const int32_t share =
        engine->plan.n_snapshots / 4; /* a session must not displace the states of all others */
    weir_sessions_options options = {
        .folder = has_folder                             ? engine->config.sessions.dir
                  : engine->config.states.dir[0] != '\0' ? engine->config.states.dir
                                                         : NULL,
        .service = engine->service,
        .limit = (int32_t)engine->config.sessions.limit,
        .disk = engine->config.memory.disk - (int64_t)engine->plan.kv_disk,
        .saves_unasked = has_folder && engine->config.sessions.autosave,
        .n_threads = engine->with_server ? (int)engine->config.sessions.io_threads : 0,
        .n_states = share > 1 ? share : 1
    };
    WEIR_TRY(weir_identity_of(&options.identity, &parts, error));
    return weir_sessions_open(&engine->sessions, &options, error);
}

weir_status weir_engine_open_states(weir_engine *engine, weir_error *error)
{
    const uint64_t *const model = weir_sessions_identity_of(engine->sessions)->model;
    const weir_states_options options = { .folder = engine->config.states.dir,
                                          .model = model,
                                          .writes = true,
                                          .tracker = &engine->states_budget.tracker,
                                          .disk = engine->config.states.disk };
    const weir_states_kind kind = { .model = { model[0], model[1] },
                                    .dim = (int32_t)weir_model_shape(engine->model)->d_model,
                                    .embedding = WEIR_STATE_SERVICE_EMBEDDING };
    weir_memory_budget_init(&engine->states_budget, (size_t)engine->config.states.memory);
    weir_status status = weir_states_open(&engine->states, &options, error);
    if (status == WEIR_ENOTFOUND) {
        WEIR_TRY(weir_states_create(engine->config.states.dir, &kind, error));
        status = weir_states_open(&engine->states, &options, error);
    }
    if (status != WEIR_ENOMEM) return status;
    return weir_error_prefix(
        error, WEIR_EFULL, "states.memory = %lldB is too little",
        (long long)engine->config.states.memory
    );
}

int32_t weir_engine_restore_sessions(weir_engine *engine)
{
    return weir_engine_sessions(engine) != NULL && engine->config.sessions.autosave
               ? weir_sessions_restore_recent(engine->sessions)
               : 0;
}

int32_t weir_engine_save_sessions(weir_engine *engine)
{
    return weir_engine_sessions(engine) != NULL && engine->config.sessions.autosave
               ? weir_sessions_save_recent(engine->sessions)
               : 0;
}
