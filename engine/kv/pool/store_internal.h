/* engine/kv/pool/store_internal.h - internals of the store, shared by pages (store.c,
 * references.c), tables (table.c, table_memory.c), tiers (residency.c, residency_open.c, moves.c,
 * release.c, table_cold.c) and eviction (evict.c). */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "engine/base/worker.h"
#include "engine/kv/pool/store.h"
#include "engine/kv/tiers/residency.h"

/* Pages of one size: numbers [first, first + n) of the pool. */
typedef struct kv_size_class {
    char *memory; /* [n, bytes] */
    size_t bytes;
    int32_t first, n, n_free; /* the free ones are at store->free[first .. first + n_free) */
    int32_t per_block; /* of a block */
    int32_t most, n_resident; /* that may be in memory; that are held there */
    /* [most - n_resident] unused memory of a device, `bytes` each; NULL: pages are at their
     * addresses. */
    void **free_backing;
} kv_size_class;

/* A block of the lower tier. The engine thread's, but for n_readers. */
typedef struct kv_cold_block {
    int32_t n_held; /* pages that are held */
    int32_t next; /* in store->unfreed, or NO_BLOCK */
    atomic_int n_readers; /* threads that read it now: it is freed after that */
    bool is_unreadable; /* could not be read */
} kv_cold_block;

/* Pages whose memory is yet to be returned to the system (release.c); of no use with a device. */
typedef struct kv_released {
    uint64_t *pages; /* one bit per page */
    uint64_t *words; /* one bit per word of `pages` that is not zero */
    int32_t n, first, last; /* last: included */
    int32_t depth; /* of weir_kv_release_begin */
} kv_released;

/* A block that moves between tiers (moves.c). */
enum { KV_MOVES = 16 };
typedef struct kv_move {
    void **pages; /* [heads], held */
    int64_t block; /* its index in tables */
    int32_t place; /* below */
    bool is_up; /* is promoted */
    weir_status status;
    weir_error why;
} kv_move;
typedef struct kv_moves {
    kv_move ring[KV_MOVES]; /* those from n_ended on; the thread's from n_done on */
    int64_t n_ended, n_leaving, n_coming; /* leaving, coming: of those that have not ended */
    int64_t n_failed; /* demotions, since opening */
    weir_error why; /* the last one failed */
    int64_t n_begun, n_done; /* (lock) written by the engine thread; by the thread */
    weir_worker worker;
} kv_moves;

typedef struct kv_unused kv_unused; /* defined in table_memory.c */

/* The last blocks that moved, for tables (table_cold.c). */
enum { KV_MOVED = 256 };
typedef struct kv_moved {
    const void *page; /* the first one */
    int64_t block; /* its index in tables */
    bool is_cold; /* since this move */
} kv_moved;

/* What sizes.c computes from the spec with a loop over the layers, for questions of every step. */
typedef struct kv_sizes {
    size_t block_stride, sink_block_stride, unsealed_rows, table_metadata, window_block;
} kv_sizes;

struct weir_kv_store {
    weir_kv_spec spec;
    weir_kv_windows *windows; /* NULL: spec.windows has no layers */
    kv_sizes sizes;
    uint8_t *head_class; /* [heads] index of the size class of a head's pages past the sinks */
    weir_ledger *ledger;
    /* Of all classes, one after the other; with a lower tier, address space of which n_resident
     * pages are backed. */
    char *memory;
    size_t bytes;
    kv_size_class size_classes
        [WEIR_KV_SIZE_CLASSES + 1]; /* [n_classes], in the order of the layers, the sinks last */
    kv_size_class *sinks; /* NULL: there are none */
    int32_t n_classes;
    void *metadata; /* [pages.n] of each array below; charged to the ledger */
    int32_t *refs; /* per page */
    int32_t *free; /* stacks of page numbers, one per class */
    /* For the watcher; 0: none. Of a page of a joint block, but for the first: -1 - the number of
     * that, where its references, `kept` and owner are. */
    int32_t *owners;
    uint16_t *kept; /* of refs, those of table snapshots (table_snapshot.h) */
    bool *dirty; /* was allocated before: must be cleared first */
    int64_t n_free, n_resident; /* n_resident: held, and in memory */
    int64_t n_counted; /* references taken and dropped, since opening */
    int64_t n_pruned; /* tables */
    int64_t n_table_units, n_free_units; /* memory of all tables; that of none */
    /* Of n_free_units, those that empty tables keep (table_memory.c), and a list of these. The lock
     * guards both: an empty table may be closed while the engine thread runs. */
    int64_t n_unused_units;
    kv_unused *unused;
    pthread_mutex_t unused_lock;
    size_t table_bytes; /* charged */
    weir_kv_pages only_kept; /* pages with refs == kept > 0 */
    /* The watcher's: next in the list of owners with changed pages; 0: not in it. */
    int32_t *changed;
    int32_t first_changed; /* LAST_CHANGED: there are none */

    /* ---- with a tier below: residency.c. Only the engine thread moves pages. `lock` guards where
     * they are, and the memory of those that move, against threads that copy pages which they hold;
     * it is never held over I/O. */
    weir_lower_tier *lower; /* NULL: no policies */
    void *lower_tier_metadata; /* of the arrays below; charged to the ledger */
    /* [pages.n] block of the lower tier that holds the page; NO_BLOCK: it is free or in memory. */
    int32_t *blocks;
    kv_cold_block *cold; /* [blocks of the lower tier] */
    int32_t unfreed; /* list: no page is held, but a thread was reading; NO_BLOCK: none */
    kv_released released;
    int64_t n_on_host; /* pages in blocks of the host */
    /* [pages.n] pruned tables that hold the page; NULL: eviction is off. */
    int32_t *pins;
    size_t address_bytes; /* charged */
    void **backing_metadata; /* of a device: all classes' free backing; charged to the ledger */
    char *backing; /* of a device: all classes' memory */
    size_t backing_bytes;
    pthread_mutex_t lock;
    kv_moves moves;
    const struct weir_kv_view *attended; /* [n_attended] whose blocks stay: prefetch.h */
    int32_t n_attended;
    kv_moved last_moved[KV_MOVED]; /* a ring */
    int64_t n_moved; /* since opening */
    int64_t n_lookups, *lookups; /* lookups: of n_lookups, also for callers that only read */
    weir_kv_residency moved;
};

/* The size classes of the layers. */
typedef struct kv_layer_classes {
    size_t bytes[WEIR_KV_SIZE_CLASSES];
    int32_t per_block[WEIR_KV_SIZE_CLASSES], n;
} kv_layer_classes;
/* Returns false if there are more than a store may have. */
bool kv_find_layer_classes(kv_layer_classes *out, const weir_kv_spec *spec);

enum { NO_BLOCK = -1, LAST_CHANGED = -1 };

int32_t kv_page_number(const weir_kv_store *store, const void *page);
size_t kv_stride_of(const weir_kv_store *store, const void *page);
bool kv_is_sink(const weir_kv_store *store, const void *page);

/* Bytes of one head, enough for an unsealed page that is a sink or not. */
size_t kv_unsealed_bytes(const weir_kv_spec *spec, int64_t layer);
/* Sinks among the first n_blocks of a sequence. */
int64_t kv_sinks_among(const weir_kv_spec *spec, int64_t n_blocks);

/* Pages to be allocated, to check that they are free and fit in memory. All sequences allocate
 * pages of all heads together, but other holders and pruned tables need not. */
typedef struct kv_wanted {
    int64_t n[WEIR_KV_SIZE_CLASSES + 1]; /* per class */
} kv_wanted;
/* Adds one page of a head, at index `block` of its sequence. */
void kv_want(const weir_kv_store *store, kv_wanted *wanted, int64_t head, int64_t block);
/* Adds the pages of all heads at that index. */
void kv_want_block(const weir_kv_store *store, kv_wanted *wanted, int64_t block);
/* True if they fit in addition to n_back blocks that are promoted. */
bool kv_has_free(const weir_kv_store *store, const kv_wanted *wanted, int64_t n_back);
/* These pages, and n whole blocks past the sinks. */
weir_kv_pages kv_wanted_pages(
    const weir_kv_store *store, const kv_wanted *wanted, int64_t n_blocks
);
/* Allocates a page for that place: zero, or a copy. There must be a free one. */
void *kv_take_page(weir_kv_store *store, int64_t head, int64_t block, const void *copy_of);

static inline int64_t kv_pages_per_head(int64_t rows)
{
    return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}

/* The number of the page that has the references and the owner of this one. */
static inline int32_t kv_counted_at(const weir_kv_store *store, int32_t number)
{
    const int32_t owner = store->owners[number];
    return owner < 0 ? -1 - owner : number;
}

/* Tells the watcher that a page changed. */
static inline void kv_page_changed(weir_kv_store *store, int32_t number)
{
    const int32_t owner = store->owners[kv_counted_at(store, number)];
    if (owner == 0 || store->changed[owner] != 0) return;
    store->changed[owner] = store->first_changed;
    store->first_changed = owner;
}

/* Adds (by 1) or removes (by -1) a pruned table's reference. */
static inline void kv_pin(weir_kv_store *store, const void *page, int32_t by)
{
    if (store->pins == NULL) return;
    const int32_t number = kv_page_number(store, page);
    store->pins[number] += by;
    if (store->pins[number] == (by > 0 ? 1 : 0)) kv_page_changed(store, number);
}
/* References to one page of a split block, or of none: those of pruned tables. */
void kv_page_hold(weir_kv_store *store, const void *page);
void kv_page_drop(weir_kv_store *store, void *page);
/* A table snapshot, or a move, takes and releases its reference; to all pages of a block. */
void kv_page_keep(weir_kv_store *store, void *page);
void kv_page_unkeep(weir_kv_store *store, void *page);
void kv_block_keep(weir_kv_store *store, void *const *pages, int64_t stride);
void kv_block_unkeep(weir_kv_store *store, void *const *pages, int64_t stride);
/* True if the block is joint. Its pages may be NULL, if it is one of a pruned table. */
bool kv_is_joint(const weir_kv_store *store, void *const *pages, int64_t stride);
/* New pages, with one reference each, become a joint block. */
void kv_join_block(weir_kv_store *store, void *const *pages, int64_t stride);
/* From now on each page has its own references; nothing to do for a split block. */
void kv_split_block(weir_kv_store *store, void *const *pages, int64_t stride);
/* Releases the entry of a table whose block there is split, if set. */
void kv_table_drop(weir_kv_table *table, weir_kv_store *store, void **entry);
/* Sets the entry to a page that was allocated for it. */
void kv_table_put(weir_kv_table *table, weir_kv_store *store, void **entry, void *page);
/* table_memory.c: the store's memory for tables. */
WEIR_MUST_CHECK weir_status kv_tables_open(weir_kv_store *store, weir_error *error);
void kv_tables_close(weir_kv_store *store); /* also if it was not opened */
/* Reserves the addresses of a table's entries, and gives them back. */
WEIR_MUST_CHECK weir_status
kv_table_map(weir_kv_table *table, weir_kv_store *store, weir_error *error);
void kv_table_unmap(weir_kv_table *table, weir_kv_store *store);
/* The table has lost pages: returns memory that it does not need. */
void kv_table_fit(weir_kv_table *table, weir_kv_store *store);
/* Marks the table as pruned, and all that it holds. */
void kv_table_mark_pruned(weir_kv_table *table, weir_kv_store *store);

/* Backs a page that is allocated or promoted with memory. Returns false if its memory is zero. Its
 * class must have space. */
bool kv_enter(weir_kv_store *store, kv_size_class *size_class, void *page);
/* The last holder released it: returns its memory (with a lower tier), or its part of a block
 * below. */
void kv_leave(weir_kv_store *store, void *page);
kv_size_class *kv_size_class_at(const weir_kv_store *store, const void *page);
/* Returns the counter of this class. */
int64_t *kv_count_of(
    const weir_kv_store *store, weir_kv_pages *pages, const kv_size_class *size_class
);
/* Copies a page of layer and head number `head`, wherever it is, to memory near the kernels,
 * aligned to 4096 bytes. Engine thread. */
WEIR_MUST_CHECK weir_status
kv_page_load(weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error);

/* table_cold.c: the table looks at what has moved; counts anew; its first head's page at an index
 * will be dropped; was set. */
void kv_table_catch_up(weir_kv_table *table, const weir_kv_store *store);
void kv_table_recount(weir_kv_table *table, const weir_kv_store *store);
void kv_table_loses(weir_kv_table *table, const weir_kv_store *store, int64_t block);
void kv_table_gets(weir_kv_table *table, const weir_kv_store *store, int64_t block);
/* Only its first n_blocks are left. */
void kv_table_keeps(weir_kv_table *table, int64_t n_blocks);
/* The block at this index of tables is in the lower tier now, or in memory. */
void kv_block_moved(weir_kv_store *store, const void *page, int64_t block, bool is_cold);
/* What is_sound asks: true if the table's counts and bounds are right. */
bool kv_table_cold_is_right(const weir_kv_table *table, const weir_kv_store *store);

/* release.c: words of the bits of n_pages, and of the bits of these words. */
static inline int64_t kv_release_words(int64_t n_pages) { return (n_pages + 63) / 64; }
/* The page has no holder any more, or is cold: its memory is returned at weir_kv_release_end, at
 * once outside of it. */
void kv_release(weir_kv_store *store, const void *page);
/* Returns what waits for it, before memory is taken. */
void kv_release_now(weir_kv_store *store);

WEIR_MUST_CHECK weir_status kv_residency_open(weir_kv_store *store, weir_error *error);
void kv_residency_close(weir_kv_store *store); /* also if it was only partly opened */
