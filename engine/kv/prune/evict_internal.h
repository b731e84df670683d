/* engine/kv/prune/evict_internal.h - the inside of eviction: what stays of each head (evict.c),
 * rows that are moved or coded again (evict_rows.c), products with keys (evict_products.c), what
 * the stream has to have for all of it (evict_room.c), tables of which something is on disk
 * (evict_cold.c). Heads are numbered over all layers. */
#pragma once
#include "engine/kv/pool/store_internal.h"
#include "engine/kv/prune/evict.h"

enum {
    COPIES = WEIR_POLICY_TILE / WEIR_PAGE_TOKENS + 1, /* pages that a tile touches */
    /* Of one call on a device, which they are copied to: so many at most, and no more than make
     * so many products, but one */
    VECTORS = 256,
    PRODUCTS = 1 << 18
};

/* What stays of a head: row keep[i] becomes row i < n_keep. */
typedef struct kv_stay {
    const int32_t *keep; /* NULL: all rows */
    int32_t n, n_keep, first; /* rows now; that stay; the first that moves, n_keep if none does */
    int32_t n_turned; /* of those that stay in place */
} kv_stay;

struct weir_kv_evictor {
    weir_kv_store *store;
    weir_stream *stream;
    weir_ledger *ledger;
    void *memory; /* owns the arrays */
    size_t bytes, copy_bytes;
    size_t device_scratch_size, host_scratch_size; /* that the stream took for this, charged here */
    char *near; /* near the kernels: owns copies and unsealed */
    /* [COPIES, copy_bytes] cold pages that were read; this and `fresh` only with a tier below */
    char *copies;
    /* [heads, capacity] the pages that a table of which something is on disk will have in place
     * of its own */
    void **fresh;
    kv_stay *stays; /* [heads] */
    const weir_kv_keep *wish; /* of the eviction that is running */
    weir_kv_compact_segment *segments; /* [KV heads] */
    float *keys, *values; /* [64, dim] rows on their way */
    float *page_keys, *page_values; /* [64, dim] rows of the page that they come from */
    char *unsealed; /* unsealed rows as the table will have them, all heads */
    int32_t *lists; /* [KV heads, max_rows] */
    int32_t *n_lists; /* [KV heads] */
};

/* Pages that rows are written into. */
typedef struct kv_page_range {
    int64_t first, end;
} kv_page_range;
kv_page_range evict_written(const weir_kv_evictor *e, int64_t head, const kv_stay *stay);

/* Pages of the head code a page as a whole. */
bool evict_is_whole(const weir_kv_evictor *e, int64_t head);
char *evict_unsealed_rows(const weir_kv_evictor *e, int64_t head); /* NULL: it has none */
/* Of the rows that stay: how many are sinks, and how many will be. Between the two lie those that
 * go from one sort of page to the other. */
typedef struct kv_border {
    int64_t from, to;
} kv_border;
kv_border evict_border(const weir_kv_evictor *e, const kv_stay *stay);

/* A page of a table in memory: itself, or read to copy number `copy`. */
WEIR_MUST_CHECK weir_status evict_page(
    weir_kv_evictor *e, const void *page, int64_t head, int64_t copy, void **out, weir_error *error
);
/* Rows [first, end) of what stays, coded again in pages `to` [capacity] of the head; unsealed rows
 * go to evict_unsealed_rows. */
WEIR_MUST_CHECK weir_status evict_recode(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, void *const *to, int64_t first,
    int64_t end, weir_error *error
);
/* evict_room.c: sees to it that the stream has what the calls here ask of it. */
WEIR_MUST_CHECK weir_status evict_take_scratch(weir_kv_evictor *e, weir_error *error);
void evict_give_scratch(weir_kv_evictor *e);
/* Keys of the head's first rows, as the wish has them, into pages `to` that hold them already. */
void evict_turn(weir_kv_evictor *e, int64_t head, void *const *to);
/* Runs kv_compact over the first n segments. */
void evict_compact(weir_kv_evictor *e, int64_t n, weir_kv_pair pair);
/* Moves the rows of a layer's heads in the table's own pages, which are in memory. */
void evict_in_place(weir_kv_evictor *e, const weir_kv_table *table, int64_t layer);

/* Fills the pages of e->fresh; the table is read only. */
WEIR_MUST_CHECK weir_status
evict_to_fresh(weir_kv_evictor *e, const weir_kv_table *table, weir_error *error);
