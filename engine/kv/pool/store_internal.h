/* engine/kv/pool/store_internal.h - the inside of the store, shared by pages (store.c), tables
 * (table.c), where pages are (residency.c) and eviction (evict.c). */
#pragma once
#include <pthread.h>

#include "engine/kv/pool/store.h"
#include "engine/kv/tiers/residency.h"

/* Pages of one size: numbers [first, first + n) of the pool. */
typedef struct kv_size_class {
    char *memory; /* [n, bytes] */
    size_t bytes;
    int32_t first, n, n_free; /* the free ones are at store->free[first .. first + n_free) */
    int32_t per_block; /* of a block */
    int32_t most, n_resident; /* that may be in memory, and that are held there */
    /* [most - n_resident] of a device's memory, of `bytes` each; NULL: pages are where their
     * addresses say */
    void **free_slots;
} kv_size_class;

struct weir_kv_store {
    weir_kv_spec spec;
    weir_ledger *ledger;
    /* Of all kinds, one after the other; with a tier below address space, of which n_resident
     * pages are backed */
    char *memory;
    size_t bytes;
    kv_size_class size_classes
        [WEIR_KV_SIZE_CLASSES + 1]; /* [n_classes], in the order of the layers, the sinks last */
    kv_size_class *sinks; /* NULL: there are none */
    int32_t n_classes;
    void *books; /* [n_pages] of each array below; on the ledger */
    int32_t *refs; /* per page */
    int32_t *free; /* stacks of page numbers, one per kind */
    uint16_t *kept; /* of refs, those of parcels (table_snapshot.h) */
    bool *dirty; /* was handed out before: clear it first */
    int64_t n_free, n_resident; /* n_resident: held, and in memory */
    int64_t n_pruned; /* tables */

    /* ---- with a tier below: residency.c. `lock` guards where pages are against threads that copy
     * them; only the engine thread moves them. */
    weir_lower_tier *lower; /* NULL: there is none */
    void *lower_tier_metadata; /* of the arrays below; on the ledger */
    /* [n_pages] block of the spill that holds the page, NO_BLOCK: it is free or in memory */
    int32_t *blocks;
    int32_t *alive; /* [blocks of the spill] pages that are held */
    bool *lost; /* [blocks of the spill] could not be read */
    int64_t n_on_host; /* pages in blocks of the host */
    int32_t *pins; /* [n_pages] cut tables that hold the page; NULL: there are none such */
    size_t address_bytes; /* charged */
    void **slot_metadata; /* of a device: all kinds' free slots; on the ledger */
    char *slots; /* of a device: all kinds' memory */
    size_t slot_bytes;
    pthread_mutex_t lock;
    weir_kv_residency moved;
};

/* The size classes of the layers. */
typedef struct kv_layer_classes {
    size_t bytes[WEIR_KV_SIZE_CLASSES];
    int32_t per_block[WEIR_KV_SIZE_CLASSES], n;
} kv_layer_classes;
/* false: there are more than a store may have. */
bool kv_find_layer_classes(kv_layer_classes *out, const weir_kv_spec *spec);

enum { NO_BLOCK = -1 };

int32_t kv_page_number(const weir_kv_store *store, const void *page);
size_t kv_stride_of(const weir_kv_store *store, const void *page);
bool kv_is_sink(const weir_kv_store *store, const void *page);

/* Of one head; the open page is a sink or not: room for either */
size_t kv_open_bytes(const weir_kv_spec *spec, int64_t layer);

/* Pages that something is about to take, and whether they are free and memory has room for them.
 * All sequences take pages of all heads together, but other holders and cut tables need not. */
typedef struct kv_wanted {
    int64_t n[WEIR_KV_SIZE_CLASSES + 1]; /* of each kind */
} kv_wanted;
/* One of a head's, number `block` in its text */
void kv_want(const weir_kv_store *store, kv_wanted *wanted, int64_t head, int64_t block);
/* Beside n_back blocks that come back from the disk */
bool kv_has_free(const weir_kv_store *store, const kv_wanted *wanted, int64_t n_back);
/* These, and so many whole blocks past the sinks. */
weir_kv_pages kv_wanted_pages(
    const weir_kv_store *store, const kv_wanted *wanted, int64_t n_blocks
);
/* A free page of that place: zero, or a copy. There is one. */
void *kv_take_page(weir_kv_store *store, int64_t head, int64_t block, const void *copy_of);

static inline int64_t kv_pages_per_head(int64_t rows)
{
    return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}

/* A page becomes or is no longer a cut table's. */
static inline void kv_pin(weir_kv_store *store, const void *page, int32_t by)
{
    if (store->pins != NULL) store->pins[kv_page_number(store, page)] += by;
}
/* The table's entry is let go, if there is one. */
void kv_table_drop(weir_kv_table *table, weir_kv_store *store, void **entry);
/* The entry becomes a page that was taken for it. */
void kv_table_put(weir_kv_table *table, weir_kv_store *store, void **entry, void *page);
/* What the table holds is a cut table's from now on. */
void kv_table_mark_pruned(weir_kv_table *table, weir_kv_store *store);

/* A page that is taken or comes back is in memory from now on; false: its memory is zero. Its kind
 * has room. */
bool kv_enter(weir_kv_store *store, kv_size_class *size_class, void *page);
/* Nobody holds it any more, and there is no tier below, or it gives back its memory, or its part of
 * a place below. */
void kv_leave(weir_kv_store *store, void *page);
kv_size_class *kv_size_class_at(const weir_kv_store *store, const void *page);

WEIR_MUST_CHECK weir_status kv_residency_open(weir_kv_store *store, weir_error *error);
void kv_residency_close(weir_kv_store *store); /* also of one that was opened in part */
