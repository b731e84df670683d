/* engine/kv/tiers/residency_open.c - memory, addresses and metadata of a store with a lower
 * tier. */
#include <inttypes.h>

#include "engine/base/memory.h"
#include "engine/kv/pool/store_internal.h"
#include "engine/kv/tiers/residency_internal.h"

static size_t own_metadata_bytes(const weir_kv_spec *spec)
{
    const size_t per_page = sizeof(int32_t) * (spec->evicts ? 2 : 1);
    const int64_t words = kv_release_words(spec->pages.n);
    return (size_t)(KV_MOVES * weir_kv_n_heads(spec)) * sizeof(void *) +
           (size_t)(words + kv_release_words(words)) * sizeof(uint64_t) +
           (size_t)kv_cold_blocks(spec) * sizeof(kv_cold_block) + (size_t)spec->pages.n * per_page;
}

static size_t backing_metadata_bytes(const weir_kv_spec *spec)
{
    return spec->has_device ? (size_t)(spec->pages.n - weir_kv_cold_pages(spec)) * sizeof(void *)
                            : 0;
}

/* What the kernel allocates for address space that was used once, and the device for its own: 8
 * bytes per 4096. */
static size_t address_bytes(const weir_kv_spec *spec)
{
    if (weir_kv_n_heads(spec) == 0) return 0;
    const size_t others = (size_t)kv_blocks_in(spec, spec->pages.n - spec->pages.n_sinks) *
                          weir_kv_block_stride(spec),
                 sinks = (size_t)kv_blocks_in(spec, spec->pages.n_sinks) *
                         weir_kv_sink_block_stride(spec);
    return weir_device_space_metadata_bytes(others + sinks);
}

size_t weir_kv_lower_tier_metadata_bytes(const weir_kv_spec *spec)
{
    if (weir_kv_cold_pages(spec) == 0) return 0;
    return own_metadata_bytes(spec) + backing_metadata_bytes(spec) +
           weir_lower_tier_metadata_bytes(
               kv_cold_blocks(spec), kv_blocks_in(spec, spec->pages.n_host), spec->n_layers,
               weir_kv_n_heads(spec)
           ) +
           address_bytes(spec);
}

size_t weir_kv_host_bytes(const weir_kv_spec *spec)
{
    size_t way = 0; /* the largest part */
    for (int64_t layer = 0; spec->has_device && spec->pages.n_disk > 0 && layer < spec->n_layers;
         layer++) {
        const size_t part = weir_kv_layer_stride(spec, layer);
        if (part > way) way = part;
    }
    return (size_t)kv_blocks_in(spec, spec->pages.n_host) * weir_kv_block_stride(spec) + way;
}

static weir_status open_lower_tier(weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    weir_lower_tier_part *const parts =
        weir_memory_take_zero((size_t)spec->n_layers, sizeof *parts);
    if (parts == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the metadata of the lower tier");
    for (int64_t layer = 0; layer < spec->n_layers; layer++)
        parts[layer] = (weir_lower_tier_part){ .n_pages = spec->geometry[layer].n_heads,
                                               .page_bytes = weir_kv_page_stride(spec, layer) };
    const weir_lower_tier_layout layout = { .folder = spec->disk_folder,
                                            .n_blocks = kv_cold_blocks(spec),
                                            .n_host_blocks = kv_blocks_in(spec, spec->pages.n_host),
                                            .n_parts = spec->n_layers,
                                            .parts = parts };
    const weir_status status = weir_lower_tier_open(&store->lower, &layout, store->ledger, error);
    weir_memory_give(parts);
    return status;
}

/* Allocates a device's memory for the pages that are not cold, for each class, and addresses for
 * all. */
static weir_status open_backing(weir_kv_store *store, weir_error *error)
{
    weir_device *const device = weir_ledger_device(store->ledger);
    char *backing;
    size_t n = 0;
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++)
        store->backing_bytes += (size_t)size_class->most * size_class->bytes;
    WEIR_TRY(weir_ledger_alloc(
        store->ledger, (void **)&store->backing_metadata, WEIR_ACCOUNT_PAGE_TABLES,
        backing_metadata_bytes(&store->spec), error
    ));
    WEIR_TRY(weir_ledger_alloc_device(
        store->ledger, (void **)&store->backing, WEIR_ACCOUNT_KV, store->backing_bytes, error
    ));
    backing = store->backing;
    for (kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        size_class->free_backing = store->backing_metadata + n;
        for (int32_t i = 0; i < size_class->most; i++, backing += size_class->bytes)
            size_class->free_backing[size_class->most - 1 - i] = backing;
        n += (size_t)size_class->most;
    }
    if (weir_device_space_open(device, (void **)&store->memory, store->bytes) == WEIR_OK)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_ENOMEM,
        "the system has no %zu bytes of address space; lower kv.tiers.host or memory.disk",
        store->bytes
    );
}

static void place_metadata(weir_kv_store *store)
{
    const int64_t n_pages = store->spec.pages.n, words = kv_release_words(n_pages);
    store->released.pages =
        (uint64_t *)store->lower_tier_metadata + KV_MOVES * weir_kv_n_heads(&store->spec);
    store->released.words = store->released.pages + words;
    store->cold = (kv_cold_block *)(store->released.words + kv_release_words(words));
    store->blocks = (int32_t *)(store->cold + kv_cold_blocks(&store->spec));
    if (store->spec.evicts) store->pins = store->blocks + n_pages;
    store->unfreed = NO_BLOCK;
}

weir_status kv_residency_open(weir_kv_store *store, weir_error *error)
{
    const weir_kv_spec *const spec = &store->spec;
    (void)pthread_mutex_init(&store->lock, NULL);
    if (weir_kv_most_heads(spec) > KV_LAYER_HEADS)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "KV pages of %" PRId64
            " heads cannot be demoted, at most %d; set memory.disk and kv.tiers.host to 0",
            weir_kv_most_heads(spec), KV_LAYER_HEADS
        );
    WEIR_TRY(weir_ledger_reserve(
        store->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES, address_bytes(spec), error
    ));
    store->address_bytes = address_bytes(spec);
    WEIR_TRY(weir_ledger_alloc(
        store->ledger, &store->lower_tier_metadata, WEIR_ACCOUNT_PAGE_TABLES,
        own_metadata_bytes(spec), error
    ));
    place_metadata(store);
    for (int64_t i = 0; i < spec->pages.n; i++) store->blocks[i] = NO_BLOCK;
    if (spec->has_device)
        WEIR_TRY(open_backing(store, error));
    else
        WEIR_TRY(weir_ledger_map(
            store->ledger, (void **)&store->memory, WEIR_ACCOUNT_KV, weir_kv_pool_bytes(spec),
            store->bytes, error
        ));
    WEIR_TRY(open_lower_tier(store, error));
    return kv_moves_open(store, store->lower_tier_metadata, error);
}

void kv_residency_close(weir_kv_store *store)
{
    kv_moves_close(store);
    weir_lower_tier_close(store->lower);
    if (!store->spec.has_device)
        weir_ledger_unmap(
            store->ledger, store->memory, WEIR_ACCOUNT_KV, weir_kv_pool_bytes(&store->spec),
            store->bytes
        );
    else if (store->memory != NULL)
        weir_device_space_close(weir_ledger_device(store->ledger));
    weir_ledger_free_device(store->ledger, store->backing, WEIR_ACCOUNT_KV, store->backing_bytes);
    weir_ledger_free(
        store->ledger, store->backing_metadata, WEIR_ACCOUNT_PAGE_TABLES,
        backing_metadata_bytes(&store->spec)
    );
    weir_ledger_free(
        store->ledger, store->lower_tier_metadata, WEIR_ACCOUNT_PAGE_TABLES,
        own_metadata_bytes(&store->spec)
    );
    weir_ledger_return(
        store->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_PAGE_TABLES, store->address_bytes
    );
    (void)pthread_mutex_destroy(&store->lock);
}
