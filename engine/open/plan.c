/* engine/open/plan.c - the memory plan: what every part takes, and what that leaves for KV pages. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/machine_memory.h"
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/open/engine_internal.h"
#include "engine/schedule/tiers.h"

enum {
    SNAPSHOTS_PER_SLOT = 16,
    BLOCKS_PER_TEXT = 32 /* a kept text's sinks for every so many blocks */
};
/* What a server takes that nobody charges: code and libraries (14 MiB resident), stacks, the
 * allocator's slack, sockets, oneDNN's code. With 16 clients a server on the demo model held 21 MiB
 * more than its ledger. */
enum { PROCESS_BYTES = 32 << 20 };
/* Below this many bytes of f32 weights a step is not bound by reading them, and exact activations
 * cost nothing that is felt. */
static const int64_t small_model_bytes = 64 << 20;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

size_t weir_plan_cap(const weir_config *config)
{
    if (config->memory.host > 0) return (size_t)config->memory.host;
    const size_t free = weir_machine_memory("") / 10 * 9;
    return free > 0 ? free : 1;
}

size_t weir_plan_device_cap(const weir_config *config, const weir_device *device)
{
    if (device == NULL) return 0;
    const size_t found = weir_device_memory_bytes(device) / 10 * 9;
    return config->memory.device > 0 ? (size_t)config->memory.device : found > 0 ? found : 1;
}

int64_t weir_plan_context(const weir_config *config, const weir_model *model)
{
    return config->model.context > 0 ? config->model.context : weir_model_shape(model)->context;
}

bool weir_plan_wants_f32(const weir_config *config, const weir_tensor_directory *directory)
{
    if (strcmp(config->kernels.activations, "f32") == 0) return true;
    if (strcmp(config->kernels.activations, "fast") == 0) return false;
    int64_t elements = 0;
    for (size_t i = 0; i < weir_tensor_directory_count(directory); i++) {
        const weir_tensor *const tensor = weir_tensor_directory_at(directory, i);
        int64_t count = 1;
        for (int d = 0; d < tensor->n_dims; d++) count *= tensor->shape[d];
        elements += count;
    }
    return elements * (int64_t)sizeof(float) <= small_model_bytes;
}

/* What the limits of [server] and [batch] let requests take at the same time, should all come at
 * once with the largest bodies. */
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

/* A sixteenth is set aside for requests, at least what a few short ones take and at most what they
 * can. One that finds no room is answered 503, so this is a matter of service, not of safety. */
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

bool weir_plan_has_sessions(const weir_config *config, bool with_service)
{
    return with_service && config->sessions.dir[0] != '\0' && strcmp(config->kv.reuse, "on") == 0;
}

bool weir_plan_has_files(const weir_config *config, bool with_files)
{
    return with_files && strcmp(config->kv.reuse, "on") == 0;
}

bool weir_plan_has_states(const weir_config *config, bool with_server)
{
    return with_server && config->states.dir[0] != '\0' && strcmp(config->kv.reuse, "on") == 0;
}

/* Sessions and states go through one sequence, texts that are saved under pressure through
 * another. */
static int32_t session_sequences(const weir_plan_parts *parts)
{
    if (weir_plan_has_sessions(parts->config, parts->with_service))
        return parts->config->sessions.autosave ? 2 : 1;
    return weir_plan_has_states(parts->config, parts->with_server) ||
           weir_plan_has_files(parts->config, parts->with_files);
}

static bool reuses(const weir_plan_parts *parts)
{
    return parts->with_service && strcmp(parts->config->kv.reuse, "on") == 0;
}

int32_t weir_plan_scored_rows(const weir_model *model)
{
    const int32_t block = weir_model_block_rows(model);
    return block > WEIR_SCORED_ROWS ? block : WEIR_SCORED_ROWS / block * block;
}

/* Requests pay for their policies: room for the configured one, for as many as run at a time. */
static weir_status plan_policy(weir_plan *plan, const weir_plan_parts *parts, weir_error *error)
{
    const int32_t rows = plan->facts.window > 0 ? plan->facts.window : WEIR_SMALLEST_WINDOW;
    plan->kv_peak = 0;
    plan->policy_state = 0;
    if (weir_policy_is_full(&parts->policies->service.options)) return WEIR_OK;
    /* Its prompt may be as long as the window. */
    const weir_policy_run_options wish = weir_policies_wish(
        &parts->policies->service, rows, rows, (int32_t)parts->config->batch.chunk
    );
    weir_policy_run_size size;
    WEIR_TRY(weir_policy_run_measure(&size, &wish, error));
    plan->kv_peak = size.peak;
    plan->policy_state = size.saved_bytes;
    plan->http += size.bytes * (size_t)plan->facts.n_slots;
    return WEIR_OK;
}

static size_t greater(size_t a, size_t b) { return a > b ? a : b; }

static weir_workspace_limits workspace_limits(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t chunk
)
{
    return (weir_workspace_limits){ .rows = (int32_t)chunk + plan->facts.n_slots,
                                    .segments = plan->facts.n_slots,
                                    .logits =
                                        plan->facts.n_slots + weir_plan_scored_rows(parts->model),
                                    .context = plan->facts.window,
                                    .formats = parts->spec->formats,
                                    .sinks = parts->spec->sinks,
                                    .has_cold = weir_kv_cold_pages(parts->spec) > 0,
                                    .evicts = parts->spec->evicts };
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
                 lists = weir_kv_prefetch_bytes(&seen, plan->facts.n_slots);
    const size_t near = weir_workspace_near_bytes(parts->model, &limits) + staged +
                        weir_kv_evictor_near_bytes(&seen) +
                        greater(scratch.scratch, eviction.scratch) +
                        greater(scratch.device, eviction.device);
    plan->prefetch = staged + lists;
    plan->activations = weir_workspace_bytes(parts->model, &limits) + lists +
                        weir_kv_evictor_bytes(&seen) + greater(scratch.host, eviction.host);
    *(plan->has_device ? &plan->near_activations : &plan->activations) =
        near + (plan->has_device ? 0 : plan->activations);
    return WEIR_OK;
}

/* What depends on the window beside the KV pages: the kernels' scratch, ids, tables. All of it
 * grows with the window. */
static weir_status plan_window(
    weir_plan *plan, const weir_plan_parts *parts, bool with_scratch, weir_error *error
)
{
    const size_t n_sequences = (size_t)(plan->facts.n_slots + session_sequences(parts));
    const weir_workspace_limits limits = workspace_limits(plan, parts, parts->config->batch.chunk);
    const weir_runner_limits steps = { .rows = limits.rows,
                                       .works = limits.segments,
                                       .logits = limits.logits };
    WEIR_TRY(weir_plan_activations(plan, parts, parts->config->batch.chunk, with_scratch, error));
    plan->tokens = n_sequences * weir_sequence_token_bytes(plan->facts.window) +
                   weir_runner_bytes(&steps) + weir_service_bytes(plan->facts.n_slots);
    if (session_sequences(parts) > 1)
        plan->tokens +=
            weir_sessions_saver_bytes((int32_t)parts->config->sessions.limit, parts->spec);
    plan->page_tables =
        n_sequences * weir_kv_table_bytes(parts->spec, plan->facts.window) +
        (reuses(parts) ? weir_prefix_tree_bytes(&(weir_prefix_limits){ 0 }, parts->spec) : 0);
    plan->http = set_aside(plan, parts);
    return plan_policy(plan, parts, error);
}

/* Bytes of the tree for so many runs, past what it takes without any. */
static size_t run_bytes(const weir_plan_parts *parts, int64_t n_runs)
{
    const weir_prefix_limits tree = { .n_nodes = reuses(parts) ? n_runs : 0 }, none = { 0 };
    return weir_prefix_tree_bytes(&tree, parts->spec) - weir_prefix_tree_bytes(&none, parts->spec);
}

/* Runs of kept texts: one for each block of pages; where no layer has pages, for some texts as long
 * as the window beside each sequence. */
static int64_t runs_for(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_pages, int64_t window
)
{
    enum { TEXTS = 4 };
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1),
                  runs = (window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    return per_block > 0 ? n_pages / per_block
                         : least(TEXTS * plan->facts.n_slots * runs, INT32_MAX / 2);
}

/* Of the pool, n_cold of whose pages are cold at most and n_sinks of which are sinks, and of the
 * tree of kept texts over it. */
static size_t metadata_bytes(
    const weir_plan_parts *parts, int64_t n_pages, int64_t n_cold, int64_t n_sinks
)
{
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    weir_kv_spec spec = *parts->spec;
    spec.n_pages = n_pages;
    spec.n_disk_pages = n_cold; /* their books are the same on the host */
    spec.n_host_pages = 0;
    spec.n_sink_pages = n_sinks;
    return (size_t)n_pages * weir_kv_page_metadata_bytes() +
           weir_kv_lower_tier_metadata_bytes(&spec) +
           run_bytes(parts, per_block > 0 ? n_pages / per_block : 0);
}

/* Blocks on disk: what memory.disk leaves to them, if the books of so many take no more than an
 * eighth of the room; a quarter for windows, of which `full` blocks are all. */
static int64_t disk_blocks(const weir_plan_parts *parts, size_t room, int64_t full)
{
    enum { FIRST = 64, SHARE = 8, SHARE_OF_WINDOWS = 4 };
    if (parts->spec->n_disk_pages == 0) return 0;
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    const size_t books = metadata_bytes(parts, FIRST * per_block, FIRST * per_block, 0) / FIRST + 1;
    const int64_t kept = (int64_t)(room / SHARE / books),
                  windows = least((int64_t)(room / SHARE_OF_WINDOWS / books), full);
    return least(
        least(kept > windows ? kept : windows, parts->spec->n_disk_pages / per_block),
        INT32_MAX / 2 / per_block
    );
}

/* Texts that a policy watched: as many as kv.policy.kept of the configured one, at most an eighth
 * of what is left; without one, room for some of those that requests ask for. */
static void plan_pruned(weir_plan *plan, const weir_plan_parts *parts, size_t left)
{
    enum { SHARE = 8, SHARE_OF_REQUESTS = 64 };
    const bool is_configured = plan->kv_peak > 0;
    const int64_t tokens = plan->facts.window > 0 ? plan->facts.window : WEIR_SMALLEST_WINDOW,
                  rows = is_configured ? plan->kv_peak : tokens;
    const int32_t n = reuses(parts) && weir_policies_are_there(parts->policies)
                          ? (int32_t)parts->config->kv.policy.kept
                          : 0;
    const size_t each = weir_pruned_entry_bytes(
        parts->spec, weir_model_recurrent_bytes(parts->model), tokens, rows, plan->policy_state
    );
    const size_t most = left / (is_configured ? SHARE : SHARE_OF_REQUESTS);
    plan->n_pruned = n;
    plan->pruned_bytes = each < most / (size_t)(n > 0 ? n : 1) ? each * (size_t)n
                         : n > 0                               ? most
                                                               : 0;
}

/* States that are kept: as many as memory.snapshots holds, else 16 per sequence and at most a
 * quarter of what is left. */
static void plan_snapshots(weir_plan *plan, const weir_plan_parts *parts)
{
    plan->snapshots = 0;
    const size_t each = weir_model_recurrent_bytes(parts->model), fixed = weir_plan_total(plan);
    const size_t left = plan->cap > fixed ? plan->cap - fixed : 0,
                 asked = (size_t)parts->config->memory.snapshots;
    if (!reuses(parts)) return;
    plan_pruned(plan, parts, left);
    weir_prefix_limits limits = { .snapshot_bytes = each,
                                  .n_pruned = plan->n_pruned,
                                  .pruned_bytes = plan->pruned_bytes };
    if (each > 0) {
        const size_t one = weir_prefix_state_bytes(&(weir_prefix_limits){ .n_snapshots = 1,
                                                                          .snapshot_bytes = each });
        const size_t most = asked > 0 ? asked / one : left / 4 / one;
        limits.n_snapshots = (int32_t
        )least((int64_t)most, asked > 0 ? INT16_MAX : SNAPSHOTS_PER_SLOT * plan->facts.n_slots);
    }
    plan->n_snapshots = limits.n_snapshots;
    plan->snapshots = weir_prefix_state_bytes(&limits);
}

/* Blocks of sinks, n_sinks for a text, beside so many others: for all sequences, and the session
 * that comes or goes, and for some kept texts. */
static int64_t sink_blocks(const weir_plan *plan, int64_t n_sinks, int64_t others)
{
    return n_sinks * (plan->facts.n_slots + 1 + others / BLOCKS_PER_TEXT);
}

/* Of a block of sinks, with its books. */
static int64_t sink_bytes(const weir_plan_parts *parts, int64_t books)
{
    enum { KERNEL_BYTES = 8 }; /* books of address space, of 4096 bytes: sinks are larger */
    const int64_t room = (int64_t)weir_kv_sink_block_stride(parts->spec);
    return room + books + (room / 4096 + 1) * KERNEL_BYTES;
}

/* Blocks of sinks that a text can have, of those asked for, where there are `room` of them for all
 * sequences. */
static int64_t text_sinks(const weir_plan *plan, int64_t asked, int64_t room)
{
    return least(asked, room / sink_blocks(plan, 1, 0));
}

/* The most blocks past the sinks that fit in `room` bytes with their books, with sinks beside
 * them. */
static int64_t other_blocks(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_sinks, int64_t room,
    int64_t books
)
{
    const int64_t block = (int64_t)weir_kv_block_stride(parts->spec) + books,
                  sink = sink_bytes(parts, books);
    const int64_t left = room - sink_blocks(plan, n_sinks, 0) * sink;
    return left * BLOCKS_PER_TEXT / (block * BLOCKS_PER_TEXT + n_sinks * sink);
}

/* Pages and books in what the other parts leave, for texts of `wanted` tokens; returns the tokens
 * that a text alone finds room for. Where memory does not hold the sinks of all sequences, nothing
 * follows them; a tier below would be of no use then, and the plan is refused. */
static int64_t plan_blocks(
    weir_plan *plan, const weir_plan_parts *parts, int64_t wanted, size_t room
)
{
    enum { MORE = 64 };
    const weir_kv_spec *const spec = parts->spec;
    const int64_t per_block = weir_kv_pages_for(spec, WEIR_PAGE_TOKENS); /* pages for 64 tokens */
    const size_t block = weir_kv_block_stride(spec);
    const int64_t window = (wanted + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                  asked = least(spec->sinks.n_pages, window);
    const int64_t full = (window - asked) * plan->facts.n_slots,
                  on_host = spec->n_host_pages / (per_block > 0 ? per_block : 1),
                  on_disk = disk_blocks(parts, room, full), cold = on_host + on_disk;
    const size_t lower_tier_metadata = metadata_bytes(parts, cold * per_block, cold * per_block, 0);
    const size_t books = (metadata_bytes(parts, (cold + MORE) * per_block, cold * per_block, 0) -
                          lower_tier_metadata + MORE - 1) /
                         MORE;
    const size_t beside =
        plan->has_device
            ? 0
            : lower_tier_metadata; /* of the host, whose total is looked at in the end */
    const int64_t left = room > beside ? (int64_t)(room - beside) : 0,
                  numbers = INT32_MAX / per_block - cold;
    const int64_t n_sinks =
        text_sinks(plan, asked, least(left / sink_bytes(parts, (int64_t)books), numbers));
    const int64_t most =
        (numbers - sink_blocks(plan, n_sinks, 0)) * BLOCKS_PER_TEXT / (BLOCKS_PER_TEXT + n_sinks);
    const int64_t blocks =
        n_sinks < asked
            ? 0
            : least(other_blocks(plan, parts, n_sinks, left, (int64_t)books), least(full, most));
    const int64_t sinks = sink_blocks(plan, n_sinks, blocks);
    plan->facts.kv_disk_pages = on_disk * per_block;
    plan->kv_disk = (size_t)on_disk * block;
    plan->facts.kv_host_pages = on_host * per_block;
    plan->disk_is_limited = on_disk < spec->n_disk_pages / per_block;
    plan->facts.kv_sink_pages = sinks * per_block;
    plan->facts.kv_pages = (blocks + sinks + cold) * per_block;
    plan->kv =
        plan->kv_open + (size_t)blocks * block + (size_t)sinks * weir_kv_sink_block_stride(spec);
    plan->kv_rows = (blocks + sinks + cold) * WEIR_PAGE_TOKENS;
    plan->page_tables +=
        metadata_bytes(parts, plan->facts.kv_pages, cold * per_block, plan->facts.kv_sink_pages);
    if (n_sinks < asked) return cold > 0 ? 0 : n_sinks * WEIR_PAGE_TOKENS;
    return (n_sinks + blocks + cold) * WEIR_PAGE_TOKENS;
}

/* No head ever holds more than the configured policy's peak. Layers with a sliding window are not
 * the policy's: they keep every row. */
static bool is_bounded(const weir_plan_parts *parts)
{
    const weir_service_policy *const policy = &parts->policies->service;
    return policy->options.in_prompt && policy->shape.n_layers == parts->spec->n_layers;
}

/* Gives what the other parts leave to KV pages and the books of the pool; false when that is no
 * window worth the name. */
static bool plan_rows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted)
{
    plan->kv_open = weir_kv_open_rows_bytes(parts->spec) *
                    (size_t)(plan->facts.n_slots + session_sequences(parts));
    plan->kv = plan->kv_open;
    plan->facts.kv_pages = plan->facts.kv_disk_pages = plan->facts.kv_host_pages =
        plan->facts.kv_sink_pages = 0;
    plan->kv_disk = 0;
    plan->kv_host = weir_kv_host_bytes(parts->spec); /* before what takes a share of the rest */
    if (weir_kv_pages_for(parts->spec, 1) == 0)
        plan->page_tables += run_bytes(parts, runs_for(plan, parts, 0, wanted));
    plan_snapshots(plan, parts);
    /* With a device the pages' books are counted as if they were there, too. */
    const size_t cap = plan->has_device ? plan->device_cap : plan->cap,
                 fixed = plan->has_device ? weir_plan_device_total(plan) : weir_plan_total(plan);
    const size_t left = cap > fixed ? cap - fixed : 0;
    const bool takes_all = plan->has_device || plan->cap_is_configured;
    plan->kv_rows = wanted * plan->facts.n_slots;
    /* Unless a budget was given, half of what is free is left to others. */
    int64_t longest = weir_kv_pages_for(parts->spec, 1) > 0
                          ? plan_blocks(plan, parts, wanted, takes_all ? left : left / 2)
                          : wanted;
    if (is_bounded(parts) && longest >= plan->kv_peak + WEIR_PAGE_TOKENS) longest = wanted;
    plan->facts.window = (int32_t)least(wanted, longest);
    return left > 0 && plan->facts.window >= least(wanted, WEIR_SMALLEST_WINDOW);
}

/* With a tier below: memory holds what running sequences cannot do without, unless it holds all
 * that they can have. */
static weir_status check_tiers(
    const weir_plan *plan, const weir_plan_parts *parts, weir_error *error
)
{
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1), hot = parts->config->kv.tiers.hot,
                  rows = parts->config->batch.chunk;
    const int64_t cold = plan->facts.kv_disk_pages + plan->facts.kv_host_pages;
    if (cold == 0) return WEIR_OK;
    const int64_t blocks = (plan->facts.kv_pages - cold - plan->facts.kv_sink_pages) / per_block;
    const int32_t sequences = plan->facts.n_slots + (session_sequences(parts) > 0
                                                    ); /* what is saved under pressure gives way */
    const int64_t end = (plan->facts.window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                  full = weir_kv_pages_blocks(parts->spec, weir_kv_pages_of(parts->spec, 0, end)) *
                         plan->facts.n_slots;
    const int64_t needed = least(weir_tiers_least_blocks(sequences, rows, hot), full);
    const char *const tier = plan->has_device ? "device" : "host";
    if (blocks >= needed) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFULL,
        "the plan does not fit: memory.%s leaves room for %" PRId64
        " blocks of 64 tokens (%zu bytes each, %.1f MiB of %.1f MiB), and "
        "%d sequences with a tier below them need %" PRId64 ": for each its first block, %" PRId64
        " hot ones (kv.tiers.hot) and 2 in use, and %" PRId64
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

/* A budget that cannot hold 64 tokens would refuse everything. */
static weir_status check_budget(
    int64_t budget, const char *key, const weir_kv_spec *spec, weir_error *error
)
{
    const int64_t least_bytes =
        (int64_t)(weir_kv_blocks_bytes(spec, 1) + weir_kv_open_rows_bytes(spec));
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
                         .process = parts->with_server ? (size_t)PROCESS_BYTES : 0,
                         .packs = parts->packs,
                         .other = parts->other,
                         .disk_cap = (size_t)config->memory.disk,
                         .disk_is_shared = weir_plan_has_sessions(config, parts->with_service) };
    weir_plan_describe(&plan->facts, parts);
    plan->weights = (size_t)plan->facts.weight_bytes;
    plan->recurrent = (size_t)plan->facts.recurrent_bytes * (size_t)plan->facts.n_slots;
    plan->sampler = weir_sampler_scratch_bytes((size_t)plan->facts.n_vocab);
    describe_device(plan, parts);
    WEIR_TRY(check_budgets(plan, parts, error));

    /* What grows with the window takes from it: a first window is found without any of it, a second
     * within what the first one asks for; the second is smaller, asks for less, and so fits. */
    WEIR_TRY(plan_window(plan, parts, false, error));
    if (!plan_rows(plan, parts, wanted)) return weir_plan_too_small(plan, error);
    WEIR_TRY(plan_window(plan, parts, true, error));
    if (!plan_rows(plan, parts, wanted) ||
        (config->model.context > 0 && plan->facts.window < config->model.context))
        return weir_plan_too_small(plan, error);
    WEIR_TRY(check_tiers(plan, parts, error));
    size_t books = metadata_bytes(
        parts, plan->facts.kv_pages, plan->facts.kv_disk_pages + plan->facts.kv_host_pages,
        plan->facts.kv_sink_pages
    );
    plan->n_runs = runs_for(plan, parts, plan->facts.kv_pages, plan->facts.window);
    if (weir_kv_pages_for(parts->spec, 1) == 0) books += run_bytes(parts, plan->n_runs);
    WEIR_TRY(plan_window(plan, parts, true, error));
    plan->page_tables += books;
    const bool fits =
        weir_plan_total(plan) <= plan->cap && weir_plan_device_total(plan) <= plan->device_cap;
    return fits ? WEIR_OK : weir_plan_too_small(plan, error);
}
