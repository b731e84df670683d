#include "engine/schedule/tiers.h"

#include <inttypes.h>

#include "engine/base/log.h"
#include "engine/schedule/runner.h"
#include "kernels/abi/minmax.h"

enum {
    BATCH = 64 /* cached blocks that one search returns */,
    BACK_BYTES = 8 << 20 /* promoted after a step */
};

/* The sequences whose blocks are considered: those that run, then those of the works. Some occur
 * twice, which does no harm. */
typedef struct sequences {
    const weir_kv_holders *holders;
    const weir_batch_item *items;
    int32_t n_items, n_running;
} sequences;

static weir_kv_sequence *sequence_at(const sequences *all, int32_t i)
{
    if (i < all->n_running) return all->holders->running(all->holders->user, i);
    return i - all->n_running < all->n_items ? all->items[i - all->n_running].sequence : NULL;
}

static sequences sequences_of(
    const weir_kv_holders *holders, const weir_batch_item *items, int32_t n_items
)
{
    sequences all = { .holders = holders, .items = items, .n_items = n_items };
    while (holders->running != NULL && holders->running(holders->user, all.n_running) != NULL)
        all.n_running++;
    return all;
}

/* Blocks from the first past the sinks (but not 0) up to this one may be demoted: whole blocks that
 * no step writes to. */
static int64_t demotable_end(const weir_kv_table *table, int32_t hot)
{
    const int64_t whole = table->n_rows / WEIR_PAGE_TOKENS, cool = table->n_pages - hot;
    return whole < cool ? whole : cool;
}

/* Sequences share a block at the same index. */
static bool is_hot(const sequences *all, const void *page, int64_t block, int32_t hot)
{
    const weir_kv_sequence *s;
    for (int32_t i = 0; (s = sequence_at(all, i)) != NULL; i++)
        if (block < s->table.n_pages && s->table.pages[block] == page &&
            block >= demotable_end(&s->table, hot))
            return true;
    return false;
}

/* The oldest block of a sequence that is in memory and may be demoted; 0: none. */
static int64_t oldest_block(
    const weir_kv_store *store, const sequences *all, weir_kv_sequence *s, int32_t hot
)
{
    const int64_t end = demotable_end(&s->table, hot);
    if (s->table.is_pruned || end <= 0) return 0;
    for (int64_t block = weir_kv_table_first_near(&s->table, store); block < end; block++)
        if (weir_kv_may_leave(store, (void *const *)s->table.pages + block, s->table.capacity) &&
            !weir_kv_is_attended(store, s->table.pages[block], block) &&
            !is_hot(all, s->table.pages[block], block, hot))
            return block;
    return 0;
}

static void count(
    const weir_kv_store *store, const weir_kv_holders *holders, weir_reclaim_step step
)
{
    if (holders->counts == NULL) return;
    holders->counts[step].n++;
    holders->counts[step].pages += weir_kv_pages_for(weir_kv_store_spec(store), 1);
}

/* The longest sequence after number `last` in the order of length, and then of numbers, that may
 * have a block to demote; -1: there is none. last -1: of all. */
static int32_t next_longest(
    const weir_kv_store *store, const sequences *all, int32_t hot, int32_t last
)
{
    const int64_t most = last >= 0 ? sequence_at(all, last)->table.n_pages : INT64_MAX;
    weir_kv_sequence *s;
    int64_t n_pages = 0;
    int32_t longest = -1;
    for (int32_t i = 0; (s = sequence_at(all, i)) != NULL; i++) {
        weir_kv_table *const table = &s->table;
        const bool is_next = table->n_pages < most || (table->n_pages == most && i > last);
        if (!is_next || table->n_pages <= n_pages || table->is_pruned ||
            weir_kv_table_first_near(table, store) >= demotable_end(table, hot))
            continue;
        longest = i;
        n_pages = table->n_pages;
    }
    return longest;
}

/* Begins to demote a block of the longest sequence that has one; ENOTFOUND: none has. */
static weir_status begin_running(
    weir_kv_store *store, const sequences *all, int32_t hot, weir_error *error
)
{
    int64_t block = 0;
    int32_t longest = -1;
    do {
        longest = next_longest(store, all, hot, longest);
        if (longest < 0) return WEIR_ENOTFOUND;
        block = oldest_block(store, all, sequence_at(all, longest), hot);
    } while (block == 0);
    const weir_kv_table *const table = &sequence_at(all, longest)->table;
    weir_prefix_leave_disk(all->holders->prefix, 1);
    WEIR_TRY(weir_kv_demote_begin(
        store, (void *const *)table->pages + block, table->capacity, block, error
    ));
    count(store, all->holders, WEIR_RECLAIM_DEMOTE_RUNNING);
    return WEIR_OK;
}

/* Blocks that are free when those that leave have left. */
static int64_t free_soon(const weir_kv_store *store)
{
    return weir_kv_free_blocks(store) + weir_kv_blocks_leaving(store);
}

weir_status weir_tiers_demote_running(
    weir_kv_store *store, const weir_kv_holders *holders, const weir_batch_item *items,
    int32_t n_items, int32_t hot, int64_t n_blocks, weir_error *error
)
{
    const sequences all = sequences_of(holders, items, n_items);
    while (free_soon(store) < n_blocks && weir_kv_moves_left(store) > 0)
        WEIR_TRY(begin_running(store, &all, hot, error));
    return WEIR_OK;
}

weir_status weir_tiers_demote_cached(
    weir_kv_store *store, const weir_kv_holders *holders, int64_t n_blocks, weir_error *error
)
{
    void *const *blocks[BATCH];
    const int64_t missing = n_blocks - free_soon(store),
                  most = weir_min(weir_min(missing, weir_kv_moves_left(store)), BATCH);
    if (holders->prefix == NULL || most <= 0) return WEIR_OK;
    const int32_t found = weir_prefix_lru_blocks(holders->prefix, blocks, (int32_t)most);
    for (int32_t i = 0; i < found; i++) {
        weir_prefix_leave_disk(holders->prefix, 1);
        WEIR_TRY(weir_kv_demote_begin(
            store, blocks[i], 1, weir_prefix_block_index(holders->prefix, blocks[i]), error
        ));
        count(store, holders, WEIR_RECLAIM_DEMOTE_CACHED);
    }
    return WEIR_OK;
}

/* The engine thread writes nothing itself, so blocks leave before their memory is needed. */
static void demote_ahead(
    weir_kv_store *store, const weir_kv_holders *holders, const weir_batch_item *items,
    int32_t n_items, int32_t hot, int64_t n_blocks
)
{
    if (weir_kv_lower_tier_fails(store) ||
        weir_tiers_demote_cached(store, holders, n_blocks, NULL) != WEIR_OK)
        return;
    (void)weir_tiers_demote_running(store, holders, items, n_items, hot, n_blocks, NULL);
}

/* After 1, 2, 4, ... failures. */
static void log_failure(const weir_kv_store *store, const char *why)
{
    const int64_t n = weir_kv_residency_of(store).write_errors;
    if ((n & (n - 1)) == 0)
        weir_log(
            WEIR_LOG_WARNING, "KV pages stay in memory (%" PRId64 " times so far): %s", n, why
        );
}

bool weir_tiers_settle(weir_kv_store *store, bool wait)
{
    weir_error why;
    weir_status status;
    const int64_t n = weir_kv_moves_end(store, wait, &status, &why);
    if (status != WEIR_OK) log_failure(store, why.text);
    return n > 0;
}

/* A search for blocks of a table on disk that should be read back, the newest first. */
typedef struct search {
    weir_kv_table *table;
    int64_t end, left; /* left: blocks on disk before the end */
} search;

static search begin_search(const weir_kv_store *store, weir_kv_table *table)
{
    return (search
    ){ .table = table, .end = table->n_pages, .left = weir_kv_table_cold_blocks(table, store) };
}

/* -1: there are no more. */
static int64_t next_cold(const weir_kv_store *store, search *of)
{
    for (; of->left > 0; of->left--) {
        of->end = weir_kv_table_cold_before(of->table, store, of->end);
        WEIR_ASSERT(of->end >= 0);
        const void *const page = of->table->pages[of->end];
        if (weir_kv_is_unreadable(store, page) || weir_kv_is_moving(store, page)) continue;
        of->left--;
        return of->end;
    }
    return -1;
}

/* Counts blocks of the works' sequences on disk that should be read back, up to `most`. */
static int64_t cold_blocks(
    const weir_kv_store *store, const weir_batch_item *items, int32_t n_items, int64_t most
)
{
    int64_t n = 0;
    for (int32_t i = 0; i < n_items; i++) {
        search of = begin_search(store, &items[i].sequence->table);
        while (n < most && next_cold(store, &of) >= 0) n++;
    }
    return n;
}

void weir_tiers_move(
    weir_kv_store *store, const weir_kv_holders *holders, const weir_batch_item *items,
    int32_t n_items, int32_t hot, int64_t n_short
)
{
    const int64_t most = BACK_BYTES / (int64_t)weir_kv_block_stride(weir_kv_store_spec(store)) + 1;
    int64_t rows = 0;
    for (int32_t i = 0; i < n_items; i++) rows += items[i].n_rows;
    (void)weir_tiers_settle(store, false);
    demote_ahead(store, holders, items, n_items, hot, 2 * rows / WEIR_PAGE_TOKENS + 1 + n_short);
    if (weir_kv_residency_of(store).pages_cold == 0) return;
    /* Promoted blocks must not be demoted again by the next steps. */
    const int64_t reserve = weir_tiers_least_blocks(n_items, 2 * rows, hot) + n_short;
    int64_t n = cold_blocks(store, items, n_items, most);
    if (n > 0 && weir_tiers_demote_cached(store, holders, reserve + n, NULL) != WEIR_OK) return;
    for (int32_t i = 0; i < n_items; i++) {
        weir_kv_table *const table = &items[i].sequence->table;
        search of = begin_search(store, table);
        for (int64_t block;
             n > 0 && weir_kv_free_blocks(store) > reserve && (block = next_cold(store, &of)) >= 0;
             n--)
            if (weir_kv_promote_begin(
                    store, (void *const *)table->pages + block, table->capacity, block, NULL
                ) != WEIR_OK)
                return;
    }
}

/* ---- while the lower tier fails -------------------------------------------------------------- */
weir_kv_pages weir_tiers_free_pages(const weir_kv_store *store, weir_prefix *prefix)
{
    const bool fails = weir_kv_lower_tier_fails(store);
    weir_kv_pages n = fails ? weir_kv_store_free_near(store) : weir_kv_store_free(store);
    if (prefix == NULL) return n;
    n = weir_kv_pages_plus(n, weir_prefix_reclaimable(prefix));
    if (!fails) return n;
    const int64_t first = weir_kv_store_spec(store)->sinks.n_pages,
                  n_cold = weir_prefix_idle_cold(prefix);
    return weir_kv_pages_minus(n, weir_kv_store_pages_of(store, first, first + n_cold));
}

bool weir_tiers_may_try(const weir_kv_store *store, const weir_kv_holders *holders)
{
    const weir_kv_sequence *s;
    if (!weir_kv_lower_tier_fails(store)) return false;
    for (int32_t i = 0; (s = holders->running(holders->user, i)) != NULL; i++)
        if (s->table.n_pages > 0) return false;
    return true;
}
