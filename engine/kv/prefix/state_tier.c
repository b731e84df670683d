/* engine/kv/prefix/state_tier.c - recurrent states on disk.
 *
 * The end of a turn whose memory is taken is written to a file; its slot stays on its node, without
 * memory. A prompt that continues there reads it into its sequence. It gets memory again if some is
 * free, or when it is read for the second time: most ends are continued once. A state that cannot
 * be read is dropped, and the prompt continues at the one before it.
 *
 * States take the space of KV blocks that are free on disk, and leave it when blocks need it. The
 * file is a lower tier of its own (lower_tier.h), with one block for each state. The engine thread
 * waits for it as it does for promoted blocks: after WEIR_PREFIX_STEP_BYTES in one step, no state
 * is written, and jobs that would read one start with the next step. */
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/prefix_internal.h"

static size_t room_of(const weir_prefix_limits *limits)
{
    const size_t mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    return (limits->snapshot_bytes + mask) & ~mask;
}

size_t prefix_transfer_bytes(const weir_prefix_limits *limits)
{
    return limits->n_cold > 0 ? room_of(limits) + WEIR_LOWER_TIER_ALIGNMENT : 0;
}

size_t prefix_tier_metadata_bytes(const weir_prefix_limits *limits)
{
    return limits->n_cold > 0 ? weir_lower_tier_metadata_bytes(limits->n_cold, 0, 1, 1) : 0;
}

weir_status prefix_open_tier(weir_prefix *p, weir_error *error)
{
    const weir_lower_tier_part part = { .n_pages = 1, .page_bytes = room_of(&p->limits) };
    const weir_lower_tier_layout layout = {
        .folder = p->limits.disk_folder, .n_blocks = p->limits.n_cold, .n_parts = 1, .parts = &part
    };
    if (p->limits.n_cold == 0) return WEIR_OK;
    const uintptr_t start = (uintptr_t)p->transfer_memory, mask = WEIR_LOWER_TIER_ALIGNMENT - 1;
    p->transfer = p->transfer_memory + (((start + mask) & ~mask) - start);
    memset(p->transfer, 0, part.page_bytes);
    return weir_lower_tier_open(&p->tier, &layout, p->ledger, error);
}

weir_lower_tier *weir_prefix_lower_tier(const weir_prefix *prefix) { return prefix->tier; }

void weir_prefix_begin_step(weir_prefix *prefix) { prefix->step_bytes = WEIR_PREFIX_STEP_BYTES; }

bool weir_prefix_may_read(const weir_prefix *prefix)
{
    return prefix->tier == NULL || prefix->step_bytes > 0;
}

/* ---- room ------------------------------------------------------------------------------------ */
/* States that have the space of KV blocks which are free when n_blocks more are taken, less those
 * that are there. */
static int64_t room_for(const weir_prefix *p, int64_t n_blocks)
{
    const weir_lower_tier *const blocks = weir_kv_store_lower_tier(p->store);
    const int64_t free = weir_lower_tier_free_blocks(blocks) - n_blocks,
                  block = (int64_t)weir_kv_block_stride(weir_kv_store_spec(p->store)),
                  most = free * block / (int64_t)room_of(&p->limits);
    const int64_t n = most < p->limits.n_cold ? most : p->limits.n_cold;
    return n - (p->limits.n_cold - weir_lower_tier_free_blocks(p->tier));
}

int32_t prefix_cold_room(const weir_prefix *p)
{
    const int64_t n = p->tier != NULL ? room_for(p, 0) : 0;
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
    while (prefix->n_ordered[ORDER_COLD_STATES] > 0 && room_for(prefix, n_blocks) < 0 &&
           drop_first(prefix));
}

/* ---- moving ---------------------------------------------------------------------------------- */
static bool write_state(weir_prefix *p, int32_t index, int32_t block)
{
    weir_error error = { 0 };
    const struct iovec all = { p->transfer, room_of(&p->limits) };
    weir_ledger_copy(p->ledger, p->transfer, state_of(p, index), p->limits.snapshot_bytes);
    p->step_bytes -= (int64_t)all.iov_len;
    if (weir_lower_tier_write(p->tier, block, 0, &all, 1, &error) == WEIR_OK) return true;
    if (p->stats.snapshot_errors++ == 0)
        weir_log(WEIR_LOG_WARNING, "recurrent states are dropped: %s", error.text);
    return false;
}

bool prefix_demote_state(weir_prefix *p, int32_t index)
{
    int32_t block;
    if (p->tier == NULL || p->slots[index].rank < WEIR_STATE_PAST || p->step_bytes <= 0)
        return false;
    while (room_for(p, 0) < 1)
        if (!drop_first(p)) return false;
    if (weir_lower_tier_alloc(p->tier, &block, NULL) != WEIR_OK) return false;
    if (!write_state(p, index, block)) {
        weir_lower_tier_free(p->tier, block);
        return false;
    }
    prefix_move_state(p, index, block);
    p->stats.snapshots_out++;
    return true;
}

/* Reads a state to `transfer`, or drops it. */
static bool read_state(weir_prefix *p, int32_t index)
{
    weir_error error = { 0 };
    p->step_bytes -= (int64_t)room_of(&p->limits);
    if (weir_lower_tier_read(
            p->tier, p->slots[index].block, 0, 0, p->transfer, room_of(&p->limits), &error
        ) == WEIR_OK)
        return true;
    if (p->stats.snapshot_errors++ == 0)
        weir_log(WEIR_LOG_WARNING, "a recurrent state is computed again: %s", error.text);
    prefix_drop_state(p, index);
    return false;
}

bool prefix_promote_state(weir_prefix *p, int32_t index)
{
    slot *const own = &p->slots[index];
    if (own->memory != NONE) return true;
    own->pins++; /* what makes room for it must not drop it */
    const int32_t memory = prefix_take_memory(p, own->rank);
    own->pins--;
    if (memory == NONE) return false;
    if (!read_state(p, index)) {
        prefix_give_memory(p, memory);
        return false;
    }
    prefix_return_state(p, index, memory);
    weir_ledger_copy(p->ledger, state_of(p, index), p->transfer, p->limits.snapshot_bytes);
    p->stats.snapshots_back++;
    return true;
}

const float *prefix_read_state(weir_prefix *p, int32_t index)
{
    slot *const own = &p->slots[index];
    if (own->memory == NONE && (p->n_free_memory > 0 || own->was_read) &&
        !prefix_promote_state(p, index) && own->state != SLOT_KEPT)
        return NULL;
    if (own->memory != NONE) return state_of(p, index);
    own->was_read = true;
    if (!read_state(p, index)) return NULL;
    p->stats.snapshots_back++;
    return (const float *)p->transfer;
}
