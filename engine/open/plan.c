/* engine/open/plan.c - the memory plan: computes the size of every part, and gives the rest to KV
 * pages. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/processors.h"
#include "engine/formats/printable.h"
#include "engine/open/plan_internal.h"
#include "engine/schedule/tiers.h"

/* Memory of a server that no account is charged for: code and libraries (14 MiB resident), slack of
 * allocators, sockets, oneDNN's code, stacks. Measured with 16 clients on the demo model: 21 MiB
 * above the ledger; threads: docs/decisions/0048. */
enum { PROCESS_BYTES = 30 << 20, THREAD_BYTES = 128 << 10, COMPUTING_THREAD_BYTES = 512 << 10 };

/* For the threads whose number is configured. */
static void plan_process(weir_plan *plan, const weir_plan_parts *parts)
{
    if (!parts->with_server) return;
    const int32_t n_others = weir_request_threads(parts->config->server.workers) +
                             weir_plan_session_transfers(parts),
                  n_computing = weir_stream_threads(parts->stream);
    plan->n_threads = n_others + n_computing;
    plan->process = PROCESS_BYTES + (size_t)n_others * THREAD_BYTES +
                    (size_t)n_computing * COMPUTING_THREAD_BYTES;
}

/* With a lower tier, memory must hold the least that running sequences need, unless it holds all
 * that they can have, and what a policy needs. */
static weir_status check_tiers(
    const weir_plan *plan, const weir_plan_parts *parts, weir_error *error
)
{
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1), hot = parts->config->kv.tiers.hot,
                  rows = parts->config->batch.chunk;
    const int64_t cold = plan->facts.kv_pages.n_disk + plan->facts.kv_pages.n_host;
    if (cold == 0) return WEIR_OK;
    const int64_t blocks =
        (plan->facts.kv_pages.n - cold - plan->facts.kv_pages.n_sinks) / per_block;
    const int32_t sequences =
        plan->facts.n_slots +
        weir_plan_session_transfers(parts); /* a save under memory pressure can be stopped */
    const int64_t end = (plan->facts.window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                  full = weir_kv_pages_blocks(parts->spec, weir_kv_pages_of(parts->spec, 0, end)) *
                         plan->facts.n_slots;
    const int64_t needed = weir_tiers_needed_blocks(sequences, rows, hot, full);
    const char *const tier = plan->has_device ? "device" : "host";
    if (blocks >= needed) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFULL,
        "the plan does not fit: memory.%s leaves room for %" PRId64
        " blocks of 64 tokens (%zu bytes each, %.1f MiB of %.1f MiB), and %d "
        "sequences with a lower tier need %" PRId64 ": for each its first block, %" PRId64
        " hot ones (kv.tiers.hot) and 2 in use, plus %" PRId64
        " for a piece of prompt; raise memory.%s, or lower batch.max_sequences, batch.chunk or "
        "kv.tiers.hot",
        tier, blocks, weir_kv_block_stride(parts->spec), (double)plan->kv / 1048576.0,
        (double)(plan->has_device ? plan->device_cap : plan->cap) / 1048576.0, (int)sequences,
        needed, hot, rows / WEIR_PAGE_TOKENS + 1, tier
    );
}

static void describe_device(weir_plan *plan, const weir_plan_parts *parts)
{
    const weir_device *const device = parts->device;
    (void)snprintf(
        plan->device, sizeof plan->device, "%s", device != NULL ? weir_device_name(device) : "cpu"
    );
    (void)snprintf(
        plan->device_title, sizeof plan->device_title, "%s",
        device != NULL ? weir_device_title(device) : ""
    );
    (void)snprintf(
        plan->device_why, sizeof plan->device_why, "%s",
        device == NULL && parts->device_why != NULL ? parts->device_why : ""
    );
}

/* A budget below 64 tokens would refuse every request. */
static weir_status check_budget(
    int64_t budget, const char *key, const weir_kv_spec *spec, weir_error *error
)
{
    const int64_t least_bytes =
        (int64_t)(weir_kv_blocks_bytes(spec, 1) + weir_kv_unsealed_rows_bytes(spec));
    if (budget == 0 || budget >= least_bytes) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "%s = %" PRId64 "B: 64 tokens take %" PRId64 " bytes of KV; raise it, or 0B for no budget",
        key, budget, least_bytes
    );
}

static weir_status check_budgets(
    const weir_plan *plan, const weir_plan_parts *parts, weir_error *error
)
{
    WEIR_TRY(check_budget(plan->facts.kv_per_request, "server.kv_per_request", parts->spec, error));
    return check_budget(plan->facts.kv_per_key, "server.kv_per_key", parts->spec, error);
}

weir_status weir_plan_make(weir_plan *plan, const weir_plan_parts *parts, weir_error *error)
{
    const weir_config *const config = parts->config;
    const int64_t wanted = weir_plan_context(config, parts->model);
    *plan = (weir_plan){ .cap = parts->cap,
                         .has_device = parts->device != NULL,
                         .device_cap = parts->device_cap,
                         .cap_is_configured = config->memory.host > 0,
                         .tokenizer = parts->tokenizer,
                         .packs = parts->packs,
                         .other = parts->other,
                         .disk_cap = (size_t)config->memory.disk,
                         .disk_is_shared = weir_plan_has_sessions(config, parts->with_service) };
    weir_plan_describe(&plan->facts, parts);
    plan->skips_images = weir_model_skips_images(parts->model);
    const char *unused = "";
    plan->n_unused = weir_model_unused(parts->model, &unused, 1);
    (void)weir_printable(plan->first_unused, sizeof plan->first_unused, unused, strlen(unused));
    plan_process(plan, parts);
    plan->weights = (size_t)plan->facts.weight_bytes;
    plan->recurrent = (size_t)plan->facts.recurrent_bytes * (size_t)plan->facts.n_slots;
    plan->sampler = weir_service_sampler_bytes(plan->facts.n_samplers, (size_t)plan->facts.n_vocab);
    describe_device(plan, parts);
    WEIR_TRY(check_budgets(plan, parts, error));

    /* Some parts grow with the window and so reduce it. The first window is found without them,
     * the second with what the first would need; it is smaller, needs less, and so fits. */
    WEIR_TRY(plan_window(plan, parts, false, error));
    if (!plan_rows(plan, parts, wanted)) return weir_plan_too_small(plan, error);
    WEIR_TRY(plan_window(plan, parts, true, error));
    if (!plan_rows(plan, parts, wanted) ||
        (config->model.context > 0 && plan->facts.window < config->model.context))
        return weir_plan_too_small(plan, error);
    WEIR_TRY(check_tiers(plan, parts, error));
    size_t metadata = plan_metadata_bytes(
        parts, plan->facts.kv_pages.n, plan->facts.kv_pages.n_disk + plan->facts.kv_pages.n_host,
        plan->facts.kv_pages.n_sinks
    );
    plan->n_runs = plan_runs_for(plan, parts, plan->facts.kv_pages.n, plan->facts.window);
    if (weir_kv_pages_for(parts->spec, 1) == 0) metadata += plan_run_bytes(parts, plan->n_runs);
    metadata += plan_cold_state_bytes(plan, parts) + plan_window_metadata_bytes(plan, parts);
    WEIR_TRY(plan_window(plan, parts, true, error));
    plan->tables = plan_table_bytes(plan, parts); /* the window may have become smaller */
    plan->page_tables += metadata + plan->tables;
    const bool fits =
        weir_plan_total(plan) <= plan->cap && weir_plan_device_total(plan) <= plan->device_cap;
    return fits ? WEIR_OK : weir_plan_too_small(plan, error);
}
