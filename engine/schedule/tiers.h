/* engine/schedule/tiers.h - which blocks of KV pages are demoted to the lower tier (the disk; below
 * a device the host first), and which are promoted. reclaim.h decides when.
 *
 * Cached prefixes that no sequence uses are demoted first, LRU first, then the oldest blocks of
 * sequences, those of the longest sequence first. The first block of a sequence (every row attends
 * to it most), sinks and the last `hot` blocks stay, as do pruned sequences. Attention reads blocks
 * in place, so a block need not be promoted to be used. Where memory is free or held by an unused
 * prefix, the newest blocks are promoted first. A thread of the store moves them while steps go on
 * (residency.h). Engine thread, between steps. */
#pragma once
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/reclaim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_batch_item;

/* Begins to demote blocks until, with those that leave, n_blocks will be free in memory, no more
 * can be demoted, or as many move as may: unused cached ones; those of the longest sequences among
 * the works and the running ones, or ENOTFOUND if there are too few. Other errors are those of the
 * lower tier. */
WEIR_MUST_CHECK weir_status weir_tiers_demote_cached(
    weir_kv_store *store, const weir_kv_holders *holders, int64_t n_blocks, weir_error *error
);
WEIR_MUST_CHECK weir_status weir_tiers_demote_running(
    weir_kv_store *store, const weir_kv_holders *holders, const struct weir_batch_item *items,
    int32_t n_items, int32_t hot, int64_t n_blocks, weir_error *error
);
/* Ends moves. Begins to demote what two such steps may need, and to promote a bounded number of
 * blocks of the works' sequences. n_short: blocks in addition, for sequences that stalled. */
void weir_tiers_move(
    weir_kv_store *store, const weir_kv_holders *holders, const struct weir_batch_item *items,
    int32_t n_items, int32_t hot, int64_t n_short
);

/* Ends moves whose bytes are there; `wait`: waits for the oldest one. Logs failures. Returns true
 * if there were any. */
bool weir_tiers_settle(weir_kv_store *store, bool wait);

/* Pages that sequences can take: free ones, and those of cached prefixes that no sequence uses.
 * While the lower tier fails these are the ones near the kernels, since nothing there can be
 * demoted to use the others. prefix NULL: there is no cache. */
weir_kv_pages weir_tiers_free_pages(const weir_kv_store *store, weir_prefix *prefix);
/* True if the lower tier fails and no sequence holds pages. One may start then whatever it needs:
 * nothing will be freed by waiting, and only a write can show that the tier works again. */
bool weir_tiers_may_try(const weir_kv_store *store, const weir_kv_holders *holders);

/* Blocks that must fit in memory for n_sequences to continue, with steps of `rows` rows in addition
 * to one row of each. */
static inline int64_t weir_tiers_least_blocks(int64_t n_sequences, int64_t rows, int64_t hot)
{
    return n_sequences * (1 + hot + 2) + (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS + 1;
}

/* Where a policy is applied, the first block and the hot ones stay until the rows that it keeps are
 * in new pages: blocks that memory has in addition to those of sequences. */
static inline int64_t weir_tiers_kept_blocks(int64_t hot) { return 1 + hot; }

/* Blocks that must fit if the sequences have at most `all` together. */
static inline int64_t weir_tiers_needed_blocks(
    int64_t n_sequences, int64_t rows, int64_t hot, int64_t all
)
{
    const int64_t least = weir_tiers_least_blocks(n_sequences, rows, hot),
                  whole = all + weir_tiers_kept_blocks(hot);
    return least < whole ? least : whole;
}

#ifdef __cplusplus
}
#endif
