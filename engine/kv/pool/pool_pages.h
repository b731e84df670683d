/* engine/kv/pool/pool_pages.h - how many pages the pool has, and a head of a table, and
 * where they are. */
#pragma once
#include <stdint.h>

typedef struct weir_kv_pool_pages {
    int64_t n; /* of the pool, cold ones included */
    /* Of these: the most on disk, 0: there is no disk; the most on the host below a device, in
     * addition to those on disk; and those for sinks. Whole blocks. */
    int64_t n_disk, n_host, n_sinks;
} weir_kv_pool_pages;

/* Of a head in a table (tiers/page_counts.h). */
typedef struct weir_kv_page_counts {
    /* Of `pages`: in the lower tier; in memory, and held by others, too. */
    int32_t pages, cold, shared;
} weir_kv_page_counts;
