/* engine/kv/tiers/residency.c - where blocks are, moving them, and checking. */
#include "engine/kv/tiers/residency.h"

#include <inttypes.h>
#include <sys/mman.h>

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
    return block != NO_BLOCK && store->lost[block];
}

void weir_kv_mark_unreadable(weir_kv_store *store, const void *page)
{
    store->lost[weir_kv_place_of(store, page)] = true;
}

bool weir_kv_may_leave(const weir_kv_store *store, void *const *pages, int64_t stride)
{
    if (store->lower == NULL || pages[0] == NULL || weir_kv_is_cold(store, pages[0]) ||
        kv_is_sink(store, pages[0]))
        return false;
    for (int64_t h = 0; store->pins != NULL && h < weir_kv_n_heads(&store->spec); h++)
        if (pages[h * stride] == NULL || store->pins[kv_page_number(store, pages[h * stride])] > 0)
            return false;
    return true;
}

int64_t weir_kv_free_blocks(const weir_kv_store *store)
{
    int64_t room = INT64_MAX;
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        if (size_class == store->sinks) continue;
        const int64_t blocks = (size_class->most - size_class->n_resident) / size_class->per_block;
        if (blocks < room) room = blocks;
    }
    return room;
}

weir_lower_tier *weir_kv_store_lower_tier(const weir_kv_store *store) { return store->lower; }

weir_kv_residency weir_kv_residency_of(const weir_kv_store *store)
{
    weir_kv_residency all = store->moved;
    all.pages_in_memory = store->n_resident;
    all.pages_cold = store->spec.n_pages - store->n_free - store->n_resident;
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
    return block < kv_blocks_in(&store->spec, store->spec.n_host_pages);
}

/* The bytes of a page that moves. */
static size_t room_of(const weir_kv_store *store, int64_t head)
{
    return weir_kv_page_stride(&store->spec, weir_kv_layer_of(&store->spec, head));
}

bool kv_enter(weir_kv_store *store, kv_size_class *size_class, void *page)
{
    WEIR_ASSERT(size_class->n_resident < size_class->most);
    store->n_resident++;
    if (size_class->free_slots != NULL) {
        void *const slot = size_class->free_slots[size_class->most - ++size_class->n_resident];
        weir_device_space_map(weir_ledger_device(store->ledger), page, slot, size_class->bytes);
        return true;
    }
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
    if (size_class->free_slots != NULL) {
        weir_device *const device = weir_ledger_device(store->ledger);
        size_class->free_slots[size_class->most - size_class->n_resident--] =
            weir_device_resolve(device, page);
        weir_device_space_map(device, page, NULL, size_class->bytes);
        return;
    }
    size_class->n_resident--;
    store->dirty[kv_page_number(store, page)] = false;
    WEIR_ASSERT(madvise(page, size_class->bytes, MADV_DONTNEED) == 0);
}

void kv_leave(weir_kv_store *store, void *page)
{
    if (store->lower == NULL) {
        store->n_resident--;
        kv_size_class_at(store, page)->n_resident--;
        return;
    }
    const int32_t number = kv_page_number(store, page);
    (void)pthread_mutex_lock(&store->lock);
    const int32_t block = store->blocks[number];
    if (block == NO_BLOCK) {
        unback(store, page);
    } else {
        store->blocks[number] = NO_BLOCK;
        store->n_on_host -= is_on_host(store, block);
        if (--store->alive[block] == 0) weir_lower_tier_free(store->lower, block);
    }
    (void)pthread_mutex_unlock(&store->lock);
}

/* Writes all layers of a block to its place in the file, one run each. */
static weir_status write_block(
    weir_kv_store *store, int32_t block, void *const *pages, int64_t stride, weir_error *error
)
{
    struct iovec pieces[KV_LAYER_HEADS];
    for (int64_t layer = 0; layer < store->spec.n_layers; layer++) {
        const weir_kv_geometry *const g = &store->spec.geometry[layer];
        for (int64_t h = 0; h < g->n_heads; h++)
            pieces[h] = (struct iovec){ pages[(g->first_head + h) * stride],
                                        weir_kv_page_stride(&store->spec, layer) };
        WEIR_TRY(weir_lower_tier_write(store->lower, block, layer, pieces, (int)g->n_heads, error));
    }
    return WEIR_OK;
}

/* The block stays in memory until all of it was written. */
weir_status weir_kv_demote(
    weir_kv_store *store, void *const *pages, int64_t stride, weir_error *error
)
{
    const int64_t heads = weir_kv_n_heads(&store->spec);
    int32_t block;
    if (store->lower == NULL)
        return weir_error_set(
            error, WEIR_EFULL, "there is no lower tier for KV pages (memory.disk)"
        );
    WEIR_ASSERT(weir_kv_may_leave(store, pages, stride));
    WEIR_TRY(weir_lower_tier_alloc(store->lower, &block, error));
    const weir_status status = write_block(store, block, pages, stride, error);
    if (status != WEIR_OK) {
        weir_lower_tier_free(store->lower, block);
        return status;
    }
    (void)pthread_mutex_lock(&store->lock);
    for (int64_t h = 0; h < heads; h++) {
        void *const page = pages[h * stride];
        const int32_t number = kv_page_number(store, page);
        WEIR_ASSERT(store->refs[number] > 0 && store->blocks[number] == NO_BLOCK);
        store->blocks[number] = block;
        unback(store, page);
    }
    store->alive[block] = (int32_t)heads;
    store->lost[block] = false;
    store->n_on_host += is_on_host(store, block) ? heads : 0;
    store->moved.bytes_out += (int64_t)weir_kv_block_stride(&store->spec);
    (void)pthread_mutex_unlock(&store->lock);
    return WEIR_OK;
}

/* Returns the offset of the head's page in its layer's part of a block. */
static size_t offset_in_part(const weir_kv_store *store, int64_t head)
{
    const int64_t layer = weir_kv_layer_of(&store->spec, head);
    return (size_t)(head - store->spec.geometry[layer].first_head) * room_of(store, head);
}

weir_status weir_kv_promote(
    weir_kv_store *store, void *const *pages, int64_t stride, weir_error *error
)
{
    const int64_t heads = weir_kv_n_heads(&store->spec);
    const int32_t block = weir_kv_place_of(store, pages[0]);
    weir_status status = WEIR_OK;
    WEIR_ASSERT(block != NO_BLOCK);
    if (weir_kv_free_blocks(store) < 1)
        return weir_error_set(
            error, WEIR_EFULL, "no memory to promote KV pages that are needed; raise %s",
            weir_kv_store_budget(store)
        );
    for (int64_t h = 0; h < heads; h++)
        (void)kv_enter(store, kv_size_class_at(store, pages[h * stride]), pages[h * stride]);
    for (int64_t h = 0; status == WEIR_OK && h < heads; h++)
        status = weir_lower_tier_read(
            store->lower, block, weir_kv_layer_of(&store->spec, h), offset_in_part(store, h),
            pages[h * stride], room_of(store, h), error
        );
    (void)pthread_mutex_lock(&store->lock);
    for (int64_t h = 0; h < heads; h++) {
        if (status == WEIR_OK)
            store->blocks[kv_page_number(store, pages[h * stride])] = NO_BLOCK;
        else
            unback(store, pages[h * stride]);
    }
    if (status == WEIR_OK) {
        WEIR_ASSERT(store->alive[block] == heads);
        store->alive[block] = 0;
        store->n_on_host -= is_on_host(store, block) ? heads : 0;
        weir_lower_tier_free(store->lower, block);
        store->moved.bytes_back += (int64_t)weir_kv_block_stride(&store->spec);
    } else {
        store->lost[block] = true;
    }
    (void)pthread_mutex_unlock(&store->lock);
    return status;
}

weir_status weir_kv_page_copy(
    weir_kv_store *store, void *bytes, const void *page, int64_t head, weir_error *error
)
{
    if (store->lower == NULL || kv_is_sink(store, page)) {
        weir_ledger_copy(store->ledger, bytes, page, kv_stride_of(store, page));
        return weir_ledger_check(store->ledger, error);
    }
    (void)pthread_mutex_lock(&store->lock);
    const int32_t block = weir_kv_place_of(store, page);
    weir_status status = WEIR_OK;
    if (block == NO_BLOCK)
        weir_ledger_copy(store->ledger, bytes, page, room_of(store, head));
    else
        status = weir_lower_tier_read(
            store->lower, block, weir_kv_layer_of(&store->spec, head), offset_in_part(store, head),
            bytes, room_of(store, head), error
        );
    (void)pthread_mutex_unlock(&store->lock);
    return status == WEIR_OK ? weir_ledger_check(store->ledger, error) : status;
}

/* ---- checking -------------------------------------------------------------------------------- */
static bool free_ones_are_free(const weir_kv_store *store)
{
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++)
        for (int32_t i = 0; i < size_class->n_free; i++)
            if (store->refs[store->free[size_class->first + i]] != 0) return false;
    return true;
}

/* Held pages in memory are counted by class, and none exceeds its part. */
static bool size_classes_have_free(const weir_kv_store *store)
{
    int64_t n = 0;
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++) {
        if (size_class->n_resident < 0 || size_class->n_resident > size_class->most) return false;
        n += size_class->n_resident;
    }
    return n == store->n_resident;
}

bool weir_kv_store_is_sound(const weir_kv_store *store, weir_error *error)
{
    const int64_t n = store->spec.n_pages;
    int64_t n_free = 0, n_cold = 0, n_alive = 0, n_used = 0;
    for (int64_t i = 0; i < n; i++) {
        n_free += store->refs[i] == 0;
        const bool is_cold = store->lower != NULL && store->blocks[i] != NO_BLOCK;
        n_cold += is_cold;
        if (is_cold && store->refs[i] == 0)
            return weir_error_set(error, WEIR_EINVAL, "a free page is cold") == WEIR_OK;
    }
    for (int64_t b = 0; store->lower != NULL && b < kv_cold_blocks(&store->spec); b++) {
        n_alive += store->alive[b];
        n_used += store->alive[b] > 0;
    }
    weir_status status = WEIR_OK;
    if (n_free != store->n_free || !free_ones_are_free(store))
        status = weir_error_set(
            error, WEIR_EINVAL, "%" PRId64 " pages are free, the count says %" PRId64, n_free,
            store->n_free
        );
    else if (store->n_resident != n - n_free - n_cold || !size_classes_have_free(store))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "%" PRId64 " pages are in memory of %" PRId64 " allowed, the count says %" PRId64,
            n - n_free - n_cold, n - weir_kv_cold_pages(&store->spec), store->n_resident
        );
    else if (n_alive != n_cold ||
             (store->lower != NULL &&
              n_used != kv_cold_blocks(&store->spec) - weir_lower_tier_free_blocks(store->lower)))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "%" PRId64 " pages are cold, the tier below holds %" PRId64 " in %" PRId64 " blocks",
            n_cold, n_alive, n_used
        );
    return status == WEIR_OK;
}

/* The head has pages for its rows, all of them in memory if the table is pruned. */
static bool head_is_sound(
    const weir_kv_store *store, const weir_kv_table *table, int64_t head, weir_error *error
)
{
    const int64_t rows = weir_kv_rows_at(table, head), n = kv_pages_per_head(rows);
    if (rows > table->n_rows || n > table->n_pages || (!table->is_pruned && rows != table->n_rows))
        return weir_error_set(
                   error, WEIR_EINVAL, "head %" PRId64 " has %" PRId64 " rows, the table %" PRId64,
                   head, rows, table->n_rows
               ) == WEIR_OK;
    for (int64_t block = 0; block < table->capacity; block++) {
        const void *const page = table->pages[head * table->capacity + block];
        if (page == NULL && block >= (table->is_pruned ? n : table->n_pages)) continue;
        const bool is_held =
            page != NULL && block < table->n_pages && weir_kv_page_refs(store, page) >= 1;
        const bool is_pinned = store->pins == NULL || !table->is_pruned ||
                               store->pins[kv_page_number(store, page)] > 0;
        if (!is_held || !is_pinned || (block >= n && weir_kv_page_refs(store, page) > 1) ||
            (table->is_pruned && weir_kv_is_cold(store, page)))
            return weir_error_set(
                       error, WEIR_EINVAL, "block %" PRId64 " of head %" PRId64 " is inconsistent",
                       block, head
                   ) == WEIR_OK;
    }
    return true;
}

bool weir_kv_table_is_sound(
    const weir_kv_store *store, const weir_kv_table *table, weir_error *error
)
{
    int64_t longest = table->n_heads > 0 ? 0 : table->n_rows;
    for (int64_t h = 0; h < table->n_heads; h++) {
        if (!head_is_sound(store, table, h, error)) return false;
        if (weir_kv_rows_at(table, h) > longest) longest = weir_kv_rows_at(table, h);
    }
    if (longest != table->n_rows)
        return weir_error_set(
                   error, WEIR_EINVAL, "the longest head has %" PRId64 " rows, the table %" PRId64,
                   longest, table->n_rows
               ) == WEIR_OK;
    for (int64_t block = 0; !table->is_pruned && table->n_heads > 0 && block < table->n_pages;
         block++) {
        const int32_t place = weir_kv_place_of(store, table->pages[block]);
        if (place != NO_BLOCK && block * WEIR_PAGE_TOKENS >= table->n_rows)
            return weir_error_set(
                       error, WEIR_EINVAL,
                       "block %" PRId64 " is on disk, but no row of it is written", block
                   ) == WEIR_OK;
        for (int64_t h = 0; h < table->n_heads; h++)
            if (weir_kv_place_of(store, table->pages[h * table->capacity + block]) != place)
                return weir_error_set(
                           error, WEIR_EINVAL, "block %" PRId64 " is inconsistent at head %" PRId64,
                           block, h
                       ) == WEIR_OK;
    }
    return true;
}
