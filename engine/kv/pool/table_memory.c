/* engine/kv/pool/table_memory.c - the memory of tables: each has addresses for a whole window, and
 * memory for [n_heads, capacity] entries, in units, from what the store has for all. The capacity
 * grows with the sequence, so heads move (docs/decisions/0044-tables-and-moves.md). An empty table
 * has none, but keeps its pages for the next sequence until other tables need the units. */
#include <string.h>
#include <sys/mman.h>

#include "engine/kv/pool/store_internal.h"

/* ---- sizes ----------------------------------------------------------------------------------- */
/* Entries of a head for n_pages pages: the next multiple of a quarter of the power of two below. */
static int64_t capacity_for(const weir_kv_spec *spec, int64_t n_pages)
{
    const int64_t most = kv_pages_per_head(spec->max_rows);
    int64_t step = 8;
    while (step * 8 <= n_pages) step *= 2;
    const int64_t rounded = (n_pages + step - 1) / step * step;
    return rounded < most ? rounded : most;
}

static int64_t units_for(int64_t n_heads, int64_t capacity)
{
    return (n_heads * capacity * (int64_t)sizeof(void *) + WEIR_KV_TABLE_UNIT - 1) /
           WEIR_KV_TABLE_UNIT;
}

static int64_t units_of(const weir_kv_spec *spec, int64_t n_pages)
{
    return units_for(weir_kv_n_heads(spec), capacity_for(spec, n_pages));
}

size_t weir_kv_table_bytes(const weir_kv_spec *spec, int64_t rows)
{
    return (size_t)units_of(spec, kv_pages_per_head(rows)) * WEIR_KV_TABLE_UNIT;
}

int64_t weir_kv_store_tables_of(const weir_kv_store *store, int64_t n_blocks)
{
    return units_of(&store->spec, n_blocks);
}

int64_t weir_kv_table_more(const weir_kv_table *table, const weir_kv_store *store, int64_t n_blocks)
{
    return n_blocks > table->capacity ? units_of(&store->spec, n_blocks) - table->n_units : 0;
}

/* ---- the store's part ------------------------------------------------------------------------ */
weir_status kv_tables_open(weir_kv_store *store, weir_error *error)
{
    enum { WINDOWS = 64 };
    const weir_kv_spec *const spec = &store->spec;
    const size_t bytes = spec->table_bytes > 0
                             ? spec->table_bytes
                             : WINDOWS * weir_kv_table_bytes(spec, spec->max_rows);
    WEIR_TRY(
        weir_ledger_reserve(store->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES, bytes, error)
    );
    store->table_bytes = bytes;
    store->n_table_units = store->n_free_units = (int64_t)(bytes / WEIR_KV_TABLE_UNIT);
    return WEIR_OK;
}

void kv_tables_close(weir_kv_store *store)
{
    WEIR_ASSERT(store->n_free_units == store->n_table_units && store->unused == NULL);
    weir_ledger_return(store->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES, store->table_bytes);
}

/* ---- empty tables ---------------------------------------------------------------------------- */
/* At the beginning of the memory that an empty table keeps. n_units 0: it keeps none. */
struct kv_unused {
    struct kv_unused *previous, *next; /* in store->unused */
    int64_t n_units;
};

static void return_units(char *first, int64_t n_units)
{
    const size_t bytes = (size_t)n_units * WEIR_KV_TABLE_UNIT;
    WEIR_ASSERT(bytes == 0 || madvise(first, bytes, MADV_DONTNEED) == 0);
}

/* The table has given back its units. */
static void keep_memory(weir_kv_table *table, weir_kv_store *store, int64_t n_units)
{
    kv_unused *const own = (kv_unused *)(void *)table->pages;
    (void)pthread_mutex_lock(&store->unused_lock);
    *own = (kv_unused){ .next = store->unused, .n_units = n_units };
    if (store->unused != NULL) store->unused->previous = own;
    store->unused = own;
    store->n_unused_units += n_units;
    (void)pthread_mutex_unlock(&store->unused_lock);
}

/* Lock held. */
static void unlink_unused(weir_kv_store *store, const kv_unused *own)
{
    *(own->previous != NULL ? &own->previous->next : &store->unused) = own->next;
    if (own->next != NULL) own->next->previous = own->previous;
    store->n_unused_units -= own->n_units;
}

/* Of what the empty table has kept it gets n_units, cleared; the rest is returned. */
static void take_memory(weir_kv_table *table, weir_kv_store *store, int64_t n_units)
{
    char *const base = (char *)table->pages;
    const kv_unused *const own = (const kv_unused *)(const void *)base;
    (void)pthread_mutex_lock(&store->unused_lock);
    const int64_t n_kept = own->n_units;
    if (n_kept > 0) unlink_unused(store, own);
    (void)pthread_mutex_unlock(&store->unused_lock);
    const int64_t n_used = n_kept < n_units ? n_kept : n_units;
    memset(base, 0, (size_t)n_used * WEIR_KV_TABLE_UNIT);
    return_units(base + n_used * WEIR_KV_TABLE_UNIT, n_kept - n_used);
}

/* All tables together hold no more than the store has. */
static void return_unused(weir_kv_store *store)
{
    (void)pthread_mutex_lock(&store->unused_lock);
    while (store->n_unused_units > store->n_free_units) {
        kv_unused *const first = store->unused;
        unlink_unused(store, first);
        return_units((char *)first, first->n_units);
    }
    (void)pthread_mutex_unlock(&store->unused_lock);
}

/* ---- one table ------------------------------------------------------------------------------- */
static size_t reach_of(const weir_kv_spec *spec)
{
    return weir_kv_table_bytes(spec, spec->max_rows);
}

weir_status kv_table_map(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    if (reach_of(&store->spec) == 0) return WEIR_OK;
    return weir_ledger_map(
        store->ledger, (void **)&table->pages, WEIR_ACCOUNT_PAGE_TABLES, 0, reach_of(&store->spec),
        error
    );
}

void kv_table_unmap(weir_kv_table *table, weir_kv_store *store)
{
    WEIR_ASSERT(table->n_units == 0);
    if (table->pages != NULL) take_memory(table, store, 0);
    weir_ledger_unmap(
        store->ledger, table->pages, WEIR_ACCOUNT_PAGE_TABLES, 0, reach_of(&store->spec)
    );
    table->pages = NULL;
}

/* The last head moves first: no head is overwritten before it moved. The memory of an empty table
 * is zero. */
static void spread(weir_kv_table *table, int64_t capacity)
{
    const size_t n = (size_t)table->n_pages;
    for (int64_t h = table->n_heads - 1; table->n_units > 0 && h >= 0; h--) {
        void **const to = table->pages + h * capacity;
        memmove(to, table->pages + h * table->capacity, n * sizeof *to);
        memset(to + n, 0, ((size_t)capacity - n) * sizeof *to);
    }
    table->capacity = capacity;
}

weir_status weir_kv_table_grow(weir_kv_table *table, weir_kv_store *store, int64_t n_blocks)
{
    const int64_t more = weir_kv_table_more(table, store, n_blocks);
    if (n_blocks <= table->capacity || table->n_heads == 0) return WEIR_OK;
    if (more > store->n_free_units) return WEIR_EFULL;
    if (table->n_units == 0) take_memory(table, store, more);
    spread(table, capacity_for(&store->spec, n_blocks));
    store->n_free_units -= more;
    table->n_units += more;
    return_unused(store);
    return WEIR_OK;
}

/* Moves heads together, and returns the memory after the last one. */
static void gather(weir_kv_table *table, int64_t capacity)
{
    const int64_t n_units = units_for(table->n_heads, capacity);
    char *const base = (char *)table->pages,
                *const used = base + (size_t)(table->n_heads * capacity) * sizeof(void *),
                *const kept = base + n_units * WEIR_KV_TABLE_UNIT;
    for (int64_t h = 1; h < table->n_heads; h++)
        memmove(
            table->pages + h * capacity, table->pages + h * table->capacity,
            (size_t)capacity * sizeof(void *)
        );
    memset(used, 0, (size_t)(kept - used));
    return_units(kept, table->n_units - n_units);
    table->capacity = capacity;
    table->n_units = n_units;
}

/* A table that gets shorter by less than half keeps its memory: it mostly grows again. */
void kv_table_fit(weir_kv_table *table, weir_kv_store *store)
{
    const int64_t before = table->n_units, capacity = capacity_for(&store->spec, table->n_pages);
    if (table->capacity == 0 || (table->n_pages > 0 && capacity > table->capacity / 2)) return;
    if (table->n_pages > 0)
        gather(table, capacity);
    else
        table->capacity = table->n_units = 0;
    store->n_free_units += before - table->n_units;
    if (table->n_pages == 0) keep_memory(table, store, before);
}
