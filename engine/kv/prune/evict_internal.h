/* engine/kv/prune/evict_internal.h - internals of eviction: the rows of each head that stay
 * (evict.c), moving and recoding rows (evict_rows.c), products with keys (evict_products.c),
 * scratch of the stream (evict_scratch.c), tables with blocks on disk (evict_cold.c). Heads are
 * numbered over all layers. */
#pragma once
#include <stdatomic.h>

#include "engine/kv/pool/store_internal.h"
#include "engine/kv/prune/evict.h"

enum {
    COPIES = WEIR_POLICY_TILE / WEIR_PAGE_TOKENS + 1, /* pages that a tile touches */
    /* At most 256 vectors and 2^18 products per call on a device, but always at least one
     * vector. */
    VECTORS = 256,
    PRODUCTS = 1 << 18
};

/* The rows of a head that stay: row keep[i] becomes row i < n_keep. */
typedef struct kv_stay {
    const int32_t *keep; /* NULL: all rows */
    /* Rows now; rows that stay; the first that moves, or n_keep if none does. */
    int32_t n, n_keep, first;
    int32_t n_rotated; /* of those that stay in place */
} kv_stay;

struct weir_kv_evictor {
    weir_kv_store *store;
    weir_stream *stream;
    weir_ledger *ledger;
    void *memory; /* owns the arrays */
    size_t bytes, copy_bytes;
    /* Allocated by the stream for this, charged here. */
    size_t device_scratch_size, host_scratch_size;
    char *near; /* near the kernels: holds copies and open */
    /* [COPIES, copy_bytes] cold pages that were read; this and `fresh` only with a lower tier. */
    char *copies;
    /* [heads, stride] new pages of a table with blocks on disk; stride: pages of a window. */
    void **fresh;
    int64_t stride;
    kv_stay *stays; /* [heads of all layers] */
    const weir_kv_keep *keep; /* of the running eviction */
    weir_kv_compact_segment *segments; /* [KV heads of the layer with the most] */
    float *keys, *values; /* [64, widest row] rows to be written */
    float *page_keys, *page_values; /* [64, widest row] rows of the page read */
    float *tile_keys; /* [WEIR_POLICY_TILE, widest row], if values of some layer alias keys */
    char *unsealed; /* the table's unsealed rows after the eviction, all heads */
    int32_t *lists; /* [KV heads of the layer with the most, max_rows] */
    int32_t *n_lists; /* [KV heads of the layer with the most] */
    /* Set: a thread reads and moves rows (pruner.c) until this is true. It copies pages that may
     * leave memory before it reads them, and whatever is on disk comes to a new page. */
    const atomic_bool *is_stopped;
    const void *unreadable; /* page whose copy failed */
};

/* Pages that rows are written to. */
typedef struct kv_page_range {
    int64_t first, end;
} kv_page_range;
kv_page_range evict_written(const weir_kv_evictor *e, int64_t head, const kv_stay *stay);

/* True if pages of the head are coded as a whole. */
bool evict_is_whole(const weir_kv_evictor *e, int64_t head);
/* Returns NULL if it has none. */
char *evict_unsealed_rows(const weir_kv_evictor *e, int64_t head);
/* Of the rows that stay: how many are sinks, and how many will be. Those in between move from one
 * kind of page to the other. */
typedef struct kv_border {
    int64_t from, to;
} kv_border;
kv_border evict_border(const weir_kv_evictor *e, const kv_stay *stay);

/* A page of a table in memory: the page itself, or read to copy number `copy`. */
WEIR_MUST_CHECK weir_status evict_page(
    weir_kv_evictor *e, const void *page, int64_t head, int64_t copy, void **out, weir_error *error
);
/* Copies a page, wherever it is. EIO: it is marked as unreadable, by a thread in e->unreadable. */
WEIR_MUST_CHECK weir_status
evict_load(weir_kv_evictor *e, void *bytes, const void *page, int64_t head, weir_error *error);
/* Recodes rows [first, end) of the kept rows into pages `to` [capacity] of the head; unsealed rows
 * are written to evict_unsealed_rows. */
WEIR_MUST_CHECK weir_status evict_recode(
    weir_kv_evictor *e, const weir_kv_table *table, int64_t head, void *const *to, int64_t first,
    int64_t end, weir_error *error
);
/* evict_scratch.c: makes the stream allocate the scratch that the calls here need. */
WEIR_MUST_CHECK weir_status evict_take_scratch(weir_kv_evictor *e, weir_error *error);
void evict_give_scratch(weir_kv_evictor *e);
/* Writes rotated keys of the head's first rows, as requested, to pages `to`, which hold the rows
 * already. */
void evict_rotate(weir_kv_evictor *e, int64_t head, void *const *to);
/* Runs kv_compact over the first n segments, which are heads of the layer. */
void evict_compact(weir_kv_evictor *e, int64_t layer, int64_t n, weir_kv_pair pair);
/* Moves the rows of a layer's heads in the table's own pages, which are in memory. */
void evict_in_place(weir_kv_evictor *e, const weir_kv_table *table, int64_t layer);

/* Fills in the pages of e->fresh; only reads the table. */
WEIR_MUST_CHECK weir_status
evict_to_fresh(weir_kv_evictor *e, const weir_kv_table *table, weir_error *error);

/* Parts of weir_kv_evict. `begin` finds what stays, and checks that there is room; `drops` false:
 * nothing is to be done. `take` takes the pages; then, if rows go to fresh ones, evict_to_fresh
 * fills them in. `end` puts them in place and updates the table, or drops them. */
typedef struct kv_eviction {
    bool drops, to_fresh;
} kv_eviction;
WEIR_MUST_CHECK weir_status evict_begin(
    weir_kv_evictor *e, weir_kv_table *table, const weir_kv_keep *keep, kv_eviction *out,
    weir_error *error
);
void evict_take(weir_kv_evictor *e, weir_kv_table *table, bool to_fresh);
void evict_end(weir_kv_evictor *e, weir_kv_table *table, bool to_fresh);
void evict_drop_fresh(weir_kv_evictor *e);
/* True if the page of the head at this index stays where it is, after `take`. */
bool evict_page_stays(const weir_kv_evictor *e, int64_t head, int64_t page);
