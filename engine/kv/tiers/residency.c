/* engine/kv/tiers/residency.c - where blocks are, what a move changes, and copies of pages. */
#include "engine/kv/tiers/residency.h"

#include "engine/kv/pool/store_internal.h"
#include "engine/kv/tiers/residency_internal.h"

/* ---- asking ---------------------------------------------------------------------------------- */
int32_t weir_kv_place_of(const weir_kv_store *store, const void *page)
{
    return store->lower != NULL && page != NULL ? store->blocks[kv_page_number(store, page)]
                                                : NO_BLOCK;
}

bool weir_kv_is_cold(const weir_kv_store *store, const void *page)
{
    return weir_kv_place_of(store, page) != NO_BLOCK;
}

bool weir_kv_is_unreadable(const weir_kv_store *store, const void *page)
{
    const int32_t block = weir_kv_place_of(store, page);
    return block != NO_BLOCK && store->cold[block].is_unreadable;
}

void weir_kv_mark_unreadable(weir_kv_store *store, const void *page)
{
    const int32_t block = weir_kv_place_of(store, page);
    WEIR_ASSERT(block != NO_BLOCK);
    store->cold[block].is_unreadable = true;
}

bool weir_kv_may_leave(const weir_kv_store *store, void *const *pages, int64_t stride)
{
    ++*store->lookups;
    if (store->lower == NULL || pages[0] == NULL || weir_kv_is_cold(store, pages[0]) ||
        kv_is_sink(store, pages[0]) || weir_kv_is_moving(store, pages[0]))
        return false;
    for (int64_t h = 0; store->pins != NULL && h < weir_kv_n_heads(&store->spec); h++)
        if (pages[h * stride] == NULL || store->pins[kv_page_number(store, pages[h * stride])] > 0)
            return false;
    return true;
}

int64_t weir_kv_free_blocks(const weir_kv_store *store)
{
    int64_t free_blocks = INT64_MAX;
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        if (size_class == store->sinks) continue;
        const int64_t blocks = (size_class->most - size_class->n_resident) / size_class->per_block;
        if (blocks < free_blocks) free_blocks = blocks;
    }
    return free_blocks;
}

bool weir_kv_lower_tier_fails(const weir_kv_store *store)
{
    return store->lower != NULL && weir_lower_tier_fails(store->lower);
}

weir_lower_tier *weir_kv_store_lower_tier(const weir_kv_store *store) { return store->lower; }

weir_kv_residency weir_kv_residency_of(const weir_kv_store *store)
{
    weir_kv_residency all = store->moved;
    all.pages_in_memory = store->n_resident;
    all.pages_cold = store->spec.pages.n - store->n_free - store->n_resident +
                     store->moves.n_coming * weir_kv_n_heads(&store->spec);
    all.pages_on_host = store->n_on_host;
    if (store->lower == NULL) return all;
    const weir_lower_tier_stats file = weir_lower_tier_stats_of(store->lower);
    all.bytes_read = file.read - all.bytes_back;
    all.write_errors = file.write_errors;
    all.read_errors = file.read_errors;
    return all;
}

/* ---- moving ---------------------------------------------------------------------------------- */
static bool is_on_host(const weir_kv_store *store, int32_t block)
{
    return block < kv_blocks_in(&store->spec, store->spec.pages.n_host);
}

/* The bytes of a page that moves. */
static size_t stride_of(const weir_kv_store *store, int64_t head)
{
    return weir_kv_page_stride(&store->spec, weir_kv_layer_of(&store->spec, head));
}

bool kv_enter(weir_kv_store *store, kv_size_class *size_class, void *page)
{
    WEIR_ASSERT(size_class->n_resident < size_class->most);
    store->n_resident++;
    if (size_class->free_backing != NULL) {
        void *const backing = size_class->free_backing[size_class->most - ++size_class->n_resident];
        weir_device_space_map(weir_ledger_device(store->ledger), page, backing, size_class->bytes);
        return true;
    }
    kv_release_now(store);
    size_class->n_resident++;
    bool *const dirty = &store->dirty[kv_page_number(store, page)], was = *dirty;
    *dirty = true;
    return was;
}

/* Releases the page's memory until it is promoted. On the host it then reads as zeros. */
static void unback(weir_kv_store *store, void *page)
{
    kv_size_class *const size_class = kv_size_class_at(store, page);
    store->n_resident--;
    if (size_class->free_backing != NULL) {
        weir_device *const device = weir_ledger_device(store->ledger);
        size_class->free_backing[size_class->most - size_class->n_resident--] =
            weir_device_resolve(device, page);
        weir_device_space_map(device, page, NULL, size_class->bytes);
        return;
    }
    size_class->n_resident--;
    store->dirty[kv_page_number(store, page)] = false;
    kv_release(store, page);
}

/* No page of it is held. A thread that still reads it was told that it may: then later. */
static void free_block(weir_kv_store *store, int32_t block)
{
    kv_cold_block *const cold = &store->cold[block];
    if (atomic_load_explicit(&cold->n_readers, memory_order_acquire) == 0) {
        kv_free_place(store, block);
        return;
    }
    cold->next = store->unfreed;
    store->unfreed = block;
}

/* Frees blocks whose readers have ended since. */
void kv_free_read_places(weir_kv_store *store)
{
    int32_t block = store->unfreed;
    store->unfreed = NO_BLOCK;
    while (block != NO_BLOCK) {
        const int32_t next = store->cold[block].next;
        free_block(store, block);
        block = next;
    }
}

/* Without the lock: no thread reads a page without holders. */
void kv_leave(weir_kv_store *store, void *page)
{
    if (store->lower == NULL) {
        store->n_resident--;
        kv_size_class_at(store, page)->n_resident--;
        return;
    }
    const int32_t number = kv_page_number(store, page), block = store->blocks[number];
    if (block == NO_BLOCK) {
        unback(store, page);
        return;
    }
    store->blocks[number] = NO_BLOCK;
    store->n_on_host -= is_on_host(store, block);
    if (--store->cold[block].n_held == 0) free_block(store, block);
}

/* All layers of a block, one run each. */
weir_status kv_write_block(
    weir_kv_store *store, int32_t block, void *const *pages, weir_error *error
)
{
    struct iovec pieces[KV_LAYER_HEADS];
    for (int64_t layer = 0; layer < store->spec.n_layers; layer++) {
        const weir_kv_geometry *const g = &store->spec.geometry[layer];
        for (int64_t h = 0; h < g->n_heads; h++)
            pieces[h] = (struct iovec){ pages[g->first_head + h],
                                        weir_kv_page_stride(&store->spec, layer) };
        WEIR_TRY(weir_lower_tier_write(store->lower, block, layer, pieces, (int)g->n_heads, error));
    }
    return WEIR_OK;
}

void kv_unback_block(weir_kv_store *store, void *const *pages)
{
    weir_kv_release_begin(store);
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++) unback(store, pages[h]);
    weir_kv_release_end(store);
}

void kv_block_left(weir_kv_store *store, int32_t block, void *const *pages)
{
    const int64_t heads = weir_kv_n_heads(&store->spec);
    (void)pthread_mutex_lock(&store->lock);
    for (int64_t h = 0; h < heads; h++) {
        const int32_t number = kv_page_number(store, pages[h]);
        WEIR_ASSERT(weir_kv_page_refs(store, pages[h]) > 0 && store->blocks[number] == NO_BLOCK);
        store->blocks[number] = block;
    }
    (void)pthread_mutex_unlock(&store->lock);
    kv_unback_block(store, pages);
    store->cold[block].n_held = (int32_t)heads;
    store->cold[block].is_unreadable = false;
    store->n_on_host += is_on_host(store, block) ? heads : 0;
    store->moved.bytes_out += (int64_t)store->sizes.block_stride;
}

/* Returns the offset of the head's page in its layer's part of a block. */
static size_t offset_in_part(const weir_kv_store *store, int64_t head)
{
    const int64_t layer = weir_kv_layer_of(&store->spec, head);
    return (size_t)(head - store->spec.geometry[layer].first_head) * stride_of(store, head);
}

static weir_status load(
    weir_kv_store *store, int32_t block, int64_t head, void *bytes, weir_error *error
)
{
    return weir_lower_tier_read(
        store->lower, block, weir_kv_layer_of(&store->spec, head), offset_in_part(store, head),
        bytes, stride_of(store, head), error
    );
}

weir_status kv_read_block(
    weir_kv_store *store, int32_t block, void *const *pages, weir_error *error
)
{
    for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++)
        WEIR_TRY(load(store, block, h, pages[h], error));
    return WEIR_OK;
}

void kv_block_came(weir_kv_store *store, int32_t block, void *const *pages)
{
    const int64_t heads = weir_kv_n_heads(&store->spec);
    WEIR_ASSERT(store->cold[block].n_held == heads);
    (void)pthread_mutex_lock(&store->lock);
    for (int64_t h = 0; h < heads; h++) store->blocks[kv_page_number(store, pages[h])] = NO_BLOCK;
    (void)pthread_mutex_unlock(&store->lock);
    store->cold[block].n_held = 0;
    store->n_on_host -= is_on_host(store, block) ? heads : 0;
    free_block(store, block);
    store->moved.bytes_back += (int64_t)store->sizes.block_stride;
}

/* ---- copying --------------------------------------------------------------------------------- */
/* A page in memory is copied under the lock, so that it stays there; the place of a cold one is
 * kept from being used again. */
void weir_kv_page_read_begin(
    weir_kv_store *store, weir_kv_page_read *read, void *bytes, const void *page, int64_t head
)
{
    const bool moves = store->lower != NULL && !kv_is_sink(store, page);
    *read = (weir_kv_page_read){ .bytes = bytes, .head = head, .block = NO_BLOCK };
    if (moves) (void)pthread_mutex_lock(&store->lock);
    if (moves) read->block = weir_kv_place_of(store, page);
    if (read->block == NO_BLOCK)
        weir_ledger_copy(store->ledger, bytes, page, kv_stride_of(store, page));
    else
        (void)atomic_fetch_add(&store->cold[read->block].n_readers, 1);
    if (moves) (void)pthread_mutex_unlock(&store->lock);
}

weir_status weir_kv_page_read_end(
    weir_kv_store *store, const weir_kv_page_read *read, weir_error *error
)
{
    if (read->block == NO_BLOCK) return weir_ledger_check(store->ledger, error);
    const weir_status status = weir_lower_tier_read_to_host(
        store->lower, read->block, weir_kv_layer_of(&store->spec, read->head),
        offset_in_part(store, read->head), read->bytes, stride_of(store, read->head), error
    );
    (void)atomic_fetch_sub_explicit(&store->cold[read->block].n_readers, 1, memory_order_release);
    return status == WEIR_OK ? weir_ledger_check(store->ledger, error) : status;
}

weir_status weir_kv_page_copy(
    weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error
)
{
    weir_kv_page_read read;
    weir_kv_page_read_begin(store, &read, bytes, page, head);
    return weir_kv_page_read_end(store, &read, error);
}

weir_status kv_page_load(
    weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error
)
{
    const int32_t block = weir_kv_place_of(store, page);
    if (block != NO_BLOCK)
        WEIR_TRY(load(store, block, head, bytes, error));
    else
        weir_ledger_copy(store->ledger, bytes, page, kv_stride_of(store, page));
    return weir_ledger_check(store->ledger, error);
}
