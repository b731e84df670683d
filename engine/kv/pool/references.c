/* engine/kv/pool/references.c - references to pages: those of tables and other holders, those of
 * table snapshots, and the watcher of changes. */
#include "engine/kv/pool/store_internal.h"

static int32_t users_of(const weir_kv_store *store, int32_t number)
{
    return store->refs[number] - store->kept[number];
}

void weir_kv_page_hold(weir_kv_store *store, const void *page)
{
    const int32_t number = kv_page_number(store, page);
    const int32_t users = users_of(store, number);
    if (users == 0)
        *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) -= 1;
    else if (users == 1)
        kv_page_changed(store, number);
    store->refs[number]++;
}

int32_t weir_kv_page_refs(const weir_kv_store *store, const void *page)
{
    return store->refs[kv_page_number(store, page)];
}

int32_t weir_kv_page_users(const weir_kv_store *store, const void *page)
{
    return users_of(store, kv_page_number(store, page));
}

weir_kv_pages weir_kv_store_kept(const weir_kv_store *store) { return store->only_kept; }

void weir_kv_page_drop(weir_kv_store *store, void *page)
{
    const int32_t number = kv_page_number(store, page);
    WEIR_ASSERT(store->refs[number] > 0);
    if (--store->refs[number] > 0) {
        const int32_t users = users_of(store, number);
        if (users == 1)
            kv_page_changed(store, number);
        else if (users == 0)
            *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) += 1;
        return;
    }
    kv_size_class *const size_class = kv_size_class_at(store, page);
    kv_leave(store, page);
    store->free[size_class->first + size_class->n_free++] = number;
    store->n_free++;
}

void kv_page_keep(weir_kv_store *store, void *page)
{
    weir_kv_page_hold(store, page);
    store->kept[kv_page_number(store, page)]++;
}

void kv_page_unkeep(weir_kv_store *store, void *page)
{
    const int32_t number = kv_page_number(store, page);
    if (users_of(store, number) == 0)
        *kv_count_of(store, &store->only_kept, kv_size_class_at(store, page)) -= 1;
    store->kept[number]--;
    weir_kv_page_drop(store, page);
}

/* ---- the watcher ----------------------------------------------------------------------------- */
void weir_kv_watch(weir_kv_store *store, int32_t *list)
{
    WEIR_ASSERT(list == NULL || store->changed == NULL);
    store->changed = list;
    store->first_changed = LAST_CHANGED;
}

void weir_kv_page_set_owner(weir_kv_store *store, const void *page, int32_t owner)
{
    store->owners[kv_page_number(store, page)] = owner;
}

int32_t weir_kv_page_owner(const weir_kv_store *store, const void *page)
{
    return store->owners[kv_page_number(store, page)];
}

int32_t weir_kv_next_changed(weir_kv_store *store)
{
    const int32_t owner = store->first_changed;
    if (owner == LAST_CHANGED) return 0;
    store->first_changed = store->changed[owner];
    store->changed[owner] = 0;
    return owner;
}
