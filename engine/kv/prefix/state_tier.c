/* engine/kv/prefix/state_tier.c - recurrent states on disk, in a lower tier of their own with one
 * block for each state. With window blocks (window_tier.c) they take the space of KV blocks that
 * are free there, and leave it when blocks need it (docs/decisions/0045-states.md). */
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/tiers_internal.h"

size_t prefix_disk_stride(size_t bytes)
{
    const size_t mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    return (bytes + mask) & ~mask;
}

size_t prefix_state_stride(const weir_prefix_limits *limits)
{
    return prefix_disk_stride(limits->snapshot_bytes);
}

size_t prefix_transfer_bytes(const weir_prefix_limits *limits)
{
    const size_t state = limits->n_cold > 0 ? prefix_state_stride(limits) : 0,
                 window = limits->n_cold_windows > 0 ? prefix_window_stride(limits) : 0,
                 most = state > window ? state : window;
    return most > 0 ? most + WEIR_LOWER_TIER_ALIGNMENT : 0;
}

static size_t metadata_bytes(int64_t n_blocks)
{
    return n_blocks > 0 ? weir_lower_tier_metadata_bytes(n_blocks, 0, 1, 1) : 0;
}

size_t prefix_tier_metadata_bytes(const weir_prefix_limits *limits)
{
    return metadata_bytes(limits->n_cold) + metadata_bytes(limits->n_cold_windows);
}

weir_status prefix_open_tier_of(
    weir_prefix *p, weir_lower_tier **tier, int64_t n_blocks, size_t stride, const char *what,
    weir_error *error
)
{
    weir_lower_tier *const blocks = weir_kv_store_lower_tier(p->store);
    const weir_lower_tier_part part = { .n_pages = 1, .page_bytes = stride };
    const weir_lower_tier_layout layout = {
        .folder = p->limits.disk_folder,
        .n_blocks = n_blocks,
        .n_parts = 1,
        .parts = &part,
        .shares_with = blocks,
    };
    if (n_blocks == 0) return WEIR_OK;
    WEIR_TRY(weir_lower_tier_open(tier, &layout, p->ledger, error));
    if (blocks != NULL && !weir_lower_tier_gives_back(*tier))
        weir_log(
            WEIR_LOG_WARNING,
            "%s: this file system gives back no part of a file, so %s do not go to disk; set "
            "memory.disk_dir to a folder on another one",
            p->limits.disk_folder, what
        );
    return WEIR_OK;
}

weir_status prefix_open_tier(weir_prefix *p, weir_error *error)
{
    const uintptr_t start = (uintptr_t)p->transfer_memory, mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    if (p->transfer_bytes == 0) return WEIR_OK;
    p->transfer = p->transfer_memory + (((start + mask) & ~mask) - start);
    memset(p->transfer, 0, p->transfer_bytes - WEIR_LOWER_TIER_ALIGNMENT);
    return prefix_open_tier_of(
        p, &p->tier, p->limits.n_cold, prefix_state_stride(&p->limits), "recurrent states", error
    );
}

weir_lower_tier *weir_prefix_lower_tier(const weir_prefix *prefix) { return prefix->tier; }

/* ---- space ----------------------------------------------------------------------------------- */
static int64_t bytes_of_tier(const weir_lower_tier *tier, int64_t n_blocks, size_t stride)
{
    return tier != NULL ? (n_blocks - weir_lower_tier_free_blocks(tier)) * (int64_t)stride : 0;
}

static int64_t bytes_of_windows(const weir_prefix *p)
{
    return bytes_of_tier(
        p->window_tier, p->limits.n_cold_windows, prefix_window_stride(&p->limits)
    );
}

/* What KV blocks that are free leave to others, those included that are there. */
static int64_t bytes_of_others(const weir_prefix *p, int64_t n_blocks)
{
    return (weir_lower_tier_free_blocks(weir_kv_store_lower_tier(p->store)) - n_blocks) *
           (int64_t)weir_kv_block_stride(weir_kv_store_spec(p->store));
}

int64_t prefix_free_disk(const weir_prefix *p, int64_t n_blocks)
{
    return bytes_of_others(p, n_blocks) - bytes_of_windows(p) -
           bytes_of_tier(p->tier, p->limits.n_cold, prefix_state_stride(&p->limits));
}

/* States that have the space of KV blocks which are free when n_blocks more are taken, less those
 * that are there. */
static int64_t free_cold_states(const weir_prefix *p, int64_t n_blocks)
{
    const int64_t left = bytes_of_others(p, n_blocks) - bytes_of_windows(p),
                  most = left / (int64_t)prefix_state_stride(&p->limits);
    const int64_t n = !weir_lower_tier_gives_back(p->tier) ? 0
                      : most < p->limits.n_cold            ? most
                                                           : p->limits.n_cold;
    return n - (p->limits.n_cold - weir_lower_tier_free_blocks(p->tier));
}

int32_t prefix_free_cold_states(const weir_prefix *p)
{
    const int64_t n = p->tier != NULL ? free_cold_states(p, 0) : 0;
    if (n <= 0) return 0;
    return n < p->limits.n_snapshots ? (int32_t)n : p->limits.n_snapshots;
}

static bool drop_first(weir_prefix *p)
{
    const int32_t first = prefix_first_state(p, ORDER_COLD_STATES);
    if (first == NONE) return false;
    prefix_drop_state(p, first);
    return true;
}

static bool is_short(const weir_prefix *p, int64_t n_blocks)
{
    const weir_lower_tier *const blocks = weir_kv_store_lower_tier(p->store);
    return blocks != NULL && prefix_free_disk(p, n_blocks) < 0;
}

void weir_prefix_leave_disk(weir_prefix *prefix, int64_t n_blocks)
{
    if (prefix == NULL) return;
    while (prefix->window_tier != NULL && is_short(prefix, n_blocks) &&
           prefix_drop_cold_window(prefix)) {
    }
    while (prefix->tier != NULL && prefix->n_ordered[ORDER_COLD_STATES] > 0 &&
           free_cold_states(prefix, n_blocks) < 0 && drop_first(prefix)) {
    }
}

/* ---- moving ---------------------------------------------------------------------------------- */
bool prefix_demote_state(weir_prefix *p, int32_t index)
{
    int32_t block;
    /* Those that move cannot be dropped. */
    if (free_cold_states(p, 0) + p->n_ordered[ORDER_COLD_STATES] - p->moves.n_begun < 1)
        return false;
    while (free_cold_states(p, 0) < 1)
        if (!drop_first(p)) return false;
    if (weir_lower_tier_alloc(p->tier, &block, NULL) != WEIR_OK) return false;
    prefix_move_state(p, index, block);
    prefix_move_entry(p, index, p->entries[index].memory, false);
    return true;
}

const float *prefix_read_state(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    prefix_move *const move = prefix_move_of(p, index);
    if (own->memory != NONE) {
        if (move != NULL) move->is_used = true;
        return state_of(p, index);
    }
    if (move != NULL || !prefix_may_move(p, true)) return NULL;
    const int32_t memory = prefix_pop_memory(p);
    p->owners[memory] = index;
    prefix_move_entry(p, index, memory, true);
    return NULL;
}
