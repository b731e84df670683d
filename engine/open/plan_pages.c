/* engine/open/plan_pages.c - plans KV pages, cached prefixes and snapshots in the memory that the
 * other parts leave. */
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/tiers/lower_tier.h"
#include "engine/open/plan_internal.h"
#include "engine/schedule/tiers.h"

enum {
    SNAPSHOTS_PER_SLOT = 16, /* also windows of cached sequences */
    BLOCKS_PER_TEXT = 32 /* one cached sequence's sinks for this many blocks */
};

/* Bytes of the prefix tree for n_runs, in addition to those of an empty one. */
size_t plan_run_bytes(const weir_plan_parts *parts, int64_t n_runs)
{
    const weir_prefix_limits tree = { .n_nodes = plan_reuses(parts) ? n_runs : 0 }, none = { 0 };
    return weir_prefix_tree_bytes(&tree, parts->spec) - weir_prefix_tree_bytes(&none, parts->spec);
}

/* Runs of cached sequences: one per block of pages; if no layer has pages, some sequences as
 * long as the window for each slot. */
int64_t plan_runs_for(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_pages, int64_t window
)
{
    enum { SEQUENCES = 4 };
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1),
                  runs = (window + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    return per_block > 0 ? n_pages / per_block
                         : weir_min(SEQUENCES * plan->facts.n_slots * runs, INT32_MAX / 2);
}

/* Bytes of the pool's metadata, with at most n_cold cold pages and n_sinks sink pages, and of
 * the prefix tree over it. */
size_t plan_metadata_bytes(
    const weir_plan_parts *parts, int64_t n_pages, int64_t n_cold, int64_t n_sinks
)
{
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    weir_kv_spec spec = *parts->spec;
    spec.pages.n = n_pages;
    spec.pages.n_disk = n_cold; /* their metadata is the same on the host */
    spec.pages.n_host = 0;
    spec.pages.n_sinks = n_sinks;
    return (size_t)n_pages * weir_kv_page_metadata_bytes() +
           weir_kv_lower_tier_metadata_bytes(&spec) +
           plan_run_bytes(parts, per_block > 0 ? n_pages / per_block : 0);
}

/* Blocks on disk: what fits in memory.disk if their metadata takes no more than an eighth of
 * `budget`, or a quarter for windows, of which `full` blocks are all. */
static int64_t disk_blocks(const weir_plan_parts *parts, size_t budget, int64_t full)
{
    enum { FIRST = 64, SHARE = 8, SHARE_OF_WINDOWS = 4 };
    if (parts->spec->pages.n_disk == 0) return 0;
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1);
    const size_t metadata =
        plan_metadata_bytes(parts, FIRST * per_block, FIRST * per_block, 0) / FIRST + 1;
    const int64_t kept = (int64_t)(budget / SHARE / metadata),
                  windows = weir_min((int64_t)(budget / SHARE_OF_WINDOWS / metadata), full);
    return weir_min(
        weir_min(kept > windows ? kept : windows, parts->spec->pages.n_disk / per_block),
        INT32_MAX / 2 / per_block
    );
}

/* Pruned caches: kv.policy.kept sequences of the configured policy, at most an eighth of what is
 * left; without one, memory for some that requests may choose. */
static void plan_pruned(weir_plan *plan, const weir_plan_parts *parts, size_t left)
{
    enum { SHARE = 8, SHARE_OF_REQUESTS = 64 };
    const bool is_configured = plan->kv_peak > 0;
    const int64_t tokens = plan->facts.window > 0 ? plan->facts.window : WEIR_SMALLEST_WINDOW,
                  rows = is_configured ? plan->kv_peak : tokens;
    const int32_t n = plan_reuses(parts) && weir_policies_are_there(parts->policies)
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

/* States on disk: as many as its blocks have room for, if their entries take at most a 64th of the
 * memory of those in memory, or 256 KiB. Those of a model on a device stay in memory. */
static int32_t cold_states(const weir_plan_parts *parts, const weir_prefix_limits *limits)
{
    enum { SHARE = 64, ENTRY_BYTES = 256, LEAST = 1024 };
    const weir_kv_spec *const spec = parts->spec;
    const int64_t per_block = weir_kv_pages_for(spec, 1);
    if (spec->pages.n_disk == 0 || spec->has_device || limits->n_snapshots == 0) return 0;
    const int64_t bytes = spec->pages.n_disk / per_block * (int64_t)weir_kv_block_stride(spec),
                  each = ((int64_t)limits->snapshot_bytes + 4095) / 4096 * 4096,
                  memory = limits->n_snapshots * (int64_t)limits->snapshot_bytes;
    const int64_t most = memory / SHARE / ENTRY_BYTES;
    return (int32_t
    )weir_min(weir_min(bytes / each, most > LEAST ? most : LEAST), INT16_MAX - limits->n_snapshots);
}

/* Bytes of page_tables for them. */
size_t plan_cold_state_bytes(const weir_plan *plan, const weir_plan_parts *parts)
{
    const weir_prefix_limits cold = { .snapshot_bytes = weir_model_recurrent_bytes(parts->model),
                                      .n_cold = plan->n_cold_states },
                             none = { 0 };
    return weir_prefix_tree_bytes(&cold, parts->spec) - weir_prefix_tree_bytes(&none, parts->spec);
}

/* Those that are written or read need memory besides n_snapshots. `most` states have some. */
static void leave_extra_states(weir_prefix_limits *limits, int64_t most)
{
    const int32_t n = weir_prefix_extra_states(limits);
    if (most <= n) limits->n_cold = 0;
    if (most > n && limits->n_snapshots > most - n) limits->n_snapshots = (int32_t)(most - n);
}

/* Cached states: as many as fit in memory.snapshots, else 16 per sequence and at most a quarter
 * of what is left. */
static void plan_snapshots(weir_plan *plan, const weir_plan_parts *parts)
{
    plan->snapshots = 0;
    plan->n_cold_states = 0;
    const size_t each = weir_model_recurrent_bytes(parts->model), fixed = weir_plan_total(plan);
    const size_t left = plan->cap > fixed ? plan->cap - fixed : 0,
                 asked = (size_t)parts->config->memory.snapshots;
    if (!plan_reuses(parts)) return;
    plan_pruned(plan, parts, left);
    int64_t most = 0;
    weir_prefix_limits limits = { .snapshot_bytes = each,
                                  .n_pruned = plan->n_pruned,
                                  .pruned_bytes = plan->pruned_bytes };
    if (each > 0) {
        const size_t one = weir_prefix_state_bytes(&(weir_prefix_limits){ .n_snapshots = 1,
                                                                          .snapshot_bytes = each });
        most = (int64_t)((asked > 0 ? asked : left / 4) / one);
        limits.n_snapshots = (int32_t
        )weir_min(most, asked > 0 ? INT16_MAX : SNAPSHOTS_PER_SLOT * plan->facts.n_slots);
    }
    limits.n_cold = cold_states(parts, &limits);
    leave_extra_states(&limits, most);
    plan->n_snapshots = limits.n_snapshots;
    plan->n_cold_states = limits.n_cold;
    plan->snapshots = weir_prefix_state_bytes(&limits);
    plan->page_tables += plan_cold_state_bytes(plan, parts);
}

/* Bytes of disk that window blocks may take: those that KV blocks leave, or all of them. */
static int64_t disk_for_windows(const weir_plan_parts *parts)
{
    const int64_t per_block = weir_kv_pages_for(parts->spec, 1), disk = parts->config->memory.disk;
    if (per_block > 0)
        return parts->spec->pages.n_disk / per_block * (int64_t)weir_kv_block_stride(parts->spec);
    return disk / (weir_plan_has_sessions(parts->config, parts->with_service) ? 2 : 1);
}

/* Window blocks on disk, if their metadata takes at most a 64th of the memory of those in memory,
 * or 32 KiB. */
static int64_t cold_windows(const weir_plan_parts *parts, int64_t n_blocks)
{
    enum { SHARE = 64, METADATA = 8, LEAST = 4096 };
    const int64_t block = (int64_t)weir_kv_windows_block_bytes(&parts->spec->windows),
                  stride = (block + 4095) / 4096 * 4096,
                  most = n_blocks * (block / (SHARE * METADATA));
    if (!plan_reuses(parts)) return 0;
    return weir_min(weir_min(disk_for_windows(parts) / stride, weir_max(most, LEAST)), INT32_MAX);
}

/* What they take besides: metadata, and a buffer for the one that moves. */
static void plan_cold_windows(weir_plan *plan, const weir_plan_parts *parts)
{
    const size_t block = weir_kv_windows_block_bytes(&parts->spec->windows);
    const weir_prefix_limits states = { .snapshot_bytes = weir_model_recurrent_bytes(parts->model),
                                        .n_cold = plan->n_cold_states };
    weir_prefix_limits all = states;
    plan->facts.n_cold_windows = cold_windows(parts, plan->facts.n_window_blocks);
    all.n_cold_windows = (int32_t)plan->facts.n_cold_windows;
    all.window_bytes = block;
    plan->snapshots += weir_prefix_state_bytes(&all) - weir_prefix_state_bytes(&states);
    if (weir_kv_pages_for(parts->spec, 1) == 0)
        plan->kv_disk = (size_t)plan->facts.n_cold_windows * ((block + 4095) / 4096 * 4096);
}

/* Window blocks: those that sequences need, and more for cached sequences, of 16 for each sequence:
 * at most a quarter of `left`, or three quarters if no layer keeps all rows. */
static void plan_windows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted, size_t left)
{
    enum { SHARE = 4 };
    weir_kv_windows_spec spec = parts->spec->windows;
    const int32_t n_others = plan_session_sequences(parts), n_slots = plan->facts.n_slots;
    plan->kv_windows = 0;
    plan->facts.n_window_blocks = plan->facts.kv_window_bytes = plan->facts.n_cold_windows = 0;
    if (spec.n_layers == 0) return;
    spec.max_rows = wanted;
    const size_t block = weir_kv_windows_block_bytes(&spec);
    /* With a disk others run while a step waits for it. */
    const int64_t n_steps = parts->spec->pages.n_disk > 0 ? 2 : 1,
                  moving = cold_windows(parts, 0) > 0 ? weir_prefix_extra_windows(&spec) : 0,
                  needed = weir_kv_windows_needed(&spec, n_slots, n_others, n_steps) + moving,
                  most = weir_kv_windows_most(&spec);
    const size_t quarter = left / SHARE,
                 share = weir_kv_pages_for(parts->spec, 1) > 0 ? quarter : left - quarter;
    const int64_t more = (int64_t)(share / block) - needed,
                  cached = plan_reuses(parts) ? most * n_slots * SNAPSHOTS_PER_SLOT : 0;
    spec.n_blocks = weir_min(needed + weir_max(weir_min(more, cached), 0), INT32_MAX);
    plan->facts.n_window_blocks = spec.n_blocks;
    plan->facts.kv_window_bytes = most * (int64_t)block;
    plan->kv_windows = weir_kv_windows_bytes(&spec);
    plan_cold_windows(plan, parts);
    plan->page_tables += plan_window_metadata_bytes(plan, parts);
}

/* Bytes of page_tables for the planned window blocks. */
size_t plan_window_metadata_bytes(const weir_plan *plan, const weir_plan_parts *parts)
{
    const weir_prefix_limits cold = { .n_cold_windows = (int32_t)plan->facts.n_cold_windows },
                             none = { 0 };
    weir_kv_windows_spec spec = parts->spec->windows;
    spec.n_blocks = plan->facts.n_window_blocks;
    spec.max_rows = weir_plan_context(parts->config, parts->model);
    return weir_kv_windows_metadata_bytes(&spec) + weir_prefix_tree_bytes(&cold, parts->spec) -
           weir_prefix_tree_bytes(&none, parts->spec) +
           (size_t)(plan->facts.n_slots + plan_session_sequences(parts)) *
               weir_kv_window_table_bytes(&spec);
}

/* Sink blocks, n_sinks per sequence, that go with this many other blocks: for all sequences, the
 * session being saved or restored, and some cached sequences. */
static int64_t sink_blocks(const weir_plan *plan, int64_t n_sinks, int64_t others)
{
    return n_sinks * (plan->facts.n_slots + 1 + others / BLOCKS_PER_TEXT);
}

/* Bytes of a sink block with its metadata. */
static int64_t sink_bytes(const weir_plan_parts *parts, int64_t metadata)
{
    enum { KERNEL_BYTES = 8 }; /* Metadata of address space, per 4096 bytes: sinks are larger. */
    const int64_t stride = (int64_t)weir_kv_sink_block_stride(parts->spec);
    return stride + metadata + (stride / 4096 + 1) * KERNEL_BYTES;
}

/* Sink blocks that a sequence can have, of those configured, if there are `budget` of them for all
 * sequences. */
static int64_t sequence_sinks(const weir_plan *plan, int64_t asked, int64_t budget)
{
    return weir_min(asked, budget / sink_blocks(plan, 1, 0));
}

/* The most blocks past the sinks that fit in `budget` bytes with their metadata and their sinks. */
static int64_t other_blocks(
    const weir_plan *plan, const weir_plan_parts *parts, int64_t n_sinks, int64_t budget,
    int64_t metadata
)
{
    const int64_t block = (int64_t)weir_kv_block_stride(parts->spec) + metadata,
                  sink = sink_bytes(parts, metadata);
    const int64_t left = budget - sink_blocks(plan, n_sinks, 0) * sink;
    return left * BLOCKS_PER_TEXT / (block * BLOCKS_PER_TEXT + n_sinks * sink);
}

/* What a plan looks for: `asked` sinks of each sequence, `full` other blocks, which are all that
 * sequences and policies can use, and at most `numbers` blocks. */
typedef struct target {
    int64_t asked, full, numbers;
} target;
typedef struct found {
    int64_t n_sinks, blocks; /* sinks of each sequence; blocks past the sinks */
} found;

/* The most sinks and blocks that fit in `budget` with `metadata` bytes for each. */
static found blocks_in(
    const weir_plan *plan, const weir_plan_parts *parts, const target *of, int64_t budget,
    int64_t metadata
)
{
    const int64_t sinks = weir_min(budget / sink_bytes(parts, metadata), of->numbers);
    found f = { .n_sinks = sequence_sinks(plan, of->asked, sinks) };
    const int64_t most = (of->numbers - sink_blocks(plan, f.n_sinks, 0)) * BLOCKS_PER_TEXT /
                         (BLOCKS_PER_TEXT + f.n_sinks);
    if (f.n_sinks == of->asked)
        f.blocks = weir_min(
            other_blocks(plan, parts, f.n_sinks, budget, metadata), weir_min(of->full, most)
        );
    return f;
}

/* The same with the tables of sequences, which take what whole windows do or, if that is less, what
 * the pool can use (plan_tables.c). They are on the host: with a device, its total is checked at
 * the end. */
static found blocks_with_tables(
    const weir_plan *plan, const weir_plan_parts *parts, const target *of, int64_t budget,
    int64_t metadata, int64_t cold
)
{
    const plan_tables tables = plan_tables_of(plan, parts);
    const int64_t entries = weir_kv_pages_for(parts->spec, 1) * (int64_t)tables.per_page;
    if (plan->has_device) return blocks_in(plan, parts, of, budget, metadata);
    const int64_t without_tables = budget - (int64_t)tables.all,
                  shared = budget - (int64_t)tables.fixed - cold * entries;
    const found whole = blocks_in(plan, parts, of, weir_max(without_tables, 0), metadata),
                pool = blocks_in(
                    plan, parts, of, weir_max(shared, 0),
                    metadata + entries + (int64_t)tables.per_block
                );
    const bool is_more = pool.n_sinks > whole.n_sinks ||
                         (pool.n_sinks == whole.n_sinks && pool.blocks > whole.blocks);
    return is_more ? pool : whole;
}

/* Plans pages, metadata and tables in what the other parts leave, for sequences of `wanted` tokens.
 * Returns the tokens that fit for a single sequence. If memory does not hold the sinks of all
 * sequences, the plan is refused: no block could follow them, whatever the lower tier. */
static int64_t plan_blocks(
    weir_plan *plan, const weir_plan_parts *parts, int64_t wanted, size_t budget
)
{
    enum { MORE = 64 };
    const weir_kv_spec *const spec = parts->spec;
    const int64_t per_block = weir_kv_pages_for(spec, WEIR_PAGE_TOKENS); /* pages of 64 tokens */
    const size_t block = weir_kv_block_stride(spec);
    const int64_t window = (wanted + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                  asked = weir_min(spec->sinks.n_pages, window);
    const int64_t full = (window - asked) * plan->facts.n_slots,
                  on_host = spec->pages.n_host / (per_block > 0 ? per_block : 1),
                  on_disk = disk_blocks(parts, budget, full), cold = on_host + on_disk;
    const size_t lower_tier_metadata =
        plan_metadata_bytes(parts, cold * per_block, cold * per_block, 0);
    const size_t metadata =
        (plan_metadata_bytes(parts, (cold + MORE) * per_block, cold * per_block, 0) -
         lower_tier_metadata + MORE - 1) /
        MORE;
    const size_t lower_tier_bytes =
        plan->has_device ? 0
                         : lower_tier_metadata; /* On the host; its total is checked at the end. */
    const int64_t left = budget > lower_tier_bytes ? (int64_t)(budget - lower_tier_bytes) : 0;
    const int64_t kept = cold > 0 ? weir_tiers_kept_blocks(parts->config->kv.tiers.hot) : 0;
    const target of = { asked, full + kept, INT32_MAX / per_block - cold };
    const found f = blocks_with_tables(plan, parts, &of, left, (int64_t)metadata, cold);
    const int64_t sinks = sink_blocks(plan, f.n_sinks, f.blocks);
    plan->facts.kv_pages.n_disk = on_disk * per_block;
    plan->kv_disk = (size_t)on_disk * block;
    plan->facts.kv_pages.n_host = on_host * per_block;
    plan->facts.kv_page_alignment = cold > 0 ? WEIR_LOWER_TIER_ALIGNMENT : 0;
    plan->disk_is_limited = on_disk < spec->pages.n_disk / per_block;
    plan->facts.kv_pages.n_sinks = sinks * per_block;
    plan->facts.kv_pages.n = (f.blocks + sinks + cold) * per_block;
    plan->kv = plan->kv_unsealed + (size_t)f.blocks * block +
               (size_t)sinks * weir_kv_sink_block_stride(spec);
    plan->kv_rows = (f.blocks + sinks + cold) * WEIR_PAGE_TOKENS;
    plan->tables = plan_table_bytes(plan, parts);
    plan->page_tables += plan->tables + plan_metadata_bytes(
                                            parts, plan->facts.kv_pages.n, cold * per_block,
                                            plan->facts.kv_pages.n_sinks
                                        );
    if (f.n_sinks < asked) return cold > 0 ? 0 : f.n_sinks * WEIR_PAGE_TOKENS;
    return (f.n_sinks + f.blocks + cold) * WEIR_PAGE_TOKENS;
}

/* True if no head holds more rows than the configured policy's peak. Layers with a sliding
 * window have no policy and keep every row. */
static bool is_bounded(const weir_plan_parts *parts)
{
    const weir_service_policy *const policy = &parts->policies->service;
    return policy->options.in_prompt && policy->shape.n_layers == parts->spec->n_layers;
}

/* Plans KV pages, metadata and tables in what the other parts leave. Returns false if the window
 * would be too small. */
bool plan_rows(weir_plan *plan, const weir_plan_parts *parts, int64_t wanted)
{
    plan->kv_unsealed = weir_kv_unsealed_rows_bytes(parts->spec) *
                        (size_t)(plan->facts.n_slots + plan_session_sequences(parts));
    plan->kv = plan->kv_unsealed;
    plan->facts.kv_pages = (weir_kv_pool_pages){ 0 };
    plan->kv_disk = plan->tables = 0;
    plan->kv_host = weir_kv_host_bytes(parts->spec); /* before the shares of what is left */
    if (weir_kv_pages_for(parts->spec, 1) == 0)
        plan->page_tables += plan_run_bytes(parts, plan_runs_for(plan, parts, 0, wanted));
    plan_snapshots(plan, parts);
    /* With a device, the pages' metadata is counted as if it were there, too. */
    const size_t cap = plan->has_device ? plan->device_cap : plan->cap,
                 fixed = plan->has_device ? weir_plan_device_total(plan) : weir_plan_total(plan);
    const bool takes_all = plan->has_device || plan->cap_is_configured;
    const size_t before = cap > fixed ? cap - fixed : 0;
    plan_windows(plan, parts, wanted, takes_all ? before : before / 2);
    const size_t with_windows = plan->has_device ? fixed : weir_plan_total(plan),
                 left = cap > with_windows ? cap - with_windows : 0;
    plan->kv_rows = wanted * plan->facts.n_slots;
    /* Unless a budget is set, half of the free memory is left to others. */
    int64_t longest = weir_kv_pages_for(parts->spec, 1) > 0
                          ? plan_blocks(plan, parts, wanted, takes_all ? left : left / 2)
                          : wanted;
    if (is_bounded(parts) && longest >= plan->kv_peak + WEIR_PAGE_TOKENS) longest = wanted;
    plan->facts.window = (int32_t)weir_min(wanted, longest);
    return left > 0 && plan->facts.window >= weir_min(wanted, WEIR_SMALLEST_WINDOW);
}
