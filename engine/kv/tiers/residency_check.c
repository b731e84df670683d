/* engine/kv/tiers/residency_check.c - checks the counts and states of blocks, for tests. */
#include <inttypes.h>

#include "engine/kv/pool/store_internal.h"
#include "engine/kv/tiers/residency_internal.h"

static int32_t refs_of(const weir_kv_store *store, int64_t number)
{
    return store->refs[kv_counted_at(store, (int32_t)number)];
}

static bool free_ones_are_free(const weir_kv_store *store)
{
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++)
        for (int32_t i = 0; i < size_class->n_free; i++)
            if (refs_of(store, store->free[size_class->first + i]) != 0) return false;
    return true;
}

/* The first page of each joint block has the counts of the others. */
static bool joint_ones_have_a_first(const weir_kv_store *store)
{
    for (int64_t i = 0; i < store->spec.pages.n; i++) {
        const int32_t first = kv_counted_at(store, (int32_t)i);
        if (first != i && (store->owners[first] < 0 || store->refs[first] < 1)) return false;
    }
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

/* Pages that only table snapshots hold are counted by class. */
static bool kept_ones_are_counted(const weir_kv_store *store)
{
    weir_kv_pages n = { 0 };
    for (const kv_size_class *size_class = store->size_classes;
         size_class < store->size_classes + store->n_classes; size_class++)
        for (int32_t i = size_class->first; i < size_class->first + size_class->n; i++)
            *kv_count_of(store, &n, size_class) +=
                refs_of(store, i) > 0 && refs_of(store, i) == store->kept[kv_counted_at(store, i)];
    return weir_kv_pages_fit(n, store->only_kept) && weir_kv_pages_fit(store->only_kept, n);
}

bool weir_kv_store_is_sound(const weir_kv_store *store, weir_error *error)
{
    const int64_t n = store->spec.pages.n;
    int64_t n_free = 0, n_cold = 0, n_held = 0, n_used = 0;
    for (int64_t i = 0; i < n; i++) {
        n_free += refs_of(store, i) == 0;
        const bool is_cold = store->lower != NULL && store->blocks[i] != NO_BLOCK;
        n_cold += is_cold;
        if (is_cold && refs_of(store, i) == 0)
            return weir_error_set(error, WEIR_EINVAL, "a free page is cold") == WEIR_OK;
    }
    for (int64_t b = 0; store->lower != NULL && b < kv_cold_blocks(&store->spec); b++) {
        n_held += store->cold[b].n_held;
        n_used += store->cold[b].n_held > 0;
    }
    for (int32_t b = store->lower != NULL ? store->unfreed : NO_BLOCK; b != NO_BLOCK;
         b = store->cold[b].next)
        n_used++;
    n_used += store->moves.n_leaving;
    const int64_t n_coming = store->moves.n_coming * weir_kv_n_heads(&store->spec);
    weir_status status = WEIR_OK;
    if (!joint_ones_have_a_first(store))
        status = weir_error_set(error, WEIR_EINVAL, "a page counts at one that has no count");
    else if (n_free != store->n_free || !free_ones_are_free(store))
        status = weir_error_set(
            error, WEIR_EINVAL, "%" PRId64 " pages are free, the count says %" PRId64, n_free,
            store->n_free
        );
    else if (store->n_resident != n - n_free - n_cold + n_coming || !size_classes_have_free(store))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "%" PRId64 " pages are in memory of %" PRId64 " allowed, the count says %" PRId64,
            n - n_free - n_cold, n - weir_kv_cold_pages(&store->spec), store->n_resident
        );
    else if (!kept_ones_are_counted(store))
        status = weir_error_set(error, WEIR_EINVAL, "pages of table snapshots are miscounted");
    else if (n_held != n_cold ||
             (store->lower != NULL &&
              n_used != kv_cold_blocks(&store->spec) - weir_lower_tier_free_blocks(store->lower)))
        status = weir_error_set(
            error, WEIR_EINVAL,
            "%" PRId64 " pages are cold, the tier below holds %" PRId64 " in %" PRId64 " blocks",
            n_cold, n_held, n_used
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
    if (!kv_table_cold_is_right(table, store))
        return weir_error_set(
                   error, WEIR_EINVAL, "a table of %" PRId64 " blocks miscounts those on disk",
                   table->n_pages
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
