/* engine/kv/pool/store.h - paged KV memory: a fixed number of pages, tables per (sequence, layer, KV
 * head), reference counts, copy on write.
 *
 *   page   64 tokens of one KV head of one layer, K and V together (kernels/abi/kv_format.h).
 *          Layers may differ in their formats: pages of equal size are one kind, and each kind has
 *          its part of the pool, for as many tokens as the others.
 *   table  pages [layers, KV heads, capacity] of one sequence, and the open rows of its last page
 *          where a format needs them
 *   block  the pages of the same 64 tokens in all layers and heads
 *   slot   where a head's row lies: page slot / 64, row slot % 64. As long as a table is whole,
 *          slots are positions and all heads hold the same rows. Once rows were evicted it is cut
 *          (is_cut, evict.h): each head has rows of its own, moved together, and pages for them
 *          only.
 *   sinks  the first blocks of every text may have formats of their own (spec.sinks). Their pages
 *          are a kind beside the others, and are counted apart: there can be room for one sort and
 *          none for the other. They stay in memory as long as they are held.
 *   tiers  with a tier below (weir_kv_cold_pages > 0) a block is in memory, that is near the
 *          kernels, or cold: on disk, and below a device on the host first (lower_tier.h). Its
 *          pages keep their addresses, so nobody who holds them notices; whoever touches their
 *          bytes sees to it first (residency.h). Pages are then rounded to 4096 bytes.
 * Invariants
 *   1 A page is free, or held by refs >= 1 tables and other holders; the pool never grows: the byte
 *     budget is the number of pages.
 *   2 Rows [0, weir_kv_rows_at) of a head are visible and never rewritten while shared; rows past
 *     them are scratch of the running step.
 *   3 A table that will write into a page holds it alone: weir_kv_reserve copies a shared last page
 *     first, weir_kv_evict all that rows move into. After an eviction pages of one block are not
 *     shared alike: each head is looked at.
 *   4 A page handed out is zero, or a copy: kernels may multiply unwritten rows by a zero
 *     probability. Open rows that were not written are those of an earlier page, or zero: finite,
 *     which is as good.
 *   5 Open rows are one table's own. Where a format has them, pages that others hold are whole: a
 *     closed page is never opened again, but by weir_kv_evict, which codes a table's own pages
 *     again. So a text in such a format is kept and continued at multiples of 64 tokens only
 *     (weir_kv_is_paged).
 *   6 At most n_pages less the cold ones are in memory, n_sink_pages of them sinks, and of each
 *     kind its part: it is asked for before a page is handed out or brought back. A free page and a
 *     cold one have none. A cold block has its place below as long as one of its pages is held.
 *   7 The pages of a block move together, so the first one tells for all: of a whole table, of the
 *     prefix tree. What a running step writes to is in memory.
 *   8 A cut table's pages are in memory and stay there (weir_kv_may_leave), other holders' of the
 *     same pages too, so blocks that move are whole ones. Entries past a head's pages are NULL. A
 *     cut table is truncated to nothing only, and what shares its pages is a fork: no text is found
 *     by them.
 *   9 With a device pages and open rows are its own (offload/ledger.h): kernels and copies reach
 *     them, nobody else. With a tier below it pages are addresses of its space (offload/device.h),
 *     which have memory as long as they are not cold.
 * Engine thread only. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/kv/pool/geometry.h"
#include "kernels/abi/kv_format.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_spec {
    int64_t n_layers, n_kv_heads, key_dim, value_dim; /* n_layers: those that keep KV rows */
    const weir_kv_pair
        *formats; /* [n_layers], borrowed: outlives the store; each accepts the widths */
    /* Of the pool; a multiple of weir_kv_pages_for(1) when pages differ in size, or with a tier
     * below */
    int64_t n_pages;
    int64_t max_rows; /* window: rows of one sequence */
    /* Of n_pages, at most so many are on disk; whole blocks; 0: there is no disk */
    int64_t n_disk_pages;
    const char *disk_folder; /* borrowed while the store is opened */
    weir_kv_sinks sinks; /* of every text */
    int64_t n_sink_pages; /* of n_pages, for them; whole blocks */
    bool evicts; /* tables may be cut */
    bool has_device; /* the ledger has one */
    /* Of n_pages, beside those on disk: at most so many are on the host, below a device; whole
     * blocks */
    int64_t n_host_pages;
    /* [n_layers], borrowed: outlives the store; NULL: all layers have the widths above */
    const weir_kv_geometry *geometry;
} weir_kv_spec;

/* What a layer keeps. All have n_kv_heads heads. */
static inline weir_kv_geometry weir_kv_geometry_at(const weir_kv_spec *spec, int64_t layer)
{
    return spec->geometry != NULL ? spec->geometry[layer]
                                  : (weir_kv_geometry){ .n_heads = spec->n_kv_heads,
                                                        .key_dim = spec->key_dim,
                                                        .value_dim = spec->value_dim,
                                                        .window = 0 };
}
/* Some layers keep wider rows than others. Sinks and eviction are for stores where none does. */
bool weir_kv_is_mixed(const weir_kv_spec *spec);

/* Of n_pages, at most so many are not near the kernels; 0: there is no tier below. */
static inline int64_t weir_kv_cold_pages(const weir_kv_spec *spec)
{
    return spec->n_disk_pages + spec->n_host_pages;
}

typedef struct weir_kv_store weir_kv_store;

typedef struct weir_kv_table {
    void **pages; /* [n_layers, n_kv_heads, capacity]; owned, on the ledger */
    /* [n_layers, n_kv_heads] open rows of page rows / 64 of the head, NULL where the layer has
     * none; NULL: no layer has */
    void **open;
    void *open_memory; /* owned, on the ledger */
    /* [n_heads] visible rows of each; NULL where nothing is evicted: all have n_rows */
    int32_t *head_rows;
    int64_t n_heads; /* n_layers * n_kv_heads */
    int64_t capacity; /* pages per head */
    int64_t n_pages; /* of the longest head, held now */
    int64_t n_rows; /* of the longest head; of the text if there are no heads */
    bool is_pruned; /* rows were evicted */
} weir_kv_table;

/* Visible rows of a (layer, KV head): slots 0 .. that - 1. */
static inline int64_t weir_kv_rows_at(const weir_kv_table *table, int64_t layer_head)
{
    return table->head_rows != NULL ? table->head_rows[layer_head] : table->n_rows;
}

/* ---- sizes ----------------------------------------------------------------------------------- */
size_t weir_kv_page_bytes(const weir_kv_spec *spec, int64_t layer);
/* Number `block` of a text: a sink or not */
size_t weir_kv_page_bytes_at(const weir_kv_spec *spec, int64_t layer, int64_t block);
/* 64 tokens of one sequence, over all layers and heads, past the sinks; a block of sinks. */
size_t weir_kv_block_bytes(const weir_kv_spec *spec);
size_t weir_kv_sink_block_bytes(const weir_kv_spec *spec);
/* The same with what rounding adds: what they take of a tier. */
size_t weir_kv_page_stride(const weir_kv_spec *spec, int64_t layer);
size_t weir_kv_block_stride(const weir_kv_spec *spec);
size_t weir_kv_sink_page_stride(const weir_kv_spec *spec);
size_t weir_kv_sink_block_stride(const weir_kv_spec *spec);
/* The first n_blocks of a text. */
size_t weir_kv_blocks_bytes(const weir_kv_spec *spec, int64_t n_blocks);
size_t weir_kv_pool_bytes(const weir_kv_spec *spec); /* in memory */
/* Pages that `rows` rows of one sequence take, over all layers and heads. */
int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows);
enum { WEIR_KV_SIZE_CLASSES = 16 }; /* of one store, at most, besides that of the sinks */
/* Numbers of pages by size class: the classes in the order of the layers that have them first. */
typedef struct weir_kv_pages {
    int64_t sinks, others[WEIR_KV_SIZE_CLASSES];
} weir_kv_pages;
/* Of blocks [first, end) of a text; none if end <= first. */
weir_kv_pages weir_kv_pages_of(const weir_kv_spec *spec, int64_t first, int64_t end);
/* The same of a store, which knows its size classes. */
weir_kv_pages weir_kv_store_pages_of(const weir_kv_store *store, int64_t first, int64_t end);
static inline bool weir_kv_pages_fit(weir_kv_pages wanted, weir_kv_pages room)
{
    bool fits = wanted.sinks <= room.sinks;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++)
        fits = fits && wanted.others[i] <= room.others[i];
    return fits;
}
static inline weir_kv_pages weir_kv_pages_plus(weir_kv_pages a, weir_kv_pages b)
{
    a.sinks += b.sinks;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) a.others[i] += b.others[i];
    return a;
}
static inline weir_kv_pages weir_kv_pages_minus(weir_kv_pages a, weir_kv_pages b)
{
    a.sinks -= b.sinks;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) a.others[i] -= b.others[i];
    return a;
}
/* Over all classes but that of the sinks. */
static inline int64_t weir_kv_pages_others(weir_kv_pages pages)
{
    int64_t n = 0;
    for (int i = 0; i < WEIR_KV_SIZE_CLASSES; i++) n += pages.others[i];
    return n;
}
/* The fewest blocks past the sinks that have so many pages of each class. */
int64_t weir_kv_pages_blocks(const weir_kv_spec *spec, weir_kv_pages pages);
/* The open rows of one sequence, over all layers and heads, on the account kv; 0: no format has
 * any. */
size_t weir_kv_open_rows_bytes(const weir_kv_spec *spec);
/* Texts can be cut at multiples of 64 tokens only. */
bool weir_kv_is_paged(const weir_kv_spec *spec);

/* What the account page_tables holds: for one page of the pool, for the tiers below in all, and for
 * the table of one sequence of `rows` rows. */
size_t weir_kv_page_metadata_bytes(void);
size_t weir_kv_lower_tier_metadata_bytes(const weir_kv_spec *spec);
/* What the host's account kv holds below a device: blocks, and a buffer for those on their way
 * between the device and the disk. */
size_t weir_kv_host_bytes(const weir_kv_spec *spec);
size_t weir_kv_table_bytes(const weir_kv_spec *spec, int64_t rows);

/* ---- the pool -------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status weir_kv_store_open(
    weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error
);
void weir_kv_store_close(weir_kv_store *store); /* after its tables */
const weir_kv_spec *weir_kv_store_spec(const weir_kv_store *store);
/* Whose device holds pages and open rows */
weir_ledger *weir_kv_store_ledger(const weir_kv_store *store);
/* Of its pages: "memory.host", or "memory.device" */
const char *weir_kv_store_budget(const weir_kv_store *store);
int64_t weir_kv_store_free_pages(const weir_kv_store *store);
weir_kv_pages weir_kv_store_free(const weir_kv_store *store);
weir_kv_pages weir_kv_store_all(const weir_kv_store *store); /* free or not */
/* Adds the page to its class. */
void weir_kv_pages_add(const weir_kv_store *store, weir_kv_pages *pages, const void *page);
bool weir_kv_store_has_pruned(const weir_kv_store *store); /* a cut table is open */

/* ---- tables ---------------------------------------------------------------------------------- */
WEIR_MUST_CHECK weir_status
weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error);
void weir_kv_table_close(weir_kv_table *table, weir_kv_store *store);

/* Makes n_new rows behind those of each head writable. EFULL when the pool or memory has too few
 * pages, EIO when the last page cannot be read back: the rows are as they were. */
WEIR_MUST_CHECK weir_status
weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t n_new);
/* Pages of memory that this takes now: new ones, copies of shared ones, and a last block that comes
 * back. */
weir_kv_pages weir_kv_reserve_pages(
    const weir_kv_table *table, const weir_kv_store *store, int64_t n_new
);
/* The written rows, n_new of each head, become visible. */
void weir_kv_commit(weir_kv_table *table, int64_t n_new);
/* Keeps the first `rows` rows; pages past them go back. Where texts are paged: a multiple of 64, or
 * in the last page. Of a cut table: 0, and it is whole again. */
void weir_kv_truncate(weir_kv_table *table, weir_kv_store *store, int64_t rows);
/* The table's page number `page` becomes pages [layers * KV heads], shared. The table is whole. */
void weir_kv_table_share(
    weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *pages
);

/* For holders of pages that are no tables. */
void weir_kv_page_hold(weir_kv_store *store, const void *page);
void weir_kv_page_drop(weir_kv_store *store, void *page);
int32_t weir_kv_page_refs(const weir_kv_store *store, const void *page);
/* Refs without those of parcels, which are given up when asked (table_snapshot.h) */
int32_t weir_kv_page_users(const weir_kv_store *store, const void *page);

/* dst (empty) shares all visible rows of src; open rows are copied. Of a cut table it is a cut
 * one. */
void weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store);

/* An empty table becomes a cut one: head_rows [n_heads] rows of each head are visible, in pages
 * that were taken for them and are written next. EFULL: it is empty. */
WEIR_MUST_CHECK weir_status
weir_kv_reserve_pruned(weir_kv_table *table, weir_kv_store *store, const int32_t *head_rows);
/* Pages that this takes. */
weir_kv_pages weir_kv_reserve_pruned_pages(const weir_kv_store *store, const int32_t *head_rows);

/* What its pages take of memory or disk, those that it shares too. */
size_t weir_kv_table_held_bytes(const weir_kv_table *table, const weir_kv_store *store);

#ifdef __cplusplus
}
#endif
