#include "engine/kv/tiers/page_counts.h"

#include <string.h>

#include "engine/kv/pool/store_internal.h"
#include "engine/kv/tiers/residency.h"

/* Heads of a block whose pages are looked at: the first one stands for a joint block. */
static int64_t heads_of(const weir_kv_table *table, const weir_kv_store *store, int64_t block)
{
    const bool is_joint = !table->is_pruned && table->n_heads > 0 &&
                          kv_is_joint(store, table->pages + block, table->capacity);
    return is_joint ? 1 : table->n_heads;
}

/* No page: past those of a head with fewer rows. */
static void count(weir_kv_page_counts *counts, const weir_kv_store *store, const void *page)
{
    if (page == NULL) return;
    const bool is_cold = weir_kv_is_cold(store, page);
    counts->pages++;
    counts->cold += is_cold;
    counts->shared += !is_cold && weir_kv_page_users(store, page) > 1;
}

int64_t weir_kv_count_pages(
    weir_kv_page_counts *counts, const weir_kv_table *table, const weir_kv_store *store,
    int64_t most
)
{
    weir_kv_page_counts all = { 0 }; /* of joint blocks */
    int64_t looks = 0;
    for (int64_t i = 0; i < table->n_pages; i++) looks += heads_of(table, store, i);
    if (looks > most) return looks;
    memset(counts, 0, (size_t)table->n_heads * sizeof *counts);
    for (int64_t i = 0; i < table->n_pages; i++) {
        const int64_t n = heads_of(table, store, i);
        for (int64_t h = 0; h < n; h++)
            count(
                n < table->n_heads ? &all : &counts[h], store, table->pages[h * table->capacity + i]
            );
    }
    for (int64_t h = 0; h < table->n_heads; h++) {
        counts[h].pages += all.pages;
        counts[h].cold += all.cold;
        counts[h].shared += all.shared;
    }
    return looks;
}
