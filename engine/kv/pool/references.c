/* engine/kv/pool/references.c - references to pages: those of tables and other holders, those of
 * table snapshots, and the watcher of changes. The pages of a joint block have their references,
 * and their owner, at the first one; those of a split block each their own (store.h 12). */
#include "engine/kv/pool/store_internal.h"

static int32_t users_of(const weir_kv_store *store, int32_t number)
{
    return store->refs[number] - store->kept[number];
}

/* ---- single pages ---------------------------------------------------------------------------- */
void kv_page_hold(weir_kv_store *store, const void *page)
{
    const int32_t number = kv_page_number(store, page);
    const int32_t users = users_of(store, number);
    WEIR_ASSERT(store->owners[number] >= 0);
    store->n_counted++;
    if (users == 0)
        *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) -= 1;
    else if (users == 1)
        kv_page_changed(store, number);
    store->refs[number]++;
}

int64_t weir_kv_counted(const weir_kv_store *store) { return store->n_counted; }

int32_t weir_kv_page_refs(const weir_kv_store *store, const void *page)
{
    return store->refs[kv_counted_at(store, kv_page_number(store, page))];
}

int32_t weir_kv_page_users(const weir_kv_store *store, const void *page)
{
    return users_of(store, kv_counted_at(store, kv_page_number(store, page)));
}

weir_kv_pages weir_kv_store_kept(const weir_kv_store *store) { return store->only_kept; }

static void free_page(weir_kv_store *store, void *page, int32_t number)
{
    kv_size_class *const size_class = kv_size_class_at(store, page);
    kv_leave(store, page);
    store->free[size_class->first + size_class->n_free++] = number;
    store->n_free++;
}

void kv_page_drop(weir_kv_store *store, void *page)
{
    const int32_t number = kv_page_number(store, page);
    WEIR_ASSERT(store->refs[number] > 0 && store->owners[number] >= 0);
    store->n_counted++;
    if (--store->refs[number] > 0) {
        const int32_t users = users_of(store, number);
        if (users == 1)
            kv_page_changed(store, number);
        else if (users == 0)
            *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) += 1;
        return;
    }
    free_page(store, page, number);
}

void kv_page_keep(weir_kv_store *store, void *page)
{
    kv_page_hold(store, page);
    store->kept[kv_page_number(store, page)]++;
}

void kv_page_unkeep(weir_kv_store *store, void *page)
{
    const int32_t number = kv_page_number(store, page);
    if (users_of(store, number) == 0)
        *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) -= 1;
    store->kept[number]--;
    kv_page_drop(store, page);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
bool kv_is_joint(const weir_kv_store *store, void *const *pages, int64_t stride)
{
    return weir_kv_n_heads(&store->spec) > 1 && pages[stride] != NULL &&
           store->owners[kv_page_number(store, pages[stride])] < 0;
}

void kv_join_block(weir_kv_store *store, void *const *pages, int64_t stride)
{
    const int32_t first = kv_page_number(store, pages[0]);
    for (int64_t h = 1; h < weir_kv_n_heads(&store->spec); h++) {
        const int32_t number = kv_page_number(store, pages[h * stride]);
        store->refs[number] = 0;
        store->owners[number] = -1 - first;
    }
}

void kv_split_block(weir_kv_store *store, void *const *pages, int64_t stride)
{
    if (!kv_is_joint(store, pages, stride)) return;
    const int32_t first = kv_page_number(store, pages[0]);
    for (int64_t h = 1; h < weir_kv_n_heads(&store->spec); h++) {
        const int32_t number = kv_page_number(store, pages[h * stride]);
        store->refs[number] = store->refs[first];
        store->kept[number] = store->kept[first];
        store->owners[number] = store->owners[first];
    }
}

/* Adds (by 1) or removes (by -1) a joint block that only table snapshots, or moves, hold. */
static void count_kept(weir_kv_store *store, const void *first, int64_t by)
{
    const kv_size_class *const of = kv_size_class_at(store, first);
    if (of == store->sinks) {
        store->only_kept.sinks += by * of->per_block;
        return;
    }
    for (int32_t i = 0; i < store->n_classes; i++)
        if (&store->size_classes[i] != store->sinks)
            store->only_kept.others[i] += by * store->size_classes[i].per_block;
}

void weir_kv_block_hold(weir_kv_store *store, void *const *pages, int64_t stride)
{
    if (!kv_is_joint(store, pages, stride)) {
        for (int64_t h = 0; h < weir_kv_n_heads(&store->spec); h++)
            kv_page_hold(store, pages[h * stride]);
        return;
    }
    const int32_t number = kv_page_number(store, pages[0]), users = users_of(store, number);
    store->n_counted++;
    if (users == 0)
        count_kept(store, pages[0], -1);
    else if (users == 1)
        kv_page_changed(store, number);
    store->refs[number]++;
}

/* The last head's page first: pages that are taken again are those freed last. */
static void free_block(weir_kv_store *store, void *const *pages, int64_t stride)
{
    weir_kv_release_begin(store);
    for (int64_t h = weir_kv_n_heads(&store->spec) - 1; h >= 0; h--) {
        const int32_t number = kv_page_number(store, pages[h * stride]);
        if (h > 0) store->owners[number] = 0;
        free_page(store, pages[h * stride], number);
    }
    weir_kv_release_end(store);
}

static void drop_joint(weir_kv_store *store, void *const *pages, int64_t stride)
{
    const int32_t number = kv_page_number(store, pages[0]);
    WEIR_ASSERT(store->refs[number] > 0);
    store->n_counted++;
    if (--store->refs[number] == 0) {
        free_block(store, pages, stride);
        return;
    }
    const int32_t users = users_of(store, number);
    if (users == 1)
        kv_page_changed(store, number);
    else if (users == 0)
        count_kept(store, pages[0], 1);
}

void weir_kv_block_drop(weir_kv_store *store, void *const *pages, int64_t stride)
{
    if (kv_is_joint(store, pages, stride)) {
        drop_joint(store, pages, stride);
        return;
    }
    weir_kv_release_begin(store);
    for (int64_t h = weir_kv_n_heads(&store->spec) - 1; h >= 0; h--)
        kv_page_drop(store, pages[h * stride]);
    weir_kv_release_end(store);
}

void kv_block_keep(weir_kv_store *store, void *const *pages, int64_t stride)
{
    const int64_t n = kv_is_joint(store, pages, stride) ? 1 : weir_kv_n_heads(&store->spec);
    weir_kv_block_hold(store, pages, stride);
    for (int64_t h = 0; h < n; h++) store->kept[kv_page_number(store, pages[h * stride])]++;
}

void kv_block_unkeep(weir_kv_store *store, void *const *pages, int64_t stride)
{
    if (!kv_is_joint(store, pages, stride)) {
        weir_kv_release_begin(store);
        for (int64_t h = weir_kv_n_heads(&store->spec) - 1; h >= 0; h--)
            kv_page_unkeep(store, pages[h * stride]);
        weir_kv_release_end(store);
        return;
    }
    const int32_t number = kv_page_number(store, pages[0]);
    if (users_of(store, number) == 0) count_kept(store, pages[0], -1);
    store->kept[number]--;
    drop_joint(store, pages, stride);
}

/* ---- the watcher ----------------------------------------------------------------------------- */
void weir_kv_watch(weir_kv_store *store, int32_t *list)
{
    WEIR_ASSERT(list == NULL || store->changed == NULL);
    store->changed = list;
    store->first_changed = LAST_CHANGED;
}

void weir_kv_block_set_owner(
    weir_kv_store *store, void *const *pages, int64_t stride, int32_t owner
)
{
    const int64_t n = kv_is_joint(store, pages, stride) ? 1 : weir_kv_n_heads(&store->spec);
    for (int64_t h = 0; h < n; h++) store->owners[kv_page_number(store, pages[h * stride])] = owner;
}

int32_t weir_kv_page_owner(const weir_kv_store *store, const void *page)
{
    return store->owners[kv_counted_at(store, kv_page_number(store, page))];
}

int32_t weir_kv_next_changed(weir_kv_store *store)
{
    const int32_t owner = store->first_changed;
    if (owner == LAST_CHANGED) return 0;
    store->first_changed = store->changed[owner];
    store->changed[owner] = 0;
    return owner;
}
