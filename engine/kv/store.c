#include "engine/kv/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"

struct weir_kv_store {
    weir_kv_spec spec;
    weir_ledger *ledger;
    char        *memory; /* [n_pages, page_bytes] */
    size_t       page_bytes, bytes;
    int32_t     *refs;  /* per page */
    int32_t     *free;  /* stack of page numbers */
    bool        *dirty; /* was handed out before: clear it first */
    int64_t      n_free;
};

size_t weir_kv_page_bytes(const weir_kv_spec *spec) { return weir_page_bytes(spec->dtype, spec->key_dim, spec->value_dim); }

static int64_t pages_per_head(int64_t rows) { return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS; }
static int64_t heads_of(const weir_kv_spec *spec) { return spec->n_layers * spec->n_kv_heads; }

int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows) { return pages_per_head(rows) * heads_of(spec); }

weir_status weir_kv_store_open(weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error)
{
    if (spec->n_pages < 0 || spec->n_pages > INT32_MAX)
        return weir_error_set(error, WEIR_EINVAL, "a KV store of %" PRId64 " pages is out of range", spec->n_pages);
    weir_kv_store *const store = calloc(1, sizeof *store);
    if (store == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the KV store");
    *store = (weir_kv_store){ .spec = *spec, .ledger = ledger, .page_bytes = weir_kv_page_bytes(spec), .n_free = spec->n_pages };
    const size_t n = (size_t)spec->n_pages;
    weir_status  status = WEIR_OK;
    store->refs = calloc(n + 1, sizeof *store->refs);
    store->free = calloc(n + 1, sizeof *store->free);
    store->dirty = calloc(n + 1, sizeof *store->dirty);
    if (!weir_mul_size(&store->bytes, n, store->page_bytes))
        status = weir_error_set(error, WEIR_EINVAL, "a KV store of %zu pages of %zu bytes does not fit in memory", n, store->page_bytes);
    else if (store->refs == NULL || store->free == NULL || store->dirty == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for the tables of %zu KV pages", n);
    else if (n > 0)
        status = weir_ledger_alloc(ledger, (void **)&store->memory, WEIR_ACCOUNT_KV, store->bytes, error);
    if (status != WEIR_OK) {
        weir_kv_store_close(store);
        return status;
    }
    for (size_t i = 0; i < n; i++) store->free[i] = (int32_t)(n - 1 - i); /* low pages first: they stay warm */
    *out = store;
    return WEIR_OK;
}

void weir_kv_store_close(weir_kv_store *store)
{
    if (store == NULL) return;
    if (store->memory != NULL) weir_ledger_free(store->ledger, store->memory, WEIR_ACCOUNT_KV, store->bytes);
    free(store->refs);
    free(store->free);
    free(store->dirty);
    free(store);
}

const weir_kv_spec *weir_kv_store_spec(const weir_kv_store *store) { return &store->spec; }
int64_t             weir_kv_store_free_pages(const weir_kv_store *store) { return store->n_free; }

static int32_t page_number(const weir_kv_store *store, const void *page)
{
    return (int32_t)((size_t)((const char *)page - store->memory) / store->page_bytes);
}

static void *take_page(weir_kv_store *store, const void *copy_of)
{
    WEIR_ASSERT(store->n_free > 0);
    const int32_t number = store->free[--store->n_free];
    char *const   page = store->memory + (size_t)number * store->page_bytes;
    store->refs[number] = 1;
    if (copy_of != NULL)
        memcpy(page, copy_of, store->page_bytes);
    else if (store->dirty[number])
        memset(page, 0, store->page_bytes);
    store->dirty[number] = true;
    return page;
}

static void drop_page(weir_kv_store *store, void *page)
{
    const int32_t number = page_number(store, page);
    WEIR_ASSERT(store->refs[number] > 0);
    if (--store->refs[number] == 0) store->free[store->n_free++] = number;
}

weir_status weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    *table = (weir_kv_table){ .capacity = pages_per_head(store->spec.max_rows) };
    const size_t n = (size_t)(heads_of(&store->spec) * table->capacity);
    table->pages = calloc(n + 1, sizeof *table->pages);
    return table->pages != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory for a table of %zu KV pages", n);
}

void weir_kv_table_close(weir_kv_table *table, weir_kv_store *store)
{
    if (table->pages == NULL) return;
    weir_kv_truncate(table, store, 0);
    free(table->pages);
    *table = (weir_kv_table){ 0 };
}

static bool is_shared(const weir_kv_store *store, const void *page) { return store->refs[page_number(store, page)] > 1; }

weir_status weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t rows)
{
    WEIR_ASSERT(rows <= store->spec.max_rows && rows >= table->n_rows);
    const int64_t heads = heads_of(&store->spec), want = pages_per_head(rows), last = table->n_rows / WEIR_PAGE_TOKENS;
    if (heads == 0 || rows == table->n_rows) return WEIR_OK;
    /* All heads of a sequence are shared together, so the first one tells for all. */
    const bool    copy = last < table->n_pages && is_shared(store, table->pages[last]);
    const int64_t grow = want > table->n_pages ? want - table->n_pages : 0;
    if (heads * (grow + (copy ? 1 : 0)) > store->n_free) return WEIR_EFULL;
    for (int64_t h = 0; h < heads; h++) {
        void **const pages = table->pages + h * table->capacity;
        if (copy) {
            void *const shared = pages[last];
            pages[last] = take_page(store, shared);
            drop_page(store, shared);
        }
        for (int64_t p = table->n_pages; p < want; p++) pages[p] = take_page(store, NULL);
    }
    if (want > table->n_pages) table->n_pages = want;
    return WEIR_OK;
}

void weir_kv_commit(weir_kv_table *table, int64_t rows)
{
    WEIR_ASSERT(rows >= table->n_rows && (table->n_pages == 0 || rows <= table->n_pages * WEIR_PAGE_TOKENS));
    table->n_rows = rows;
}

void weir_kv_truncate(weir_kv_table *table, weir_kv_store *store, int64_t rows)
{
    WEIR_ASSERT(rows <= table->n_rows);
    const int64_t heads = heads_of(&store->spec), keep = pages_per_head(rows);
    for (int64_t h = 0; h < heads; h++) {
        void **const pages = table->pages + h * table->capacity;
        for (int64_t p = keep; p < table->n_pages; p++) {
            drop_page(store, pages[p]);
            pages[p] = NULL;
        }
    }
    if (keep < table->n_pages) table->n_pages = keep;
    table->n_rows = rows;
}

void weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store)
{
    WEIR_ASSERT(dst->n_pages == 0 && dst->capacity == src->capacity);
    const int64_t heads = heads_of(&store->spec), n = pages_per_head(src->n_rows);
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t p = 0; p < n; p++) {
            void *const page = src->pages[h * src->capacity + p];
            store->refs[page_number(store, page)]++;
            dst->pages[h * dst->capacity + p] = page;
        }
    }
    dst->n_pages = heads > 0 ? n : 0;
    dst->n_rows = src->n_rows;
}
