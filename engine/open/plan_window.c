/* engine/open/plan_window.c - plans the parts that depend on the window and the number of
 * sequences, except the KV pages: activations, tables, ids, requests. */
#include "engine/kv/prune/pruner.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/open/plan_internal.h"
#include "engine/schedule/mtp.h"

/* The most that requests can take within the limits of [server] and [batch], all at the same
 * time and with the largest bodies. */
static size_t most_requests(const weir_plan *plan, const weir_plan_parts *parts)
{
    enum { JOB_BYTES = 4 << 10, BODIES = 16 };
    const size_t jobs = (size_t)plan->facts.n_slots + (size_t)plan->facts.queue_limit;
    size_t bytes = jobs * ((size_t)plan->facts.window * sizeof(int32_t) + JOB_BYTES);
    if (!parts->with_server) return bytes;
    bytes += (size_t)parts->config->server.max_connections *
             weir_connection_bytes((size_t)parts->config->server.header_limit);
    return bytes + BODIES * (size_t)parts->config->server.body_limit;
}

/* A sixteenth is reserved for requests, at least what a few short ones take and at most what all
 * can. A request that does not fit is answered 503, so this affects service, not safety. */
static size_t set_aside(const weir_plan *plan, const weir_plan_parts *parts)
{
    enum { FEW_JOBS = 64 << 10, FEW_CONNECTIONS = 2 << 20 };
    if (!parts->with_service && !parts->with_server) return 0;
    const size_t most = most_requests(plan, parts),
                 few = parts->with_server ? FEW_CONNECTIONS : FEW_JOBS;
    size_t bytes = plan->cap / 16;
    if (bytes < few) bytes = few;
    return bytes < most ? bytes : most;
}

static size_t pruner_bytes(const weir_plan *plan, const weir_plan_parts *parts)
{
    weir_kv_spec seen = *parts->spec;
    seen.max_rows = plan->facts.window;
    return parts->with_service && !plan->has_device ? weir_pruner_bytes(&seen) : 0;
}

/* Policies are charged to requests: reserves memory for the configured one, for as many requests
 * as can run, and for one that has ended while a thread applies its policy. */
static weir_status plan_policy(weir_plan *plan, const weir_plan_parts *parts, weir_error *error)
{
    const int32_t rows = plan->facts.window > 0 ? plan->facts.window : WEIR_SMALLEST_WINDOW;
    plan->kv_peak = 0;
    plan->policy_state = 0;
    if (weir_policy_is_full(&parts->policies->service.options)) return WEIR_OK;
    /* The prompt may be as long as the window. */
    const weir_policy_run_options run = weir_policies_run_options(
        &parts->policies->service, rows, rows, (int32_t)parts->config->batch.chunk
    );
    weir_policy_run_size size;
    WEIR_TRY(weir_policy_run_measure(&size, &run, error));
    plan->kv_peak = size.peak;
    plan->policy_state = size.saved_bytes;
    plan->http += size.bytes * ((size_t)plan->facts.n_slots + (pruner_bytes(plan, parts) > 0));
    return WEIR_OK;
}

static weir_workspace_limits workspace_limits(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t chunk
)
{
    return (weir_workspace_limits
    ){ .rows = weir_plan_step_rows(
           parts->config, parts->model, chunk, plan->facts.n_slots, plan->has_device
       ),
       .segments = plan->facts.n_slots,
       .logits = plan->facts.n_slots + weir_plan_scored_rows(parts->model),
       .context = plan->facts.window,
       .formats = parts->spec->formats,
       .sinks = parts->spec->sinks,
       .has_cold = weir_kv_cold_pages(parts->spec) > 0,
       .evicts = parts->spec->evicts };
}

weir_runner_limits weir_plan_nested(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t chunk
)
{
    const int32_t n_slots = plan->facts.n_slots;
    if (!parts->with_service || plan->has_device || weir_kv_cold_pages(parts->spec) == 0 ||
        parts->spec->n_layers == 0)
        return (weir_runner_limits){ 0 };
    const int32_t busy = weir_service_busy_chunk(
        (int32_t)chunk, (int32_t)parts->config->batch.mixed_chunk,
        weir_model_block_rows(parts->model)
    );
    return (weir_runner_limits
    ){ .rows = weir_plan_step_rows(parts->config, parts->model, busy, n_slots, false),
       .items = n_slots,
       .logits = n_slots,
       .hot = (int32_t)parts->config->kv.tiers.hot,
       .is_nested = true };
}

/* Bytes of activations of that runner. */
static size_t nested_bytes(const weir_plan *plan, const weir_plan_parts *parts, int64_t chunk)
{
    const weir_runner_limits nested = weir_plan_nested(plan, parts, chunk);
    weir_workspace_limits limits = workspace_limits(plan, parts, chunk);
    if (nested.rows == 0) return 0;
    limits.rows = nested.rows;
    limits.logits = nested.logits;
    limits.has_cold = false;
    return weir_workspace_bytes(parts->model, &limits) +
           weir_workspace_near_bytes(parts->model, &limits);
}

weir_status weir_plan_activations(
    weir_plan *plan, const weir_plan_parts *parts, int64_t chunk, bool with_scratch,
    weir_error *error
)
{
    const weir_workspace_limits limits = workspace_limits(plan, parts, chunk);
    weir_kv_spec seen = *parts->spec;
    weir_stream_memory scratch = { 0 }, eviction = { 0 };
    seen.max_rows = plan->facts.window;
    if (with_scratch) WEIR_TRY(weir_workspace_scratch(&scratch, parts->model, &limits, error));
    if (with_scratch)
        WEIR_TRY(weir_kv_evictor_scratch_size(&eviction, &seen, parts->stream, error));
    const size_t staged = weir_kv_prefetch_device_bytes(&seen),
                 lists = weir_kv_prefetch_bytes(&seen, plan->facts.n_slots),
                 pruner = pruner_bytes(plan, parts);
    const size_t near = weir_workspace_near_bytes(parts->model, &limits) + staged +
                        weir_kv_evictor_near_bytes(&seen) +
                        weir_max_size(scratch.scratch, eviction.scratch) +
                        weir_max_size(scratch.device, eviction.device);
    const int32_t n_drafts = weir_plan_drafts(parts->config, parts->model, plan->has_device);
    plan->prefetch = staged + lists;
    plan->activations =
        weir_workspace_bytes(parts->model, &limits) + lists + nested_bytes(plan, parts, chunk) +
        (parts->with_service ? weir_service_draft_bytes(&plan->facts, n_drafts) +
                                   weir_mtp_bytes(parts->model, plan->facts.n_slots, limits.rows)
                             : 0) +
        weir_kv_evictor_bytes(&seen) + pruner + weir_max_size(scratch.host, eviction.host);
    *(plan->has_device ? &plan->near_activations : &plan->activations) =
        near + (plan->has_device ? 0 : plan->activations);
    return WEIR_OK;
}

/* What grows with the window besides the KV pages and the tables of sequences: the kernels'
 * scratch, ids. */
weir_status plan_window(
    weir_plan *plan, const weir_plan_parts *parts, bool with_scratch, weir_error *error
)
{
    const size_t n_sequences = (size_t)(plan->facts.n_slots + plan_session_sequences(parts));
    const weir_workspace_limits limits = workspace_limits(plan, parts, parts->config->batch.chunk);
    const weir_runner_limits steps = { .rows = limits.rows,
                                       .items = limits.segments,
                                       .logits = limits.logits };
    const weir_runner_limits nested = weir_plan_nested(plan, parts, parts->config->batch.chunk);
    WEIR_TRY(weir_plan_activations(plan, parts, parts->config->batch.chunk, with_scratch, error));
    plan->tokens = n_sequences * weir_kv_sequence_token_bytes(plan->facts.window) +
                   weir_runner_bytes(&steps) + weir_service_bytes(plan->facts.n_slots) +
                   (nested.rows > 0 ? weir_runner_bytes(&nested) : 0);
    if (weir_plan_has_sessions(parts->config, parts->with_service) &&
        parts->config->sessions.autosave)
        plan->tokens +=
            weir_sessions_saver_bytes((int32_t)parts->config->sessions.limit, parts->spec);
    plan->page_tables =
        n_sequences * weir_kv_table_metadata_bytes(parts->spec) +
        (plan_reuses(parts) ? weir_prefix_tree_bytes(&(weir_prefix_limits){ 0 }, parts->spec) : 0);
    plan->http = set_aside(plan, parts);
    return plan_policy(plan, parts, error);
}
