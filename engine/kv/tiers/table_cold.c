/* engine/kv/tiers/table_cold.c - what a table knows of its blocks in the lower tier, so that a step
 * does not look at each. A block that moves is in any number of tables, at the same index in all.
 * The store has the last moves; a table looks at those since it was used last, before it is asked
 * or its pages change, and at all its blocks only if it has missed too many. Engine thread. */
#include "engine/kv/pool/store_internal.h"

static bool look(const weir_kv_table *table, const weir_kv_store *store, int64_t block)
{
    ++*store->lookups;
    return weir_kv_is_cold(store, table->pages[block]);
}

/* The first block that may be demoted (schedule/tiers.h). */
static int64_t first_of(const weir_kv_store *store)
{
    return store->spec.sinks.n_pages > 1 ? store->spec.sinks.n_pages : 1;
}

static bool has_blocks(const weir_kv_table *table)
{
    return table->n_heads > 0 && table->n_pages > 0 && !table->is_pruned;
}

/* ---- keeping --------------------------------------------------------------------------------- */
static void count_cold(weir_kv_table *table, int64_t block)
{
    table->cold.n++;
    if (block >= table->cold.end) table->cold.end = block + 1;
    if (block == table->cold.first_near) table->cold.is_near = false;
}

static void count_near(weir_kv_table *table, int64_t block)
{
    if (block >= table->cold.first_near) return;
    table->cold.first_near = block;
    table->cold.is_near = true;
}

void kv_table_recount(weir_kv_table *table, const weir_kv_store *store)
{
    table->cold = (weir_kv_table_cold){ .first_near = first_of(store), .as_of = store->n_moved };
    for (int64_t block = 0; store->n_moved > 0 && has_blocks(table) && block < table->n_pages;
         block++)
        if (look(table, store, block)) count_cold(table, block);
}

void kv_table_catch_up(weir_kv_table *table, const weir_kv_store *store)
{
    weir_kv_table_cold *const cold = &table->cold;
    if (cold->as_of == store->n_moved) return;
    if (store->n_moved - cold->as_of > KV_MOVED || !has_blocks(table)) {
        kv_table_recount(table, store);
        return;
    }
    for (; cold->as_of < store->n_moved; cold->as_of++) {
        const kv_moved *const moved = &store->last_moved[cold->as_of % KV_MOVED];
        if (moved->block >= table->n_pages || table->pages[moved->block] != moved->page) continue;
        if (moved->is_cold) {
            count_cold(table, moved->block);
        } else {
            cold->n--;
            if (moved->block >= first_of(store)) count_near(table, moved->block);
        }
    }
}

void kv_table_loses(weir_kv_table *table, const weir_kv_store *store, int64_t block)
{
    kv_table_catch_up(table, store);
    if (has_blocks(table) && weir_kv_is_cold(store, table->pages[block])) table->cold.n--;
}

void kv_table_gets(weir_kv_table *table, const weir_kv_store *store, int64_t block)
{
    if (weir_kv_is_cold(store, table->pages[block]))
        count_cold(table, block);
    else if (block >= first_of(store))
        count_near(table, block);
}

void kv_table_keeps(weir_kv_table *table, int64_t n_blocks)
{
    if (table->cold.end > n_blocks) table->cold.end = n_blocks;
    if (table->cold.first_near <= n_blocks) return;
    table->cold.first_near = n_blocks;
    table->cold.is_near = true;
}

void kv_block_moved(weir_kv_store *store, const void *page, int64_t block, bool is_cold)
{
    store->last_moved[store->n_moved++ % KV_MOVED] =
        (kv_moved){ .page = page, .block = block, .is_cold = is_cold };
}

/* ---- asking ---------------------------------------------------------------------------------- */
int64_t weir_kv_table_cold_blocks(weir_kv_table *table, const weir_kv_store *store)
{
    kv_table_catch_up(table, store);
    return table->cold.n;
}

int64_t weir_kv_table_cold_before(weir_kv_table *table, const weir_kv_store *store, int64_t end)
{
    weir_kv_table_cold *const cold = &table->cold;
    kv_table_catch_up(table, store);
    const bool is_last = end >= cold->end;
    int64_t block = is_last ? cold->end : end;
    if (cold->n == 0) return -1;
    while (block > 0 && !look(table, store, block - 1)) block--;
    if (is_last) cold->end = block;
    return block - 1;
}

int64_t weir_kv_table_first_near(weir_kv_table *table, const weir_kv_store *store)
{
    weir_kv_table_cold *const cold = &table->cold;
    kv_table_catch_up(table, store);
    if (cold->first_near < first_of(store)) {
        cold->first_near = first_of(store);
        cold->is_near = false;
    }
    while (!cold->is_near && cold->n > 0 && cold->first_near < table->n_pages &&
           look(table, store, cold->first_near))
        cold->first_near++;
    cold->is_near = true;
    return cold->first_near;
}

int64_t weir_kv_lookups(const weir_kv_store *store) { return store->n_lookups; }

/* ---- checking -------------------------------------------------------------------------------- */
bool kv_table_cold_is_right(const weir_kv_table *table, const weir_kv_store *store)
{
    weir_kv_table now = *table;
    int64_t n = 0;
    bool is_right = true;
    kv_table_catch_up(&now, store);
    for (int64_t block = 0; has_blocks(&now) && block < now.n_pages; block++) {
        const bool is_cold = weir_kv_is_cold(store, now.pages[block]);
        n += is_cold;
        is_right = is_right && (is_cold ? block < now.cold.end &&
                                              (block != now.cold.first_near || !now.cold.is_near)
                                        : block < first_of(store) || block >= now.cold.first_near);
    }
    return is_right && n == now.cold.n;
}
