/* engine/kv/prefix/state_tier.c - recurrent states on disk, in a lower tier of their own with one
 * block for each state. They take the space of KV blocks that are free there, and leave it when
 * blocks need it (docs/decisions/0045-states.md). */
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/prefix_internal.h"

size_t prefix_state_stride(const weir_prefix_limits *limits)
{
    const size_t mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    return (limits->snapshot_bytes + mask) & ~mask;
}

size_t prefix_transfer_bytes(const weir_prefix_limits *limits)
{
    return limits->n_cold > 0 ? prefix_state_stride(limits) + WEIR_LOWER_TIER_ALIGNMENT : 0;
}

size_t prefix_tier_metadata_bytes(const weir_prefix_limits *limits)
{
    return limits->n_cold > 0 ? weir_lower_tier_metadata_bytes(limits->n_cold, 0, 1, 1) : 0;
}

weir_status prefix_open_tier(weir_prefix *p, weir_error *error)
{
    const weir_lower_tier_part part = { .n_pages = 1,
                                        .page_bytes = prefix_state_stride(&p->limits) };
    const weir_lower_tier_layout layout = {
        .folder = p->limits.disk_folder,
        .n_blocks = p->limits.n_cold,
        .n_parts = 1,
        .parts = &part,
        .shares_with = weir_kv_store_lower_tier(p->store),
    };
    if (p->limits.n_cold == 0) return WEIR_OK;
    const uintptr_t start = (uintptr_t)p->transfer_memory, mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    p->transfer = p->transfer_memory + (((start + mask) & ~mask) - start);
    memset(p->transfer, 0, part.page_bytes);
    WEIR_TRY(weir_lower_tier_open(&p->tier, &layout, p->ledger, error));
    if (!weir_lower_tier_gives_back(p->tier))
        weir_log(
            WEIR_LOG_WARNING,
            "%s: this file system gives back no part of a file, so recurrent states do not go to "
            "disk; set memory.disk_dir to a folder on another one",
            p->limits.disk_folder
        );
    return prefix_open_moves(p, error);
}

weir_lower_tier *weir_prefix_lower_tier(const weir_prefix *prefix) { return prefix->tier; }

/* ---- space ----------------------------------------------------------------------------------- */
/* States that have the space of KV blocks which are free when n_blocks more are taken, less those
 * that are there. */
static int64_t free_cold_states(const weir_prefix *p, int64_t n_blocks)
{
    const weir_lower_tier *const blocks = weir_kv_store_lower_tier(p->store);
    const int64_t free = weir_lower_tier_free_blocks(blocks) - n_blocks,
                  block = (int64_t)weir_kv_block_stride(weir_kv_store_spec(p->store)),
                  most = free * block / (int64_t)prefix_state_stride(&p->limits);
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

void weir_prefix_leave_disk(weir_prefix *prefix, int64_t n_blocks)
{
    if (prefix == NULL || prefix->tier == NULL) return;
    while (prefix->n_ordered[ORDER_COLD_STATES] > 0 && free_cold_states(prefix, n_blocks) < 0 &&
           drop_first(prefix));
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
    prefix_begin_move(p, index, p->entries[index].memory, false);
    return true;
}

const float *prefix_read_state(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    state_move *const move = prefix_move_of(p, index);
    if (own->memory != NONE) {
        if (move != NULL) move->is_used = true;
        return state_of(p, index);
    }
    if (move != NULL || !prefix_may_move(p, true)) return NULL;
    const int32_t memory = prefix_pop_memory(p);
    p->owners[memory] = index;
    prefix_begin_move(p, index, memory, true);
    return NULL;
}
