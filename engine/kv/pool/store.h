/* engine/kv/pool/store.h - paged KV memory: a fixed number of pages, tables per (sequence, layer,
 * KV head), reference counts, copy on write.
 *
 *   page   64 tokens of one KV head of one layer, K and V together (kernels/abi/kv_format.h).
 *          Layers may differ in formats, widths and heads. Pages of equal size are one size class;
 *          each size class has its own part of the pool, for the same number of tokens.
 *   table  pages [heads of all layers, capacity] of one sequence, and the unsealed rows of its last
 *          page if a format has them. The capacity grows with the sequence; the memory for all
 *          tables (spec.table_bytes) is limited as the pool is, in units of 4096 bytes.
 *   block  the pages of the same 64 tokens in all layers and heads
 *   slot   where a head's row is: page slot / 64, row slot % 64. As long as a table is whole,
 *          slots are positions and all heads hold the same rows. Once rows were evicted it is
 *          pruned (is_pruned, evict.h): each head has its own rows, compacted, and pages for those
 *          only.
 *   sinks  the first blocks of every sequence may have other formats (spec.sinks). Their pages
 *          are a separate size class and are counted separately: one may be full while the other is
 *          not. They stay in memory as long as they are held.
 *   tiers  with a tier below (weir_kv_cold_pages > 0) a block is in memory, that is near the
 *          kernels, or cold: on disk, and below a device on the host first (lower_tier.h). Its
 *          pages keep their addresses, so holders need not know; before bytes are accessed the
 *          block must be promoted (residency.h). Pages are then rounded to 4096 bytes.
 * Invariants
 *   1 A page is free, or held by refs >= 1 tables and other holders; the pool never grows: the byte
 *     budget is the number of pages.
 *   2 Rows [0, weir_kv_rows_at) of a head are visible and never rewritten while shared; rows past
 *     them are scratch of the running step.
 *   3 A table that will write into a page is its only holder: weir_kv_reserve copies a shared
 *     last page first, weir_kv_evict all that rows move into. After an eviction the pages of a
 *     block may be shared differently, so each head is checked.
 *   4 An allocated page is zero, or a copy: kernels may multiply unwritten rows by a zero
 *     probability. Unsealed rows that were not written are those of an earlier page, or zero:
 *     finite, which is sufficient.
 *   5 Unsealed rows belong to one table. If a format has them, shared pages are whole: a
 *     sealed page is unsealed only by weir_kv_evict, which recodes a table's own pages. So a
 *     sequence in such a format is cached and continued at multiples of 64 tokens only
 *     (weir_kv_is_paged).
 *   6 At most pages.n less the cold ones are in memory, n_sinks of them sinks, and of each
 *     class its part, which is checked before a page is allocated or promoted. Free and cold pages
 *     use no memory. A cold block keeps its place in the lower tier as long as one of its pages is
 *     held.
 *   7 The pages of a block move together, so checking the first one is enough: for a whole table,
 *     and for the prefix tree. What a running step writes to is in memory.
 *   8 A pruned table's pages are in memory and stay there (weir_kv_may_leave), also for other
 *     holders of the same pages, so only whole blocks move. Entries past a head's pages are NULL.
 *     A pruned table can only be truncated to nothing, and only forks share its pages: prefix
 *     matching does not find them.
 *   9 With a device, pages and unsealed rows are device memory (offload/ledger.h), which only
 *     kernels and copies can access. With a lower tier, pages are addresses of its space
 *     (offload/device.h), which are backed unless they are cold.
 *  10 A table's entries may move when it gets pages (weir_kv_reserve, weir_kv_table_grow), so
 *     addresses of entries hold until then. An empty table has no entries; what memory it
 *     keeps counts as free.
 *  11 Layers with a sliding window may have memory of their own (spec.windows): then the layers,
 *     heads, pages and blocks of all else here are those of the other layers.
 *  12 The pages of a block are allocated together and held together, so they have one count of
 *     references: the block is joint. Once a table that holds it is pruned each page has a count of
 *     its own, for all holders: it is split, and stays so until its pages are free.
 * Engine thread only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/pool/geometry.h"
#include "engine/kv/pool/pool_pages.h"
#include "engine/kv/pool/windows.h"
#include "kernels/abi/kv_format.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_spec {
    int64_t n_layers; /* layers with KV rows of their own */
    /* [n_layers], with first_head set; borrowed, must outlive the store. */
    const weir_kv_geometry *geometry;
    /* [n_layers], borrowed, must outlive the store; each supports the widths. */
    const weir_kv_pair *formats;
    /* pages.n is a multiple of weir_kv_pages_for(1) if pages differ in size, or with a lower
     * tier. */
    weir_kv_pool_pages pages;
    int64_t max_rows; /* window: rows of one sequence */
    const char *disk_folder; /* borrowed while the store is opened */
    weir_kv_sinks sinks; /* of every sequence */
    bool evicts; /* tables may be pruned */
    bool has_device; /* the ledger has one */
    /* Of the entries of all tables, charged when the store opens; 0: those of 64 windows. */
    size_t table_bytes;
    /* Layers with a window whose rows are dropped once no later row reads them; not with a device.
     * None of the other fields counts them. */
    weir_kv_windows_spec windows;
} weir_kv_spec;

/* Returns the number of KV heads of all layers. */
static inline int64_t weir_kv_n_heads(const weir_kv_spec *spec)
{
    const int64_t n = spec->n_layers;
    return n > 0 ? spec->geometry[n - 1].first_head + spec->geometry[n - 1].n_heads : 0;
}
/* Returns the layer of KV head `head`, an index among the heads of all layers. */
int64_t weir_kv_layer_of(const weir_kv_spec *spec, int64_t head);
/* Returns the most KV heads that any layer has. */
int64_t weir_kv_most_heads(const weir_kv_spec *spec);
/* Returns a geometry with the widest rows of K and of V of any layer. */
weir_kv_geometry weir_kv_widest(const weir_kv_spec *spec);

/* The most pages that are not near the kernels; 0: there is no lower tier. */
static inline int64_t weir_kv_cold_pages(const weir_kv_spec *spec)
{
    return spec->pages.n_disk + spec->pages.n_host;
}

typedef struct weir_kv_store weir_kv_store;

/* What a table knows of its blocks in the lower tier, as of a move of the store
 * (tiers/table_cold.c). */
typedef struct weir_kv_table_cold {
    int64_t n, end; /* their number; all are before `end` */
    /* From the first block past the sinks that is not 0 on, all before this one are there. */
    int64_t first_near;
    bool is_near; /* that one is in memory, or there is none */
    int64_t as_of; /* moves of the store that it has seen */
} weir_kv_table_cold;

typedef struct weir_kv_table {
    void **pages; /* [n_heads, capacity]; owned */
    /* [n_heads] unsealed rows of each head's last page, NULL for layers without; NULL: no layer has
     * any. */
    void **unsealed;
    void *unsealed_memory; /* owned, charged to the ledger */
    /* [n_heads] visible rows of each; NULL if the store does not evict: all have n_rows. */
    int32_t *head_rows;
    void *metadata; /* of the two arrays above; owned, charged to the ledger */
    const weir_kv_geometry *geometry; /* [n_layers]; the store's */
    int64_t n_heads; /* heads of all layers */
    int64_t capacity; /* pages per head that `pages` has memory for */
    int64_t n_units; /* of that memory */
    int64_t n_pages; /* of the longest head, held now */
    /* Of the longest head; of the sequence if there are no heads. */
    int64_t n_rows;
    bool is_pruned; /* rows were evicted */
    weir_kv_table_cold cold;
    weir_kv_window_table windows; /* rows of the layers of spec.windows */
} weir_kv_table;

/* Visible rows of a (layer, KV head): slots 0 .. rows - 1. */
static inline int64_t weir_kv_rows_at(const weir_kv_table *table, int64_t layer_head)
{
    return table->head_rows != NULL ? table->head_rows[layer_head] : table->n_rows;
}

/* ---- sizes ----------------------------------------------------------------------------------- */
size_t weir_kv_page_bytes(const weir_kv_spec *spec, int64_t layer);
/* Bytes of the page at index `block` of a sequence, which may be a sink. */
size_t weir_kv_page_bytes_at(const weir_kv_spec *spec, int64_t layer, int64_t block);
/* Bytes of 64 tokens of one sequence, over all layers and heads: past the sinks, and of a sink
 * block. */
size_t weir_kv_block_bytes(const weir_kv_spec *spec);
size_t weir_kv_sink_block_bytes(const weir_kv_spec *spec);
/* The same, rounded as pages are in a tier. */
size_t weir_kv_page_stride(const weir_kv_spec *spec, int64_t layer);
/* Bytes of the pages of all heads of a layer in one block, with rounding. */
size_t weir_kv_layer_stride(const weir_kv_spec *spec, int64_t layer);
size_t weir_kv_block_stride(const weir_kv_spec *spec);
size_t weir_kv_sink_page_stride(const weir_kv_spec *spec);
size_t weir_kv_sink_block_stride(const weir_kv_spec *spec);
/* Bytes of the first n_blocks of a sequence. */
size_t weir_kv_blocks_bytes(const weir_kv_spec *spec, int64_t n_blocks);
size_t weir_kv_pool_bytes(const weir_kv_spec *spec); /* of the pages in memory */
/* Pages for `rows` rows of one sequence, over all layers and heads. */
int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows);
/* At most, in one store, in addition to that of the sinks. */
enum { WEIR_KV_SIZE_CLASSES = 16 };
/* Numbers of pages by size class; classes are in order of the first layer that has them. */
typedef struct weir_kv_pages {
    int64_t sinks, others[WEIR_KV_SIZE_CLASSES];
    /* Memory of tables that goes with them, in units: what a table needs in addition to what it
     * has, or what is free. 0 where only pages are counted. */
    int64_t tables;
} weir_kv_pages;
enum { WEIR_KV_TABLE_UNIT = 4096 };
/* Pages of blocks [first, end) of a sequence; none if end <= first. */
weir_kv_pages weir_kv_pages_of(const weir_kv_spec *spec, int64_t first, int64_t end);
/* The same for an open store; faster, since its size classes are known. */
weir_kv_pages weir_kv_store_pages_of(const weir_kv_store *store, int64_t first, int64_t end);
static inline bool weir_kv_pages_fit(weir_kv_pages wanted, weir_kv_pages available)
{
    bool fits = wanted.sinks <= available.sinks && wanted.tables <= available.tables;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++)
        fits = fits && wanted.others[i] <= available.others[i];
    return fits;
}
static inline weir_kv_pages weir_kv_pages_plus(weir_kv_pages a, weir_kv_pages b)
{
    a.sinks += b.sinks;
    a.tables += b.tables;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) a.others[i] += b.others[i];
    return a;
}
static inline weir_kv_pages weir_kv_pages_minus(weir_kv_pages a, weir_kv_pages b)
{
    a.sinks -= b.sinks;
    a.tables -= b.tables;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) a.others[i] -= b.others[i];
    return a;
}
/* Pages of all classes except that of the sinks. */
static inline int64_t weir_kv_pages_others(weir_kv_pages pages)
{
    int64_t n = 0;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) n += pages.others[i];
    return n;
}
/* The fewest blocks past the sinks that have this many pages of each class. */
int64_t weir_kv_pages_blocks(const weir_kv_spec *spec, weir_kv_pages pages);
/* Bytes of unsealed rows of one sequence, over all layers and heads, on the account kv; 0: no
 * format has any. */
size_t weir_kv_unsealed_rows_bytes(const weir_kv_spec *spec);
/* True if sequences can be cut at multiples of 64 tokens only. */
bool weir_kv_is_paged(const weir_kv_spec *spec);

/* Bytes on the account page_tables: for one page of the pool, for the lower tiers in total, for
 * each table whatever it holds, and, of spec.table_bytes, for the entries of `rows` rows. */
size_t weir_kv_page_metadata_bytes(void);
size_t weir_kv_lower_tier_metadata_bytes(const weir_kv_spec *spec);
size_t weir_kv_table_metadata_bytes(const weir_kv_spec *spec);
/* Bytes on the host's account kv below a device: blocks, and a buffer for transfers between device
 * and disk. */
size_t weir_kv_host_bytes(const weir_kv_spec *spec);
size_t weir_kv_table_bytes(const weir_kv_spec *spec, int64_t rows);

/* ---- the pool -------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_kv_store_open(
    weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error
);
void weir_kv_store_close(weir_kv_store *store); /* after its tables */
const weir_kv_spec *weir_kv_store_spec(const weir_kv_store *store);
/* Rows of the layers of spec.windows; NULL: there are none. */
weir_kv_windows *weir_kv_store_windows(const weir_kv_store *store);
/* The ledger whose device holds pages and unsealed rows. */
weir_ledger *weir_kv_store_ledger(const weir_kv_store *store);
/* The key that limits its pages: "memory.host" or "memory.device". */
const char *weir_kv_store_budget(const weir_kv_store *store);
int64_t weir_kv_store_free_pages(const weir_kv_store *store);
weir_kv_pages weir_kv_store_free(const weir_kv_store *store);
/* Of the free ones, those that can be near the kernels before anything is demoted. */
weir_kv_pages weir_kv_store_free_near(const weir_kv_store *store);
weir_kv_pages weir_kv_store_all(const weir_kv_store *store); /* all pages, free or not */
/* Adds the page to its class. */
void weir_kv_pages_add(const weir_kv_store *store, weir_kv_pages *pages, const void *page);
bool weir_kv_store_has_pruned(const weir_kv_store *store); /* true if a pruned table is open */

/* ---- tables ---------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error);
void weir_kv_table_close(weir_kv_table *table, weir_kv_store *store);

/* Makes n_new rows after those of each head writable. Returns EFULL if the pool or memory has too
 * few pages or the table cannot grow, EIO if the page that they begin in is unreadable
 * (residency.h): the rows are then unchanged. */
WEIR_MUST_CHECK weir_status
weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t n_new);
/* The same without the layers of spec.windows, for rows that are read from a file. */
WEIR_MUST_CHECK weir_status
weir_kv_reserve_main(weir_kv_table *table, weir_kv_store *store, int64_t n_new);
/* Between steps: drops window blocks that the rows to come do not read. */
void weir_kv_trim_windows(weir_kv_table *table, weir_kv_store *store);
/* What weir_kv_reserve needs now: new pages, copies of shared ones, and memory for the table.
 * Window blocks do not count: they are never short (windows.h). */
weir_kv_pages weir_kv_reserve_pages(
    const weir_kv_table *table, const weir_kv_store *store, int64_t n_new
);
/* The first page of the block that the next rows begin in, if it is in the lower tier: then it must
 * be promoted before weir_kv_reserve, unless it is unreadable. NULL: it is in memory, or new. */
const void *weir_kv_cold_end(const weir_kv_table *table, const weir_kv_store *store);
/* Gives back the pages of rows that were reserved and not written. */
void weir_kv_unreserve(weir_kv_table *table, weir_kv_store *store);
/* Makes the n_new written rows of each head visible. */
void weir_kv_commit(weir_kv_table *table, int64_t n_new);
/* Keeps the first `rows` rows and frees pages past them. If sequences are paged, rows is a multiple
 * of 64 or in the last page. A pruned table: only 0, after which it is whole again. */
void weir_kv_truncate(weir_kv_table *table, weir_kv_store *store, int64_t rows);
/* Memory for n_blocks pages per head: units that a table of them takes, those that this table
 * lacks, and giving it these. EFULL: too few units are free. */
int64_t weir_kv_store_tables_of(const weir_kv_store *store, int64_t n_blocks);
int64_t weir_kv_table_more(
    const weir_kv_table *table, const weir_kv_store *store, int64_t n_blocks
);
WEIR_MUST_CHECK weir_status
weir_kv_table_grow(weir_kv_table *table, weir_kv_store *store, int64_t n_blocks);
/* Makes blocks [n] of pages [n_heads], shared, the pages from index `page` on, for which there is
 * memory, of a table that is not pruned and has none there. */
void weir_kv_table_share(
    weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *const *blocks, int64_t n
);
/* The same of one block, in place of pages that it has there. */
void weir_kv_table_replace(
    weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *pages
);

/* For holders of blocks other than tables: pages [heads], `stride` apart. */
void weir_kv_block_hold(weir_kv_store *store, void *const *pages, int64_t stride);
void weir_kv_block_drop(weir_kv_store *store, void *const *pages, int64_t stride);
/* Between the two, the memory of dropped pages is not returned to the system page by page, but at
 * the end for each range of pages next to each other. May be nested. Nothing to do without a lower
 * tier. */
void weir_kv_release_begin(weir_kv_store *store);
void weir_kv_release_end(weir_kv_store *store);
int32_t weir_kv_page_refs(const weir_kv_store *store, const void *page);
/* For tests: counts of references changed since opening, one for a joint block. */
int64_t weir_kv_counted(const weir_kv_store *store);
/* References except those of table snapshots, which are released on demand (table_snapshot.h), and
 * of moves between tiers, which end. */
int32_t weir_kv_page_users(const weir_kv_store *store, const void *page);
/* Pages that only table snapshots, or moves, hold. */
weir_kv_pages weir_kv_store_kept(const weir_kv_store *store);

/* ---- the watcher of pages: the prefix index ----
 * It gives each block that it holds an owner, a number in 1 .. n - 1, and is told which owners have
 * a changed page: its users became one or two, its block moved to another tier, or it got its first
 * or lost its last pruned table or snapshot of one. Costs a comparison per reference taken or
 * dropped. */
/* list [n], zero, borrowed: room for the owners with changed pages. NULL ends watching; no page may
 * have an owner then. */
void weir_kv_watch(weir_kv_store *store, int32_t *list);
/* 0: none. */
void weir_kv_block_set_owner(
    weir_kv_store *store, void *const *pages, int64_t stride, int32_t owner
);
int32_t weir_kv_page_owner(const weir_kv_store *store, const void *page);
/* Removes an owner with a changed page from the list, and returns it; 0: there is none. */
int32_t weir_kv_next_changed(weir_kv_store *store);

/* dst (empty) shares all visible rows of src; unsealed rows are copied. If src is pruned, so is
 * dst. EFULL: there is no memory for the table; dst stays empty. */
WEIR_MUST_CHECK weir_status
weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store);

/* Makes an empty table a pruned one with head_rows [n_heads] visible rows per head, in new pages
 * that the caller fills. Returns EFULL, with the table still empty. */
WEIR_MUST_CHECK weir_status
weir_kv_reserve_pruned(weir_kv_table *table, weir_kv_store *store, const int32_t *head_rows);
/* What weir_kv_reserve_pruned needs. */
weir_kv_pages weir_kv_reserve_pruned_pages(const weir_kv_store *store, const int32_t *head_rows);

/* Bytes of its pages in memory or on disk, shared ones included. */
size_t weir_kv_table_held_bytes(const weir_kv_table *table, const weir_kv_store *store);

#ifdef __cplusplus
}
#endif
