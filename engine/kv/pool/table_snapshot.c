#include "engine/kv/pool/table_snapshot.h"

#include <string.h>

#include "engine/kv/pool/store_internal.h"

/* Followed by: pages [n_held] of the heads, one head after the other, rows [n_heads], window blocks
 * [n_windows], unsealed rows. */
typedef struct snapshot {
    int64_t n_rows, n_held, n_heads;
    int64_t n_tokens, first_window, n_windows; /* of layers with a window */
    size_t unsealed_bytes;
    bool is_pruned;
} snapshot;

static void **pages_of(const snapshot *p) { return (void **)(uintptr_t)(p + 1); }
static int32_t *rows_of(const snapshot *p) { return (int32_t *)(pages_of(p) + p->n_held); }

static int32_t *windows_of(const snapshot *p) { return rows_of(p) + p->n_heads; }

static size_t bytes_before_unsealed_rows(int64_t n_held, int64_t n_heads, int64_t n_windows)
{
    const size_t bytes = sizeof(snapshot) + (size_t)n_held * sizeof(void *) +
                         (size_t)(n_heads + n_windows) * sizeof(int32_t);
    return (bytes + 7) & ~(size_t)7;
}

static char *unsealed_rows_of(const snapshot *p)
{
    return (char *)(uintptr_t)p + bytes_before_unsealed_rows(p->n_held, p->n_heads, p->n_windows);
}

/* Blocks that all heads have: of a table that is not pruned, whose heads are as long. */
static int64_t blocks_of(const snapshot *p)
{
    return p->is_pruned || p->n_heads == 0 ? 0 : kv_pages_per_head(p->n_rows);
}

static snapshot measure(const weir_kv_table *table, const weir_kv_store *store)
{
    snapshot p = { .n_rows = table->n_rows,
                   .n_heads = table->n_heads,
                   .is_pruned = table->is_pruned };
    for (int64_t h = 0; h < table->n_heads; h++)
        p.n_held += kv_pages_per_head(weir_kv_rows_at(table, h));
    if (table->unsealed != NULL && (table->is_pruned || table->n_rows % WEIR_PAGE_TOKENS != 0))
        p.unsealed_bytes = weir_kv_unsealed_rows_bytes(&store->spec);
    if (store->windows == NULL) return p;
    p.n_tokens = table->windows.n_rows;
    p.first_window = weir_kv_windows_first(&store->spec.windows, p.n_tokens);
    p.n_windows = kv_pages_per_head(p.n_tokens) - p.first_window;
    return p;
}

size_t weir_table_snapshot_bytes(const weir_kv_table *table, const weir_kv_store *store)
{
    const snapshot p = measure(table, store);
    return bytes_before_unsealed_rows(p.n_held, p.n_heads, p.n_windows) + p.unsealed_bytes;
}

size_t weir_table_snapshot_max_bytes(const weir_kv_spec *spec, int64_t n_rows)
{
    const int64_t heads = weir_kv_n_heads(spec);
    const int64_t n_windows = spec->windows.n_layers > 0 ? weir_kv_windows_most(&spec->windows) : 0;
    return bytes_before_unsealed_rows(heads * kv_pages_per_head(n_rows), heads, n_windows) +
           weir_kv_unsealed_rows_bytes(spec);
}

void weir_table_snapshot_take(void *memory, const weir_kv_table *table, weir_kv_store *store)
{
    snapshot *const p = memory;
    *p = measure(table, store);
    void **at = pages_of(p);
    const int64_t n_blocks = blocks_of(p);
    for (int64_t i = 0; i < n_blocks; i++) kv_block_keep(store, table->pages + i, table->capacity);
    for (int64_t h = 0; h < p->n_heads; h++) {
        rows_of(p)[h] = (int32_t)weir_kv_rows_at(table, h);
        for (int64_t i = 0; i < kv_pages_per_head(rows_of(p)[h]); i++) {
            void *const page = table->pages[h * table->capacity + i];
            if (p->is_pruned) kv_page_keep(store, page);
            if (p->is_pruned) kv_pin(store, page, 1);
            *at++ = page;
        }
    }
    for (int64_t i = 0; i < p->n_windows; i++) {
        windows_of(p)[i] = weir_kv_window_at(&table->windows, p->first_window + i);
        weir_kv_window_hold(store->windows, windows_of(p)[i]);
    }
    if (p->unsealed_bytes > 0)
        weir_ledger_copy(
            store->ledger, unsealed_rows_of(p), table->unsealed_memory, p->unsealed_bytes
        );
}

static void restore_windows(const snapshot *p, weir_kv_table *table, weir_kv_store *store)
{
    const int64_t first = p->first_window, end = first + p->n_windows;
    if (store->windows == NULL) return;
    weir_kv_window_begin(&table->windows, store->windows, first, end);
    for (int64_t at = first; at < end; at++)
        weir_kv_window_share(&table->windows, store->windows, at, windows_of(p)[at - first]);
    table->windows.n_rows = p->n_tokens;
}

weir_status weir_table_snapshot_restore(
    const void *memory, weir_kv_table *table, weir_kv_store *store
)
{
    const snapshot *const p = memory;
    void *const *at = pages_of(p);
    WEIR_ASSERT(table->n_pages == 0 && table->n_rows == 0 && table->n_heads == p->n_heads);
    WEIR_TRY(weir_kv_table_grow(table, store, kv_pages_per_head(p->n_rows)));
    const int64_t n_blocks = blocks_of(p);
    for (int64_t i = 0; i < n_blocks; i++) weir_kv_block_hold(store, at + i, n_blocks);
    for (int64_t h = 0; h < p->n_heads; h++) {
        const int64_t n = kv_pages_per_head(rows_of(p)[h]);
        for (int64_t i = 0; i < n; i++, at++) {
            if (p->is_pruned) kv_page_hold(store, *at);
            table->pages[h * table->capacity + i] = *at;
        }
        if (n > table->n_pages) table->n_pages = n;
        if (table->head_rows != NULL) table->head_rows[h] = rows_of(p)[h];
    }
    table->n_rows = p->n_rows;
    kv_table_recount(table, store);
    if (p->is_pruned) kv_table_mark_pruned(table, store);
    restore_windows(p, table, store);
    if (p->unsealed_bytes > 0)
        weir_ledger_copy(
            store->ledger, table->unsealed_memory, unsealed_rows_of(p), p->unsealed_bytes
        );
    return WEIR_OK;
}

void weir_table_snapshot_release(void *memory, weir_kv_store *store)
{
    const snapshot *const p = memory;
    weir_kv_release_begin(store);
    const int64_t n_blocks = blocks_of(p);
    for (int64_t i = 0; i < n_blocks; i++) kv_block_unkeep(store, pages_of(p) + i, n_blocks);
    for (int64_t i = 0; p->is_pruned && i < p->n_held; i++) {
        void *const page = pages_of(p)[i];
        kv_pin(store, page, -1);
        kv_page_unkeep(store, page);
    }
    weir_kv_release_end(store);
    for (int64_t i = 0; i < p->n_windows; i++)
        weir_kv_window_drop(store->windows, windows_of(p)[i]);
}
