/* engine/schedule/tiers.h - which blocks of KV pages leave memory for the tier below (the disk;
 * below a device the host first), and which come back. When they leave is in reclaim.h.
 *
 * Cached prefixes that no sequence uses leave first, LRU first, then the oldest blocks of
 * sequences, those of the longest sequence first. The first block of a sequence (every row attends
 * to it most), sinks, and its last `hot` ones stay, as do pruned sequences. Attention reads blocks
 * where they are, so nothing has to come back to be used; what does come back, where memory is free
 * or held by an unused prefix, is the newest first. Engine thread, between steps. */
#pragma once
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/reclaim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_batch_item;

/* Unused blocks of the cache, until n_blocks are free in memory or no more can leave; NULL: there
 * is no cache. An error is the lower tier's. */
WEIR_MUST_CHECK weir_status weir_tiers_demote_cached(
    weir_kv_store *store, weir_prefix *prefix, int64_t n_blocks, weir_error *error
);
/* One block of the longest sequence that has one, of the items and of the running ones; ENOTFOUND:
 * none has. */
WEIR_MUST_CHECK weir_status weir_tiers_demote_running(
    weir_kv_store *store, const weir_kv_holders *holders, const struct weir_batch_item *items,
    int32_t n_items, int32_t hot, weir_error *error
);
/* A bounded number of blocks of the items' sequences comes back. */
void weir_tiers_promote(
    weir_kv_store *store, const weir_kv_holders *holders, const struct weir_batch_item *items,
    int32_t n_items, int32_t hot
);

/* Blocks that must fit in memory for n_sequences to go on, with steps of `rows` rows beside one row
 * of each. */
static inline int64_t weir_tiers_least_blocks(int64_t n_sequences, int64_t rows, int64_t hot)
{
    return n_sequences * (1 + hot + 2) + (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS + 1;
}

#ifdef __cplusplus
}
#endif
