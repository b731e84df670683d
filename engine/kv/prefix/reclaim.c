/* engine/kv/prefix/reclaim.c - reclaiming: drops what was used least recently. Which nodes that may
 * be, and how many pages they have, is kept as it changes (idle.c). */
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/prefix/pruned_cache_internal.h"
#include "engine/kv/prefix/tiers_internal.h"

/* ---- dropping -------------------------------------------------------------------------------- */
void prefix_drop_leaf(weir_prefix *p, int32_t index)
{
    node *const leaf = &p->nodes[index];
    const int32_t parent = leaf->parent;
    WEIR_ASSERT(leaf->children == 0);
    prefix_count_gone(p, index);
    while (leaf->snapshot != NONE) prefix_detach(p, leaf->snapshot);
    for (name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && n->node == index) *n = (name){ .text = "" };
    prefix_drop_pages(p, index);
    prefix_drop_window(p, index);
    prefix_remove_child(p, index);
    if (leaf->n_tokens > 0) prefix_unlist_run(p, index);
    p->stats.n_nodes -= leaf->n_tokens > 0;
    p->stats.n_tokens -= leaf->n_tokens;
    p->stats.dropped_tokens += leaf->n_tokens;
    p->stats.unsaved_tokens += leaf->n_tokens - leaf->n_saved;
    prefix_free(p, index);
    const bool is_empty_salt =
        parent != FOREST && p->nodes[parent].n_tokens == 0 && p->nodes[parent].children == 0;
    prefix_refresh(p, parent);
    if (is_empty_salt && parent != p->parent_in_use) prefix_drop_leaf(p, parent);
}

typedef enum leaf_choice {
    LEAF_ANY,
    LEAF_NO_SINK,
    LEAF_IN_MEMORY /* wanted, past the sinks */
} leaf_choice;

/* The leaf to drop first: those of recurrent models without a state, which nothing can continue,
 * then the least recently used. No two leaves were used last at the same time: what a use visits is
 * a path. */
static int32_t worst_leaf(const weir_prefix *p, leaf_choice which)
{
    const order orders[] = { ORDER_MEMORY, ORDER_COLD, ORDER_SINKS };
    const int n = which == LEAF_IN_MEMORY ? 1 : which == LEAF_NO_SINK ? 2 : 3;
    int32_t worst = NONE;
    for (int i = 0; i < n; i++) {
        const int32_t first = prefix_first(p, orders[i]);
        if (first != NONE && (worst == NONE || prefix_goes_before(p, first, worst))) worst = first;
    }
    ++*p->visits;
    return worst;
}

bool prefix_free_node(weir_prefix *prefix, int32_t parent)
{
    prefix_settle(prefix);
    const int32_t leaf = worst_leaf(prefix, LEAF_ANY);
    if (leaf == NONE || leaf == parent) return false;
    prefix->parent_in_use = parent;
    prefix_drop_leaf(prefix, leaf);
    prefix->parent_in_use = NONE;
    return true;
}

/* A sink is the beginning of a sequence: if other pages are short, dropping it does not help; if
 * sinks are short, everything after it is dropped first. Of a leaf and a pruned entry the one that
 * was used before the other is dropped. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted)
{
    bool fits;
    wanted.tables = 0; /* dropping frees pages only */
    prefix_settle(prefix);
    weir_kv_release_begin(prefix->store);
    for (pruned_entry *oldest = pruned_oldest(prefix);;) {
        const weir_kv_pages free = weir_kv_store_free(prefix->store);
        fits = weir_kv_pages_fit(wanted, free);
        if (fits) break;
        const int32_t leaf =
            worst_leaf(prefix, free.sinks >= wanted.sinks ? LEAF_NO_SINK : LEAF_ANY);
        if (leaf == NONE && oldest == NULL) break;
        if (leaf != NONE && (oldest == NULL || oldest->last_use >= prefix->nodes[leaf].last_use)) {
            prefix_drop_leaf(prefix, leaf);
        } else {
            pruned_drop(prefix, oldest);
            oldest = pruned_oldest(prefix);
        }
    }
    weir_kv_release_end(prefix->store);
    return fits;
}

/* The run that has the page, if no other extends it and only the tree and one table hold it; else
 * NONE. */
static int32_t last_run_of(const weir_prefix *p, const void *page)
{
    const int32_t owner = page != NULL ? weir_kv_page_owner(p->store, page) : 0;
    ++*p->visits;
    if (owner == 0 || p->nodes[owner].children != 0 || weir_kv_page_refs(p->store, page) != 2)
        return NONE;
    return owner;
}

bool weir_prefix_release_tail(weir_prefix *prefix, const weir_kv_sequence *sequence)
{
    const int64_t page = sequence->n_computed / RUN;
    if (prefix->heads == 0 || page >= sequence->table.n_pages || sequence->table.is_pruned)
        return false;
    const int32_t leaf = last_run_of(prefix, sequence->table.pages[page]);
    if (leaf != NONE) prefix_drop_leaf(prefix, leaf);
    return leaf != NONE;
}

bool weir_prefix_release_extensions(weir_prefix *prefix, const weir_kv_sequence *sequence)
{
    const weir_kv_table *const table = &sequence->table;
    const int64_t page = sequence->n_computed / RUN;
    if (prefix->heads == 0 || page >= table->n_pages || table->is_pruned) return false;
    const int32_t run = weir_kv_page_owner(prefix->store, table->pages[page]);
    prefix_settle(prefix);
    if (run == 0 || weir_kv_page_refs(prefix->store, table->pages[page]) != 2 ||
        prefix->nodes[run].children == 0 || prefix->nodes[run].n_busy > 0)
        return false;
    while (prefix->nodes[run].children != 0) {
        int32_t leaf = run;
        for (int32_t at; (at = prefix->nodes[leaf].children) != 0; leaf = at)
            while (at < 0) at = prefix->nodes[-at].stored.side[0];
        prefix_drop_leaf(prefix, leaf);
    }
    return true;
}

/* The pages of a sequence that runs of the tree have are of runs above each other. */
bool weir_prefix_release_shared(weir_prefix *prefix, const weir_kv_sequence *sequence)
{
    const weir_kv_table *const table = &sequence->table;
    bool any = false;
    for (int64_t page = table->n_pages - 1; prefix->heads > 0 && page >= 0; page--) {
        void *const own = table->pages[page];
        if (own == NULL || weir_kv_page_owner(prefix->store, own) == 0) continue;
        const int32_t leaf = last_run_of(prefix, own);
        if (leaf == NONE) break;
        prefix_drop_leaf(prefix, leaf);
        any = true;
    }
    return any;
}

/* ---- the lower tier -------------------------------------------------------------------------- */
int32_t weir_prefix_lru_blocks(weir_prefix *prefix, void *const **blocks, int32_t most)
{
    int32_t n = 0;
    prefix_settle(prefix);
    for (int32_t i; n < most && (i = prefix_first(prefix, ORDER_BLOCKS)) != NONE; n++) {
        blocks[n] = (void *const *)pages_of(prefix, i);
        prefix_order_block(prefix, i, false);
    }
    for (int32_t k = 0; k < n; k++) {
        const int64_t at = blocks[k] - (void *const *)prefix->pages;
        prefix_order_block(prefix, (int32_t)(at / prefix->heads), true);
    }
    return n;
}

int64_t weir_prefix_block_index(const weir_prefix *prefix, void *const *block)
{
    return prefix->nodes[(block - (void *const *)prefix->pages) / prefix->heads].depth;
}

/* Ends of sequences in memory are dropped first; if there are none, those on disk, which hold
 * others in memory. */
void weir_prefix_reclaim_memory(weir_prefix *prefix, int64_t n_blocks)
{
    prefix_settle(prefix);
    weir_kv_release_begin(prefix->store);
    while (weir_kv_free_blocks(prefix->store) < n_blocks) {
        int32_t leaf = worst_leaf(prefix, LEAF_IN_MEMORY);
        if (leaf == NONE && prefix_first(prefix, ORDER_BLOCKS) == NONE) break;
        if (leaf == NONE) leaf = worst_leaf(prefix, LEAF_NO_SINK);
        if (leaf == NONE) break;
        prefix_drop_leaf(prefix, leaf);
    }
    weir_kv_release_end(prefix->store);
}

/* ---- counting -------------------------------------------------------------------------------- */
weir_kv_pages weir_prefix_reclaimable(weir_prefix *prefix)
{
    prefix_settle(prefix);
    return weir_kv_pages_plus(prefix->droppable_pages, weir_kv_store_kept(prefix->store));
}

int64_t weir_prefix_idle_cold(weir_prefix *prefix)
{
    prefix_settle(prefix);
    return prefix->n_idle_cold;
}
