/* engine/kv/pool/table.c - tables: the pages of a sequence's rows. */
#include <string.h>

#include "engine/kv/pool/store_internal.h"

static size_t unsealed_entries(const weir_kv_spec *spec)
{
    return weir_kv_is_paged(spec) ? (size_t)weir_kv_n_heads(spec) : 0;
}

size_t weir_kv_table_metadata_bytes(const weir_kv_spec *spec)
{
    const size_t counts = spec->evicts ? (size_t)weir_kv_n_heads(spec) * sizeof(int32_t) : 0;
    return unsealed_entries(spec) * sizeof(void *) + counts;
}

static void place_unsealed_rows(weir_kv_table *table, const weir_kv_spec *spec)
{
    char *at = table->unsealed_memory;
    table->unsealed = table->metadata;
    for (int64_t h = 0; h < table->n_heads; h++) {
        const size_t bytes = kv_unsealed_bytes(spec, weir_kv_layer_of(spec, h));
        table->unsealed[h] = bytes > 0 ? at : NULL;
        at += bytes;
    }
}

static weir_status open_metadata(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    if (store->sizes.table_metadata == 0) return WEIR_OK;
    WEIR_TRY(weir_ledger_alloc(
        store->ledger, &table->metadata, WEIR_ACCOUNT_PAGE_TABLES, store->sizes.table_metadata,
        error
    ));
    if (spec->evicts)
        table->head_rows = (int32_t *)((void **)table->metadata + unsealed_entries(spec));
    return WEIR_OK;
}

static weir_status open_unsealed_rows(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    if (!weir_kv_is_paged(&store->spec)) return WEIR_OK;
    WEIR_TRY(weir_ledger_alloc_device(
        store->ledger, &table->unsealed_memory, WEIR_ACCOUNT_KV,
        weir_kv_unsealed_rows_bytes(&store->spec), error
    ));
    place_unsealed_rows(table, &store->spec);
    return WEIR_OK;
}

weir_status weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    *table = (weir_kv_table){ .geometry = store->spec.geometry,
                              .n_heads = weir_kv_n_heads(&store->spec) };
    weir_status status = kv_table_map(table, store, error);
    if (status == WEIR_OK) status = open_metadata(table, store, error);
    if (status == WEIR_OK) status = open_unsealed_rows(table, store, error);
    if (status == WEIR_OK && store->windows != NULL)
        status = weir_kv_window_table_open(&table->windows, store->windows, error);
    if (status != WEIR_OK) weir_kv_table_close(table, store);
    return status;
}

void weir_kv_table_close(weir_kv_table *table, weir_kv_store *store)
{
    weir_kv_truncate(table, store, 0);
    weir_ledger_free_device(
        store->ledger, table->unsealed_memory, WEIR_ACCOUNT_KV,
        weir_kv_unsealed_rows_bytes(&store->spec)
    );
    weir_ledger_free(
        store->ledger, table->metadata, WEIR_ACCOUNT_PAGE_TABLES, store->sizes.table_metadata
    );
    if (store->windows != NULL) weir_kv_window_table_close(&table->windows, store->windows);
    kv_table_unmap(table, store);
    *table = (weir_kv_table){ 0 };
}

void kv_table_drop(weir_kv_table *table, weir_kv_store *store, void **entry)
{
    if (*entry == NULL) return;
    const int64_t block = entry - table->pages;
    if (block < table->capacity) kv_table_loses(table, store, block);
    if (table->is_pruned) kv_pin(store, *entry, -1);
    kv_page_drop(store, *entry);
    *entry = NULL;
}

void kv_table_put(weir_kv_table *table, weir_kv_store *store, void **entry, void *page)
{
    const int64_t block = entry - table->pages;
    const bool is_first_head = block < table->capacity;
    if (is_first_head) kv_table_catch_up(table, store);
    kv_table_drop(table, store, entry);
    if (table->is_pruned) kv_pin(store, page, 1);
    *entry = page;
    if (is_first_head) kv_table_gets(table, store, block);
}

void kv_table_mark_pruned(weir_kv_table *table, weir_kv_store *store)
{
    if (table->is_pruned) return;
    table->is_pruned = true;
    kv_table_recount(table, store);
    store->n_pruned++;
    for (int64_t p = 0; p < table->n_pages; p++)
        kv_split_block(store, table->pages + p, table->capacity);
    for (int64_t h = 0; h < table->n_heads; h++)
        for (int64_t p = 0; p < table->n_pages; p++) {
            const void *const page = table->pages[h * table->capacity + p];
            if (page != NULL) kv_pin(store, page, 1);
        }
}

void weir_kv_table_share(
    weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *const *blocks, int64_t n
)
{
    WEIR_ASSERT(page + n <= table->capacity && !table->is_pruned);
    kv_table_catch_up(table, store);
    if (page + n > table->n_pages) table->n_pages = page + n;
    for (int64_t i = 0; table->n_heads > 0 && i < n; i++) {
        WEIR_ASSERT(table->pages[page + i] == NULL);
        weir_kv_block_hold(store, blocks[i], 1);
    }
    for (int64_t h = 0; h < table->n_heads; h++)
        for (int64_t i = 0; i < n; i++) table->pages[h * table->capacity + page + i] = blocks[i][h];
    for (int64_t i = 0; table->n_heads > 0 && i < n; i++) kv_table_gets(table, store, page + i);
}

/* Releases the block of a table that is not pruned; its entries stay. */
static void drop_block(weir_kv_table *table, weir_kv_store *store, int64_t page)
{
    if (table->n_heads == 0) return;
    kv_table_loses(table, store, page);
    weir_kv_block_drop(store, table->pages + page, table->capacity);
}

void weir_kv_table_replace(
    weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *pages
)
{
    drop_block(table, store, page);
    for (int64_t h = 0; h < table->n_heads; h++) table->pages[h * table->capacity + page] = NULL;
    weir_kv_table_share(table, store, page, &pages, 1);
}

/* ---- growing --------------------------------------------------------------------------------- */
/* True if rows will be written to a new page: there is none yet, or it is the first one and
 * shared. */
static bool needs_page(const weir_kv_store *store, const void *page, bool is_first)
{
    return page == NULL || (is_first && weir_kv_page_refs(store, page) > 1);
}

/* True if the pages of the block that it writes to next are shared alike: one head stands for all.
 * Of a split one a table snapshot may hold some, also while no table is pruned. */
static bool is_alike(const weir_kv_table *table, const weir_kv_store *store)
{
    const int64_t last = table->n_rows / WEIR_PAGE_TOKENS;
    return !table->is_pruned && (table->n_heads == 1 || last >= table->n_pages ||
                                 kv_is_joint(store, table->pages + last, table->capacity));
}

/* True if the rows fit in the page that the table writes to. */
static bool fits_last_page(const weir_kv_table *table, const weir_kv_store *store, int64_t n_new)
{
    const int64_t last = table->n_rows / WEIR_PAGE_TOKENS;
    return is_alike(table, store) && last < table->n_pages &&
           kv_pages_per_head(table->n_rows + n_new) == last + 1 &&
           !needs_page(store, table->pages[last], true);
}

/* For a table that is_alike: one head stands for all. */
static kv_wanted whole_growth(const weir_kv_table *table, const weir_kv_store *store, int64_t n_new)
{
    const int64_t first = table->n_rows / WEIR_PAGE_TOKENS,
                  end = kv_pages_per_head(table->n_rows + n_new);
    kv_wanted wanted = { 0 };
    for (int64_t p = first; p < end; p++)
        if (p >= table->n_pages || needs_page(store, table->pages[p], p == first))
            kv_want_block(store, &wanted, p);
    return wanted;
}

static kv_wanted growth(const weir_kv_table *table, const weir_kv_store *store, int64_t n_new)
{
    kv_wanted wanted = { 0 };
    if (fits_last_page(table, store, n_new)) return wanted;
    if (is_alike(table, store)) return whole_growth(table, store, n_new);
    for (int64_t h = 0; h < table->n_heads; h++) {
        const int64_t rows = weir_kv_rows_at(table, h), first = rows / WEIR_PAGE_TOKENS,
                      end = kv_pages_per_head(rows + n_new);
        for (int64_t p = first; p < end; p++)
            if (p >= table->n_pages ||
                needs_page(store, table->pages[h * table->capacity + p], p == first))
                kv_want(store, &wanted, h, p);
    }
    return wanted;
}

const void *weir_kv_cold_end(const weir_kv_table *table, const weir_kv_store *store)
{
    const int64_t last = table->n_rows / WEIR_PAGE_TOKENS;
    if (table->n_heads == 0 || table->is_pruned || last >= table->n_pages) return NULL;
    return weir_kv_is_cold(store, table->pages[last]) ? table->pages[last] : NULL;
}

weir_kv_pages weir_kv_reserve_pages(
    const weir_kv_table *table, const weir_kv_store *store, int64_t n_new
)
{
    if (table->n_heads == 0 || n_new == 0) return (weir_kv_pages){ 0 };
    const kv_wanted wanted = growth(table, store, n_new);
    weir_kv_pages n = kv_wanted_pages(store, &wanted, 0);
    n.tables = weir_kv_table_more(table, store, kv_pages_per_head(table->n_rows + n_new));
    return n;
}

/* New pages of all heads, in place of none or of shared ones, which they are copies of. */
static void take_block(weir_kv_table *table, weir_kv_store *store, int64_t block)
{
    void **const pages = table->pages + block;
    if (pages[0] != NULL) drop_block(table, store, block); /* others hold it: it stays */
    kv_table_catch_up(table, store);
    for (int64_t h = 0; h < table->n_heads; h++) {
        void **const entry = &pages[h * table->capacity];
        *entry = kv_take_page(store, h, block, *entry);
    }
    kv_join_block(store, pages, table->capacity);
    kv_table_gets(table, store, block);
}

/* Of a split block. */
static void unshare_pages(weir_kv_table *table, weir_kv_store *store, int64_t block)
{
    for (int64_t h = 0; h < table->n_heads; h++) {
        void **const entry = &table->pages[h * table->capacity + block];
        if (needs_page(store, *entry, true))
            kv_table_put(table, store, entry, kv_take_page(store, h, block, *entry));
    }
}

/* A table that is not pruned. */
static void grow_whole(weir_kv_table *table, weir_kv_store *store, int64_t n_new)
{
    const int64_t first = table->n_rows / WEIR_PAGE_TOKENS,
                  end = kv_pages_per_head(table->n_rows + n_new);
    for (int64_t p = first; p < end; p++) {
        void *const *const pages = table->pages + p;
        const bool is_split = pages[0] != NULL && !kv_is_joint(store, pages, table->capacity);
        if (is_split && p == first)
            unshare_pages(table, store, p);
        else if (needs_page(store, pages[0], p == first))
            take_block(table, store, p);
    }
    if (end > table->n_pages) table->n_pages = end;
}

/* One of a pruned table. */
static void grow_head(weir_kv_table *table, weir_kv_store *store, int64_t head, int64_t n_new)
{
    void **const pages = table->pages + head * table->capacity;
    const int64_t rows = weir_kv_rows_at(table, head), first = rows / WEIR_PAGE_TOKENS,
                  end = kv_pages_per_head(rows + n_new);
    for (int64_t p = first; p < end; p++)
        if (needs_page(store, pages[p], p == first))
            kv_table_put(table, store, &pages[p], kv_take_page(store, head, p, pages[p]));
    if (end > table->n_pages) table->n_pages = end;
}

weir_status weir_kv_reserve_main(weir_kv_table *table, weir_kv_store *store, int64_t n_new)
{
    WEIR_ASSERT(n_new >= 0 && table->n_rows + n_new <= store->spec.max_rows);
    if (table->n_heads == 0 || n_new == 0) return WEIR_OK;
    const void *const cold = weir_kv_cold_end(table, store);
    if (cold != NULL) {
        WEIR_ASSERT(weir_kv_is_unreadable(store, cold));
        return WEIR_EIO;
    }
    if (fits_last_page(table, store, n_new)) return WEIR_OK;
    const kv_wanted wanted = growth(table, store, n_new);
    if (!kv_has_free(store, &wanted, 0)) return WEIR_EFULL;
    WEIR_TRY(weir_kv_table_grow(table, store, kv_pages_per_head(table->n_rows + n_new)));
    if (!table->is_pruned) grow_whole(table, store, n_new);
    for (int64_t h = 0; table->is_pruned && h < table->n_heads; h++)
        grow_head(table, store, h, n_new);
    return WEIR_OK;
}

weir_status weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t n_new)
{
    WEIR_TRY(weir_kv_reserve_main(table, store, n_new));
    return store->windows != NULL ? weir_kv_window_reserve(&table->windows, store->windows, n_new)
                                  : WEIR_OK;
}

void weir_kv_trim_windows(weir_kv_table *table, weir_kv_store *store)
{
    if (store->windows != NULL) weir_kv_window_trim(&table->windows, store->windows);
}

static kv_wanted pruned_growth(const weir_kv_store *store, const int32_t *head_rows)
{
    kv_wanted wanted = { 0 };
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++)
        for (int64_t p = 0; p < kv_pages_per_head(head_rows[h]); p++) kv_want(store, &wanted, h, p);
    return wanted;
}

static int64_t longest_head(const weir_kv_store *store, const int32_t *head_rows)
{
    int32_t longest = 0;
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++)
        if (head_rows[h] > longest) longest = head_rows[h];
    return kv_pages_per_head(longest);
}

weir_kv_pages weir_kv_reserve_pruned_pages(const weir_kv_store *store, const int32_t *head_rows)
{
    const kv_wanted wanted = pruned_growth(store, head_rows);
    weir_kv_pages n = kv_wanted_pages(store, &wanted, 0);
    n.tables = weir_kv_store_tables_of(store, longest_head(store, head_rows));
    return n;
}

weir_status weir_kv_reserve_pruned(
    weir_kv_table *table, weir_kv_store *store, const int32_t *head_rows
)
{
    const kv_wanted wanted = pruned_growth(store, head_rows);
    WEIR_ASSERT(table->n_rows == 0 && table->n_pages == 0 && table->head_rows != NULL);
    if (!kv_has_free(store, &wanted, 0)) return WEIR_EFULL;
    WEIR_TRY(weir_kv_table_grow(table, store, longest_head(store, head_rows)));
    kv_table_mark_pruned(table, store);
    for (int64_t h = 0; h < table->n_heads; h++) {
        WEIR_ASSERT(head_rows[h] >= 0 && head_rows[h] <= store->spec.max_rows);
        grow_head(table, store, h, head_rows[h]);
        table->head_rows[h] = head_rows[h];
        if (head_rows[h] > table->n_rows) table->n_rows = head_rows[h];
    }
    return WEIR_OK;
}

void weir_kv_commit(weir_kv_table *table, int64_t n_new)
{
    WEIR_ASSERT(
        n_new >= 0 &&
        (table->n_pages == 0 || table->n_rows + n_new <= table->n_pages * WEIR_PAGE_TOKENS)
    );
    table->n_rows += n_new;
    table->windows.n_rows += n_new;
    for (int64_t h = 0; table->head_rows != NULL && h < table->n_heads; h++)
        table->head_rows[h] += (int32_t)n_new;
}

/* ---- shrinking and sharing ------------------------------------------------------------------- */
/* Keeps the first `keep` pages of each head. Pages that are taken again are those dropped last, so
 * dropping the last blocks first keeps the next sequence's blocks next to each other. */
static void drop_pages(weir_kv_table *table, weir_kv_store *store, int64_t keep)
{
    weir_kv_release_begin(store);
    for (int64_t p = table->n_pages - 1; p >= keep; p--) {
        if (!table->is_pruned) drop_block(table, store, p);
        for (int64_t h = table->n_heads - 1; table->is_pruned && h >= 0; h--)
            kv_table_drop(table, store, &table->pages[h * table->capacity + p]);
    }
    weir_kv_release_end(store);
    /* That of an empty table is cleared when it grows. */
    for (int64_t h = 0; keep > 0 && h < table->n_heads; h++)
        memset(
            table->pages + h * table->capacity + keep, 0,
            (size_t)(table->n_pages - keep) * sizeof *table->pages
        );
    table->n_pages = keep;
    kv_table_keeps(table, keep);
}

void weir_kv_unreserve(weir_kv_table *table, weir_kv_store *store)
{
    int64_t keep = 0;
    for (int64_t h = 0; h < table->n_heads; h++) {
        const int64_t end = kv_pages_per_head(weir_kv_rows_at(table, h));
        if (end > keep) keep = end;
        for (int64_t p = table->n_pages - 1; table->is_pruned && p >= end; p--)
            kv_table_drop(table, store, &table->pages[h * table->capacity + p]);
    }
    if (table->n_heads == 0 || keep == table->n_pages) return;
    drop_pages(table, store, keep);
    kv_table_fit(table, store);
}

void weir_kv_truncate(weir_kv_table *table, weir_kv_store *store, int64_t rows)
{
    WEIR_ASSERT(rows <= table->n_rows && (rows == 0 || !table->is_pruned));
    WEIR_ASSERT(rows == 0 || store->windows == NULL); /* rows before a window may be gone */
    if (store->windows != NULL) weir_kv_window_clear(&table->windows, store->windows);
    WEIR_ASSERT(
        table->unsealed == NULL || rows % WEIR_PAGE_TOKENS == 0 ||
        rows / WEIR_PAGE_TOKENS == table->n_rows / WEIR_PAGE_TOKENS
    );
    const int64_t keep = kv_pages_per_head(rows);
    if (keep < table->n_pages) drop_pages(table, store, keep);
    kv_table_fit(table, store);
    table->n_rows = rows;
    for (int64_t h = 0; table->head_rows != NULL && h < table->n_heads; h++)
        table->head_rows[h] = (int32_t)rows;
    if (!table->is_pruned) return; /* an empty table may be closed while the engine thread runs */
    store->n_pruned--;
    table->is_pruned = false;
}

weir_status weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store)
{
    WEIR_ASSERT(dst->n_pages == 0);
    WEIR_TRY(weir_kv_table_grow(dst, store, kv_pages_per_head(src->n_rows)));
    if (store->windows != NULL) weir_kv_window_fork(&dst->windows, &src->windows, store->windows);
    const int64_t n_blocks = src->n_heads > 0 ? kv_pages_per_head(src->n_rows) : 0;
    for (int64_t p = 0; !src->is_pruned && p < n_blocks; p++)
        weir_kv_block_hold(store, src->pages + p, src->capacity);
    for (int64_t h = 0; h < src->n_heads; h++) {
        void *const *const from = src->pages + h * src->capacity;
        const int64_t n = kv_pages_per_head(weir_kv_rows_at(src, h));
        for (int64_t p = 0; src->is_pruned && p < n; p++) kv_page_hold(store, from[p]);
        if (n > 0) memcpy(dst->pages + h * dst->capacity, from, (size_t)n * sizeof *from);
    }
    dst->n_pages = n_blocks;
    dst->n_rows = src->n_rows;
    if (src->head_rows != NULL)
        memcpy(dst->head_rows, src->head_rows, (size_t)src->n_heads * sizeof *src->head_rows);
    kv_table_recount(dst, store);
    if (src->is_pruned) kv_table_mark_pruned(dst, store);
    if (dst->unsealed != NULL && (src->is_pruned || src->n_rows % WEIR_PAGE_TOKENS != 0))
        weir_ledger_copy(
            store->ledger, dst->unsealed_memory, src->unsealed_memory,
            weir_kv_unsealed_rows_bytes(&store->spec)
        );
    return WEIR_OK;
}

size_t weir_kv_table_held_bytes(const weir_kv_table *table, const weir_kv_store *store)
{
    size_t bytes = (size_t)(table->windows.end - table->windows.first) * store->sizes.window_block;
    if (!table->is_pruned) {
        const int64_t n = table->n_heads > 0 ? table->n_pages : 0,
                      sinks = kv_sinks_among(&store->spec, n);
        return bytes + (size_t)sinks * store->sizes.sink_block_stride +
               (size_t)(n - sinks) * store->sizes.block_stride;
    }
    for (int64_t h = 0; h < table->n_heads; h++)
        for (int64_t p = 0; p < table->n_pages; p++) {
            const void *const page = table->pages[h * table->capacity + p];
            if (page != NULL) bytes += kv_stride_of(store, page);
        }
    return bytes;
}
