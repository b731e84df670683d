#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/store_internal.h"

/* ---- sizes --------------------------------------------------------------------------------------------------------- */
size_t weir_kv_page_bytes(const weir_kv_spec *spec, int64_t layer)
{
    return (size_t)weir_kv_bytes(spec->formats[layer].k, spec->formats[layer].v, spec->key_dim, spec->value_dim);
}

size_t weir_kv_block_bytes(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) bytes += (size_t)spec->n_kv_heads * weir_kv_page_bytes(spec, i);
    return bytes;
}

static size_t sink_page_bytes(const weir_kv_spec *spec)
{
    return (size_t)weir_kv_bytes(spec->sinks.pair.k, spec->sinks.pair.v, spec->key_dim, spec->value_dim);
}

size_t weir_kv_page_bytes_at(const weir_kv_spec *spec, int64_t layer, int64_t block)
{
    return block < spec->sinks.n_pages ? sink_page_bytes(spec) : weir_kv_page_bytes(spec, layer);
}

size_t weir_kv_sink_block_bytes(const weir_kv_spec *spec)
{
    return spec->sinks.n_pages > 0 ? (size_t)kv_heads_of(spec) * sink_page_bytes(spec) : 0;
}

static size_t rounded(const weir_kv_spec *spec, size_t bytes)
{
    const size_t round = WEIR_SPILL_ALIGNMENT - 1;
    return spec->n_disk_pages > 0 ? (bytes + round) & ~round : bytes;
}

size_t weir_kv_page_room(const weir_kv_spec *spec, int64_t layer) { return rounded(spec, weir_kv_page_bytes(spec, layer)); }

size_t weir_kv_sink_page_room(const weir_kv_spec *spec) { return spec->sinks.n_pages > 0 ? rounded(spec, sink_page_bytes(spec)) : 0; }

size_t weir_kv_sink_block_room(const weir_kv_spec *spec) { return (size_t)kv_heads_of(spec) * weir_kv_sink_page_room(spec); }

/* Of the first n_blocks of a text. */
static int64_t sinks_among(const weir_kv_spec *spec, int64_t n_blocks)
{
    return n_blocks < spec->sinks.n_pages ? n_blocks : spec->sinks.n_pages;
}

size_t weir_kv_text_room(const weir_kv_spec *spec, int64_t n_blocks)
{
    const int64_t sinks = sinks_among(spec, n_blocks);
    return (size_t)sinks * weir_kv_sink_block_room(spec) + (size_t)(n_blocks - sinks) * weir_kv_block_room(spec);
}

size_t weir_kv_block_room(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) bytes += (size_t)spec->n_kv_heads * weir_kv_page_room(spec, i);
    return bytes;
}

/* The open page is a sink or not: room for either. */
static size_t open_bytes(const weir_kv_spec *spec, int64_t layer)
{
    const weir_kv_pair others = spec->formats[layer], first = weir_kv_pair_at(others, spec->sinks, 0);
    const int64_t      bytes = weir_kv_open_bytes(others.k, others.v, spec->key_dim, spec->value_dim),
                  at_first = weir_kv_open_bytes(first.k, first.v, spec->key_dim, spec->value_dim);
    return (size_t)(bytes > at_first ? bytes : at_first);
}

size_t weir_kv_open_rows_bytes(const weir_kv_spec *spec)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < spec->n_layers; i++) bytes += (size_t)spec->n_kv_heads * open_bytes(spec, i);
    return bytes;
}

bool weir_kv_is_paged(const weir_kv_spec *spec) { return weir_kv_open_rows_bytes(spec) > 0; }

static int64_t pages_per_head(int64_t rows) { return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS; }

int64_t weir_kv_pages_for(const weir_kv_spec *spec, int64_t rows) { return pages_per_head(rows) * kv_heads_of(spec); }

weir_kv_pages weir_kv_pages_of(const weir_kv_spec *spec, int64_t first, int64_t end)
{
    if (end <= first) return (weir_kv_pages){ 0 };
    const int64_t heads = kv_heads_of(spec), sinks = sinks_among(spec, end) - sinks_among(spec, first);
    return (weir_kv_pages){ .sinks = sinks * heads, .others = (end - first - sinks) * heads };
}

size_t weir_kv_book_bytes(void) { return 2 * sizeof(int32_t) + sizeof(bool); }

static size_t page_entries(const weir_kv_spec *spec, int64_t rows) { return (size_t)(kv_heads_of(spec) * pages_per_head(rows) + 1); }

size_t weir_kv_table_bytes(const weir_kv_spec *spec, int64_t rows)
{
    const size_t open = weir_kv_is_paged(spec) ? (size_t)kv_heads_of(spec) : 0;
    return (page_entries(spec, rows) + open) * sizeof(void *);
}

/* ---- the pool -------------------------------------------------------------------------------------------------------- */
/* Sorts the layers' pages into kinds, with the number of each. */
static weir_status find_kinds(weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    const int64_t heads = kv_heads_of(spec), n_others = spec->n_pages - spec->n_sink_pages, blocks = heads > 0 ? n_others / heads : 0;
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const size_t bytes = weir_kv_page_room(spec, layer);
        int32_t      kind = 0;
        while (kind < store->n_kinds && store->kinds[kind].bytes != bytes) kind++;
        if (kind == KINDS) return weir_error_set(error, WEIR_EUNSUPPORTED, "the layers' KV formats have more than %d page sizes", KINDS);
        if (kind == store->n_kinds) store->kinds[store->n_kinds++] = (page_kind){ .bytes = bytes };
        store->kinds[kind].n += (int32_t)(blocks * spec->n_kv_heads);
    }
    if (store->n_kinds == 1) store->kinds[0].n = (int32_t)n_others;
    const bool is_whole =
        blocks * heads == n_others && (heads == 0 || (spec->n_disk_pages % heads == 0 && spec->n_sink_pages % heads == 0));
    if (spec->sinks.n_pages > 0 && heads > 0) {
        store->sinks = &store->kinds[store->n_kinds++];
        *store->sinks = (page_kind){ .bytes = weir_kv_sink_page_room(spec), .n = (int32_t)spec->n_sink_pages };
    }
    if ((store->n_kinds > 1 || spec->n_disk_pages > 0) && !is_whole)
        return weir_error_set(error, WEIR_EINVAL, "a KV store of %" PRId64 " pages: no multiple of the %" PRId64 " that 64 tokens take",
                              spec->n_pages, heads);
    for (int32_t i = 1; i < store->n_kinds; i++) store->kinds[i].first = store->kinds[i - 1].first + store->kinds[i - 1].n;
    return WEIR_OK;
}

size_t weir_kv_pool_bytes(const weir_kv_spec *spec)
{
    const int64_t heads = kv_heads_of(spec), n = spec->n_pages - spec->n_disk_pages - spec->n_sink_pages;
    if (heads == 0) return 0;
    return (size_t)(n / heads) * weir_kv_block_room(spec) + (size_t)(n % heads) * weir_kv_page_room(spec, 0) +
           (size_t)spec->n_sink_pages * weir_kv_sink_page_room(spec);
}

static weir_status sum_bytes(weir_kv_store *store, weir_error *error)
{
    for (int32_t i = 0; i < store->n_kinds; i++) {
        size_t bytes;
        if (!weir_mul_size(&bytes, (size_t)store->kinds[i].n, store->kinds[i].bytes) || !weir_add_size(&store->bytes, store->bytes, bytes))
            return weir_error_set(error, WEIR_EINVAL, "a KV store of %" PRId64 " pages of %zu bytes does not fit in memory",
                                  store->spec.n_pages, store->kinds[i].bytes);
    }
    return WEIR_OK;
}

/* One block of refs, free, dirty: widest first. */
static weir_status open_books(weir_kv_store *store, weir_error *error)
{
    const size_t n = (size_t)store->spec.n_pages;
    WEIR_TRY(weir_ledger_alloc(store->ledger, &store->books, WEIR_ACCOUNT_PAGE_TABLES, n * weir_kv_book_bytes(), error));
    store->refs = store->books;
    store->free = store->refs + n;
    store->dirty = (bool *)(store->free + n);
    return WEIR_OK;
}

/* All pages are free, low ones on top: they stay warm. */
static void fill_kinds(weir_kv_store *store)
{
    char *memory = store->memory;
    for (page_kind *kind = store->kinds; kind < store->kinds + store->n_kinds; kind++) {
        kind->memory = memory;
        kind->n_free = kind->n;
        memory += (size_t)kind->n * kind->bytes;
        for (int32_t i = 0; i < kind->n; i++) store->free[kind->first + i] = kind->first + kind->n - 1 - i;
    }
}

static weir_status open_pool(weir_kv_store *store, weir_error *error)
{
    WEIR_TRY(find_kinds(store, error));
    WEIR_TRY(sum_bytes(store, error));
    if (store->bytes == 0) return WEIR_OK;
    WEIR_TRY(open_books(store, error));
    if (store->spec.n_disk_pages > 0)
        WEIR_TRY(kv_residency_open(store, error));
    else
        WEIR_TRY(weir_ledger_alloc(store->ledger, (void **)&store->memory, WEIR_ACCOUNT_KV, store->bytes, error));
    fill_kinds(store);
    return WEIR_OK;
}

weir_status weir_kv_store_open(weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error)
{
    const bool has_sinks = spec->sinks.n_pages > 0;
    if (spec->n_pages < 0 || spec->n_pages > INT32_MAX || spec->n_disk_pages < 0 || spec->n_sink_pages < 0 ||
        spec->n_disk_pages > spec->n_pages - spec->n_sink_pages || (!has_sinks && spec->n_sink_pages > 0))
        return weir_error_set(error, WEIR_EINVAL, "a KV store of %" PRId64 " pages is out of range", spec->n_pages);
    weir_kv_store *const store = calloc(1, sizeof *store);
    if (store == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the KV store");
    *store = (weir_kv_store){ .spec = *spec, .ledger = ledger, .n_free = spec->n_pages };
    const weir_status status = open_pool(store, error);
    if (status != WEIR_OK)
        weir_kv_store_close(store);
    else
        *out = store;
    return status;
}

void weir_kv_store_close(weir_kv_store *store)
{
    if (store == NULL) return;
    if (store->spec.n_disk_pages > 0)
        kv_residency_close(store);
    else if (store->memory != NULL)
        weir_ledger_free(store->ledger, store->memory, WEIR_ACCOUNT_KV, store->bytes);
    weir_ledger_free(store->ledger, store->books, WEIR_ACCOUNT_PAGE_TABLES, (size_t)store->spec.n_pages * weir_kv_book_bytes());
    free(store);
}

const weir_kv_spec *weir_kv_store_spec(const weir_kv_store *store) { return &store->spec; }
int64_t             weir_kv_store_free_pages(const weir_kv_store *store) { return store->n_free; }

weir_kv_pages weir_kv_store_free(const weir_kv_store *store)
{
    const int64_t sinks = store->sinks != NULL ? store->sinks->n_free : 0;
    return (weir_kv_pages){ .sinks = sinks, .others = store->n_free - sinks };
}

int64_t kv_movable_pages(const weir_kv_store *store)
{
    return store->n_resident - (store->sinks != NULL ? store->sinks->n - store->sinks->n_free : 0);
}

/* Of pages of number `block` in a text. */
static page_kind *kind_of(const weir_kv_store *store, int64_t layer, int64_t block)
{
    const page_kind *kind = store->kinds;
    if (block < store->spec.sinks.n_pages) return store->sinks;
    const size_t room = weir_kv_page_room(&store->spec, layer);
    while (kind->bytes != room) kind++;
    return (page_kind *)kind;
}

static page_kind *kind_at(const weir_kv_store *store, const void *page)
{
    const page_kind *kind = store->kinds + store->n_kinds - 1;
    while ((const char *)page < kind->memory) kind--;
    return (page_kind *)kind;
}

size_t kv_room_of(const weir_kv_store *store, const void *page) { return kind_at(store, page)->bytes; }

bool kv_is_sink(const weir_kv_store *store, const void *page) { return store->sinks != NULL && kind_at(store, page) == store->sinks; }

int32_t kv_page_number(const weir_kv_store *store, const void *page)
{
    const page_kind *const kind = kind_at(store, page);
    return kind->first + (int32_t)((size_t)((const char *)page - kind->memory) / kind->bytes);
}

static void *take_page(weir_kv_store *store, page_kind *kind, const void *copy_of)
{
    WEIR_ASSERT(kind->n_free > 0);
    const int32_t number = store->free[kind->first + --kind->n_free];
    char *const   page = kind->memory + (size_t)(number - kind->first) * kind->bytes;
    store->n_free--;
    store->n_resident++;
    WEIR_DASSERT(store->n_resident <= store->spec.n_pages - store->spec.n_disk_pages);
    store->refs[number] = 1;
    if (copy_of != NULL)
        memcpy(page, copy_of, kind->bytes);
    else if (store->dirty[number])
        memset(page, 0, kind->bytes);
    store->dirty[number] = true;
    return page;
}

void weir_kv_page_hold(weir_kv_store *store, const void *page) { store->refs[kv_page_number(store, page)]++; }

int32_t weir_kv_page_refs(const weir_kv_store *store, const void *page) { return store->refs[kv_page_number(store, page)]; }

void weir_kv_page_drop(weir_kv_store *store, void *page)
{
    const int32_t number = kv_page_number(store, page);
    WEIR_ASSERT(store->refs[number] > 0);
    if (--store->refs[number] > 0) return;
    page_kind *const kind = kind_at(store, page);
    if (store->spill != NULL)
        kv_residency_forget(store, number, page, kind->bytes);
    else
        store->n_resident--;
    store->free[kind->first + kind->n_free++] = number;
    store->n_free++;
}

/* ---- tables ---------------------------------------------------------------------------------------------------------- */
static void place_open_rows(weir_kv_table *table, const weir_kv_spec *spec)
{
    char *at = table->open_memory;
    table->open = table->pages + page_entries(spec, spec->max_rows);
    for (int64_t h = 0; h < kv_heads_of(spec); h++) {
        const size_t bytes = open_bytes(spec, h / spec->n_kv_heads);
        table->open[h] = bytes > 0 ? at : NULL;
        at += bytes;
    }
}

weir_status weir_kv_table_open(weir_kv_table *table, weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    *table = (weir_kv_table){ .capacity = pages_per_head(spec->max_rows) };
    WEIR_TRY(weir_ledger_alloc(store->ledger, (void **)&table->pages, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_table_bytes(spec, spec->max_rows),
                               error));
    if (!weir_kv_is_paged(spec)) return WEIR_OK;
    const weir_status status = weir_ledger_alloc(store->ledger, &table->open_memory, WEIR_ACCOUNT_KV, weir_kv_open_rows_bytes(spec), error);
    if (status == WEIR_OK)
        place_open_rows(table, spec);
    else
        weir_kv_table_close(table, store);
    return status;
}

void weir_kv_table_close(weir_kv_table *table, weir_kv_store *store)
{
    const weir_kv_spec *const spec = &store->spec;
    if (table->pages == NULL) return;
    weir_kv_truncate(table, store, 0);
    weir_ledger_free(store->ledger, table->open_memory, WEIR_ACCOUNT_KV, weir_kv_open_rows_bytes(spec));
    weir_ledger_free(store->ledger, table->pages, WEIR_ACCOUNT_PAGE_TABLES, weir_kv_table_bytes(spec, spec->max_rows));
    *table = (weir_kv_table){ 0 };
}

static bool is_shared(const weir_kv_store *store, const void *page) { return weir_kv_page_refs(store, page) > 1; }

void weir_kv_table_share(weir_kv_table *table, weir_kv_store *store, int64_t page, void *const *pages)
{
    const int64_t heads = kv_heads_of(&store->spec);
    WEIR_ASSERT(page < table->capacity);
    for (int64_t h = 0; h < heads; h++) {
        void **const at = &table->pages[h * table->capacity + page];
        WEIR_ASSERT(*at == NULL);
        weir_kv_page_hold(store, pages[h]);
        *at = pages[h];
    }
    if (page >= table->n_pages) table->n_pages = page + 1;
}

/* Has every kind the pages for each of its heads? All sequences take pages of all heads together, but other holders need not. */
static bool has_free(const weir_kv_store *store, weir_kv_pages pages)
{
    const weir_kv_spec *const spec = &store->spec;
    const int64_t             n = pages.others / kv_heads_of(spec);
    int64_t                   wanted[KINDS] = { 0 };
    if (n > weir_kv_store_room(store) || (pages.sinks > 0 && pages.sinks > store->sinks->n_free)) return false;
    for (int64_t layer = 0; n > 0 && layer < spec->n_layers; layer++) {
        const page_kind *const kind = kind_of(store, layer, spec->sinks.n_pages);
        int64_t *const         want = &wanted[kind - store->kinds];
        *want += n * spec->n_kv_heads;
        if (*want > kind->n_free) return false;
    }
    return true;
}

weir_status weir_kv_reserve(weir_kv_table *table, weir_kv_store *store, int64_t rows)
{
    WEIR_ASSERT(rows <= store->spec.max_rows && rows >= table->n_rows);
    const int64_t heads = kv_heads_of(&store->spec), want = pages_per_head(rows), last = table->n_rows / WEIR_PAGE_TOKENS;
    if (heads == 0 || rows == table->n_rows) return WEIR_OK;
    if (last < table->n_pages && weir_kv_is_cold(store, table->pages[last]))
        WEIR_TRY(weir_kv_bring_back(store, table->pages + last, table->capacity, NULL));
    /* All heads of a sequence are shared together, so the first one tells for all. */
    const bool          copy = last < table->n_pages && is_shared(store, table->pages[last]);
    const weir_kv_pages grow = weir_kv_pages_of(&store->spec, table->n_pages, want),
                        again = weir_kv_pages_of(&store->spec, last, copy ? last + 1 : last);
    if (!has_free(store, (weir_kv_pages){ grow.sinks + again.sinks, grow.others + again.others })) return WEIR_EFULL;
    for (int64_t h = 0; (want > table->n_pages || copy) && h < heads; h++) {
        void **const  pages = table->pages + h * table->capacity;
        const int64_t layer = h / store->spec.n_kv_heads;
        if (copy) {
            void *const shared = pages[last];
            pages[last] = take_page(store, kind_of(store, layer, last), shared);
            weir_kv_page_drop(store, shared);
        }
        for (int64_t p = table->n_pages; p < want; p++) pages[p] = take_page(store, kind_of(store, layer, p), NULL);
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
    WEIR_ASSERT(table->open == NULL || rows % WEIR_PAGE_TOKENS == 0 || rows / WEIR_PAGE_TOKENS == table->n_rows / WEIR_PAGE_TOKENS);
    const int64_t heads = kv_heads_of(&store->spec), keep = pages_per_head(rows);
    for (int64_t h = 0; h < heads; h++) {
        void **const pages = table->pages + h * table->capacity;
        for (int64_t p = keep; p < table->n_pages; p++) {
            weir_kv_page_drop(store, pages[p]);
            pages[p] = NULL;
        }
    }
    if (keep < table->n_pages) table->n_pages = keep;
    table->n_rows = rows;
}

void weir_kv_share(weir_kv_table *dst, const weir_kv_table *src, weir_kv_store *store)
{
    WEIR_ASSERT(dst->n_pages == 0 && dst->capacity == src->capacity);
    const int64_t heads = kv_heads_of(&store->spec), n = pages_per_head(src->n_rows);
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t p = 0; p < n; p++) {
            void *const page = src->pages[h * src->capacity + p];
            weir_kv_page_hold(store, page);
            dst->pages[h * dst->capacity + p] = page;
        }
    }
    dst->n_pages = heads > 0 ? n : 0;
    dst->n_rows = src->n_rows;
    if (dst->open != NULL && src->n_rows % WEIR_PAGE_TOKENS != 0)
        memcpy(dst->open_memory, src->open_memory, weir_kv_open_rows_bytes(&store->spec));
}
