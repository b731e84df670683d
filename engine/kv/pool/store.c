/* engine/kv/pool/store.c - the pool: allocates and frees pages of each size class. Sizes are in
 * sizes.c, references in references.c, tables in table.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/pool/store_internal.h"

/* Sorts the layers' pages into size classes, with the number of each. */
static weir_status find_size_classes(weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    const int64_t heads = weir_kv_n_heads(spec), n_others = spec->pages.n - spec->pages.n_sinks,
                  blocks = heads > 0 ? n_others / heads : 0;
    kv_layer_classes classes;
    if (!kv_find_layer_classes(&classes, spec))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "the layers' KV formats have more than %d page sizes",
            WEIR_KV_SIZE_CLASSES
        );
    for (int32_t i = 0; i < classes.n; i++)
        store->size_classes[i] = (kv_size_class){ .bytes = classes.bytes[i],
                                                  .n = (int32_t)blocks * classes.per_block[i],
                                                  .per_block = classes.per_block[i] };
    store->n_classes = classes.n;
    if (store->n_classes == 1) store->size_classes[0].n = (int32_t)n_others;
    const bool is_whole =
        blocks * heads == n_others &&
        (heads == 0 || (spec->pages.n_disk % heads == 0 && spec->pages.n_host % heads == 0 &&
                        spec->pages.n_sinks % heads == 0));
    if (spec->sinks.n_pages > 0 && heads > 0) {
        store->sinks = &store->size_classes[store->n_classes++];
        *store->sinks = (kv_size_class){ .bytes = weir_kv_sink_page_stride(spec),
                                         .n = (int32_t)spec->pages.n_sinks,
                                         .per_block = (int32_t)heads };
    }
    if ((store->n_classes > 1 || weir_kv_cold_pages(spec) > 0) && !is_whole)
        return weir_error_set(
            error, WEIR_EINVAL,
            "a KV store of %" PRId64 " pages: no multiple of the %" PRId64 " that 64 tokens take",
            spec->pages.n, heads
        );
    for (int32_t i = 1; i < store->n_classes; i++)
        store->size_classes[i].first =
            store->size_classes[i - 1].first + store->size_classes[i - 1].n;
    for (kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        const int64_t cold = size_class == store->sinks || heads == 0
                                 ? 0
                                 : weir_kv_cold_pages(spec) / heads * size_class->per_block;
        size_class->most = size_class->n - (int32_t)cold;
    }
    return WEIR_OK;
}

size_t weir_kv_pool_bytes(const weir_kv_spec *spec)
{
    const int64_t heads = weir_kv_n_heads(spec),
                  n = spec->pages.n - weir_kv_cold_pages(spec) - spec->pages.n_sinks;
    if (heads == 0) return 0;
    return (size_t)(n / heads) * weir_kv_block_stride(spec) +
           (size_t)(n % heads) * weir_kv_page_stride(spec, 0) +
           (size_t)spec->pages.n_sinks * weir_kv_sink_page_stride(spec);
}

static weir_status sum_bytes(weir_kv_store *store, weir_error *error)
{
    for (int32_t i = 0; i < store->n_classes; i++) {
        size_t bytes;
        if (!weir_mul_size(
                &bytes, (size_t)store->size_classes[i].n, store->size_classes[i].bytes
            ) ||
            !weir_add_size(&store->bytes, store->bytes, bytes))
            return weir_error_set(
                error, WEIR_EINVAL,
                "a KV store of %" PRId64 " pages of %zu bytes does not fit in memory",
                store->spec.pages.n, store->size_classes[i].bytes
            );
    }
    return WEIR_OK;
}

/* Allocates refs, free, owners, kept and dirty as one block, widest element first. */
static weir_status open_metadata(weir_kv_store *store, weir_error *error)
{
    const size_t n = (size_t)store->spec.pages.n;
    WEIR_TRY(weir_ledger_alloc(
        store->ledger, &store->metadata, WEIR_ACCOUNT_PAGE_TABLES,
        n * weir_kv_page_metadata_bytes(), error
    ));
    store->refs = store->metadata;
    store->free = store->refs + n;
    store->owners = store->free + n;
    store->kept = (uint16_t *)(store->owners + n);
    store->dirty = (bool *)(store->kept + n);
    return WEIR_OK;
}

/* All pages are free, low ones on top, so that the same pages are reused. */
static void fill_size_classes(weir_kv_store *store)
{
    char *memory = store->memory;
    for (kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        size_class->memory = memory;
        size_class->n_free = size_class->n;
        memory += (size_t)size_class->n * size_class->bytes;
        for (int32_t i = 0; i < size_class->n; i++)
            store->free[size_class->first + i] = size_class->first + size_class->n - 1 - i;
    }
}

static weir_status remember_sizes(weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    store->sizes = (kv_sizes){ .block_stride = weir_kv_block_stride(spec),
                               .sink_block_stride = weir_kv_sink_block_stride(spec),
                               .unsealed_rows = weir_kv_unsealed_rows_bytes(spec),
                               .table_metadata = weir_kv_table_metadata_bytes(spec),
                               .window_block = weir_kv_windows_block_bytes(&spec->windows) };
    store->head_class = calloc((size_t)weir_kv_n_heads(spec) + 1, sizeof *store->head_class);
    if (store->head_class == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the KV store");
    for (int64_t layer = 0; layer < spec->n_layers; layer++) {
        const weir_kv_geometry *const g = &spec->geometry[layer];
        const size_t bytes = weir_kv_page_stride(spec, layer);
        uint8_t i = 0;
        while (store->size_classes[i].bytes != bytes) i++;
        memset(store->head_class + g->first_head, i, (size_t)g->n_heads);
    }
    return WEIR_OK;
}

static weir_status open_pool(weir_kv_store *store, weir_error *error)
{
    WEIR_TRY(find_size_classes(store, error));
    WEIR_TRY(remember_sizes(store, error));
    WEIR_TRY(sum_bytes(store, error));
    WEIR_TRY(kv_tables_open(store, error));
    if (store->spec.windows.n_layers > 0)
        WEIR_TRY(weir_kv_windows_open(&store->windows, &store->spec.windows, store->ledger, error));
    if (store->bytes == 0) return WEIR_OK;
    WEIR_TRY(open_metadata(store, error));
    if (weir_kv_cold_pages(&store->spec) > 0)
        WEIR_TRY(kv_residency_open(store, error));
    else
        WEIR_TRY(weir_ledger_alloc_device(
            store->ledger, (void **)&store->memory, WEIR_ACCOUNT_KV, store->bytes, error
        ));
    fill_size_classes(store);
    return WEIR_OK;
}

/* Returns true if every layer has heads, and first_head numbers them without gaps. */
static bool is_numbered(const weir_kv_spec *spec)
{
    int64_t n = 0;
    for (int64_t i = 0; i < spec->n_layers; n += spec->geometry[i++].n_heads) {
        const weir_kv_geometry *const g = &spec->geometry[i];
        if (g->first_head != n || g->n_heads < 1 || g->n_heads > 1 << 16 || g->key_dim < 1 ||
            g->value_dim < 1)
            return false;
    }
    return n <= INT32_MAX;
}

weir_status weir_kv_store_open(
    weir_kv_store **out, const weir_kv_spec *spec, weir_ledger *ledger, weir_error *error
)
{
    const bool has_sinks = spec->sinks.n_pages > 0;
    if (spec->pages.n < 0 || spec->pages.n > INT32_MAX || spec->pages.n_disk < 0 ||
        spec->pages.n_host < 0 || spec->pages.n_sinks < 0 || spec->pages.n_sinks > spec->pages.n ||
        spec->pages.n_disk > spec->pages.n - spec->pages.n_sinks ||
        spec->pages.n_host > spec->pages.n - spec->pages.n_sinks - spec->pages.n_disk ||
        !is_numbered(spec) || (!has_sinks && spec->pages.n_sinks > 0) ||
        (spec->pages.n_host > 0 && !spec->has_device) ||
        (spec->windows.n_layers > 0 && spec->has_device) ||
        spec->has_device != (weir_ledger_device(ledger) != NULL))
        return weir_error_set(
            error, WEIR_EINVAL, "a KV store of %" PRId64 " pages is out of range", spec->pages.n
        );
    weir_kv_store *const store = calloc(1, sizeof *store);
    if (store == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the KV store");
    *store = (weir_kv_store){ .spec = *spec,
                              .ledger = ledger,
                              .n_free = spec->pages.n,
                              .first_changed = LAST_CHANGED,
                              .unused_lock = PTHREAD_MUTEX_INITIALIZER };
    store->lookups = &store->n_lookups;
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
    kv_tables_close(store);
    weir_kv_windows_close(store->windows);
    if (weir_kv_cold_pages(&store->spec) > 0)
        kv_residency_close(store);
    else if (store->memory != NULL)
        weir_ledger_free_device(store->ledger, store->memory, WEIR_ACCOUNT_KV, store->bytes);
    weir_ledger_free(
        store->ledger, store->metadata, WEIR_ACCOUNT_PAGE_TABLES,
        (size_t)store->spec.pages.n * weir_kv_page_metadata_bytes()
    );
    free(store->head_class);
    free(store);
}

weir_kv_pages weir_kv_store_pages_of(const weir_kv_store *store, int64_t first, int64_t end)
{
    weir_kv_pages n = { 0 };
    if (end <= first) return n;
    const int64_t sinks = kv_sinks_among(&store->spec, end) - kv_sinks_among(&store->spec, first);
    n.sinks = sinks * weir_kv_n_heads(&store->spec);
    const int32_t n_others = store->n_classes - (store->sinks != NULL);
    for (int32_t i = 0; i < n_others; i++)
        n.others[i] = (end - first - sinks) * store->size_classes[i].per_block;
    return n;
}

const weir_kv_spec *weir_kv_store_spec(const weir_kv_store *store) { return &store->spec; }
weir_kv_windows *weir_kv_store_windows(const weir_kv_store *store) { return store->windows; }
weir_ledger *weir_kv_store_ledger(const weir_kv_store *store) { return store->ledger; }
const char *weir_kv_store_budget(const weir_kv_store *store)
{
    return store->spec.has_device ? "memory.device" : "memory.host";
}
int64_t weir_kv_store_free_pages(const weir_kv_store *store) { return store->n_free; }

int64_t *kv_count_of(
    const weir_kv_store *store, weir_kv_pages *pages, const kv_size_class *size_class
)
{
    return size_class == store->sinks ? &pages->sinks
                                      : &pages->others[size_class - store->size_classes];
}

weir_kv_pages weir_kv_store_free(const weir_kv_store *store)
{
    weir_kv_pages n = { .tables = store->n_free_units };
    for (int32_t i = 0; i < store->n_classes; i++)
        *kv_count_of(store, &n, &store->size_classes[i]) = store->size_classes[i].n_free;
    return n;
}

weir_kv_pages weir_kv_store_free_near(const weir_kv_store *store)
{
    weir_kv_pages n = { .tables = store->n_free_units };
    for (int32_t i = 0; i < store->n_classes; i++) {
        const kv_size_class *const size_class = &store->size_classes[i];
        const int32_t left = size_class->most - size_class->n_resident;
        *kv_count_of(store, &n, size_class) = left < size_class->n_free ? left : size_class->n_free;
    }
    return n;
}

weir_kv_pages weir_kv_store_all(const weir_kv_store *store)
{
    weir_kv_pages n = { .tables = store->n_table_units };
    for (int32_t i = 0; i < store->n_classes; i++)
        *kv_count_of(store, &n, &store->size_classes[i]) = store->size_classes[i].n;
    return n;
}

bool weir_kv_store_has_pruned(const weir_kv_store *store) { return store->n_pruned > 0; }

/* The size class of a head's page at index `block` of a sequence. */
static kv_size_class *kind_of(weir_kv_store *store, int64_t head, int64_t block)
{
    return block < store->spec.sinks.n_pages ? store->sinks
                                             : &store->size_classes[store->head_class[head]];
}

kv_size_class *kv_size_class_at(const weir_kv_store *store, const void *page)
{
    const kv_size_class *size_class = store->size_classes + store->n_classes - 1;
    while ((const char *)page < size_class->memory) size_class--;
    return (kv_size_class *)size_class;
}

size_t kv_stride_of(const weir_kv_store *store, const void *page)
{
    return kv_size_class_at(store, page)->bytes;
}

bool kv_is_sink(const weir_kv_store *store, const void *page)
{
    return store->sinks != NULL && kv_size_class_at(store, page) == store->sinks;
}

int32_t kv_page_number(const weir_kv_store *store, const void *page)
{
    const kv_size_class *const size_class = kv_size_class_at(store, page);
    return size_class->first +
           (int32_t)((size_t)((const char *)page - size_class->memory) / size_class->bytes);
}

void *kv_take_page(weir_kv_store *store, int64_t head, int64_t block, const void *copy_of)
{
    kv_size_class *const size_class = kind_of(store, head, block);
    WEIR_ASSERT(size_class->n_free > 0);
    const int32_t number = store->free[size_class->first + --size_class->n_free];
    char *const page =
        size_class->memory + (size_t)(number - size_class->first) * size_class->bytes;
    store->n_free--;
    store->refs[number] = 1;
    const bool is_dirty = kv_enter(store, size_class, page);
    if (copy_of != NULL)
        weir_ledger_copy(store->ledger, page, copy_of, size_class->bytes);
    else if (is_dirty)
        weir_ledger_clear(store->ledger, page, size_class->bytes);
    return page;
}

void kv_want(const weir_kv_store *store, kv_wanted *wanted, int64_t head, int64_t block)
{
    const bool is_sink = block < store->spec.sinks.n_pages;
    wanted->n[is_sink ? store->n_classes - 1 : store->head_class[head]]++;
}

void kv_want_block(const weir_kv_store *store, kv_wanted *wanted, int64_t block)
{
    const bool is_sink = block < store->spec.sinks.n_pages;
    for (int32_t i = 0; i < store->n_classes; i++) {
        const kv_size_class *const size_class = &store->size_classes[i];
        if (is_sink == (size_class == store->sinks)) wanted->n[i] += size_class->per_block;
    }
}

weir_kv_pages kv_wanted_pages(const weir_kv_store *store, const kv_wanted *wanted, int64_t n_blocks)
{
    weir_kv_pages n = { 0 };
    for (int32_t i = 0; i < store->n_classes; i++) {
        const kv_size_class *const size_class = &store->size_classes[i];
        *kv_count_of(store, &n, size_class) += wanted->n[i];
        if (size_class != store->sinks) n.others[i] += n_blocks * size_class->per_block;
    }
    return n;
}

void weir_kv_pages_add(const weir_kv_store *store, weir_kv_pages *pages, const void *page)
{
    *kv_count_of(store, pages, kv_size_class_at(store, page)) += 1;
}

bool kv_has_free(const weir_kv_store *store, const kv_wanted *wanted, int64_t n_back)
{
    for (int32_t i = 0; i < store->n_classes; i++) {
        const kv_size_class *const size_class = &store->size_classes[i];
        const int64_t back = size_class == store->sinks ? 0 : n_back * size_class->per_block;
        if (wanted->n[i] > size_class->n_free ||
            wanted->n[i] + back > size_class->most - size_class->n_resident)
            return false;
    }
    return true;
}
