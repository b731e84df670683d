/* engine/kv/prefix/reclaim.c - reclaiming: which nodes are used, which are dropped first, how many
 * pages that frees. */
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/prefix/pruned_cache_internal.h"
#include "engine/kv/tiers/residency.h"

/* ---- which nodes are used ----
 * References end without a word when a sequence lets its pages go, and begin only here: nodes are
 * marked when a sequence takes or gives their pages, and unmarked from the tips up when the count
 * is asked for. What is above a used tip cannot be dropped, used or not. */
static void add_tip(weir_prefix *p, int32_t index)
{
    p->nodes[index].tip = p->n_tips;
    p->tips[p->n_tips++] = index;
}

static void remove_tip(weir_prefix *p, int32_t index)
{
    const int32_t place = p->nodes[index].tip, last = p->tips[--p->n_tips];
    p->tips[place] = last;
    p->nodes[last].tip = place;
    p->nodes[index].tip = NONE;
}

void prefix_mark(weir_prefix *p, int32_t index)
{
    if (p->heads == 0 || p->nodes[index].is_used) return;
    const int32_t parent = p->nodes[index].parent;
    p->nodes[index].is_used = true;
    p->n_used++;
    p->n_used_sinks += is_sink(p, index);
    if (p->nodes[index].n_used == 0) add_tip(p, index);
    if (p->nodes[parent].n_used++ == 0 && p->nodes[parent].tip != NONE) remove_tip(p, parent);
}

static void unmark(weir_prefix *p, int32_t index)
{
    if (!p->nodes[index].is_used) return;
    const int32_t parent = p->nodes[index].parent;
    WEIR_ASSERT(p->nodes[index].n_used == 0);
    remove_tip(p, index);
    p->nodes[index].is_used = false;
    p->n_used--;
    p->n_used_sinks -= is_sink(p, index);
    if (--p->nodes[parent].n_used == 0 && p->nodes[parent].is_used) add_tip(p, parent);
}

/* ---- dropping -------------------------------------------------------------------------------- */
static void drop_leaf(weir_prefix *p, int32_t index)
{
    node *const leaf = &p->nodes[index];
    WEIR_ASSERT(leaf->child == NONE);
    unmark(p, index);
    while (leaf->snapshot != NONE) prefix_detach(p, leaf->snapshot);
    for (name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && n->node == index) *n = (name){ .text = "" };
    drop_pages(p, index);
    int32_t *at = &p->nodes[leaf->parent].child;
    while (*at != index) at = &p->nodes[*at].next;
    *at = leaf->next;
    if (leaf->n_tokens > 0) p->stats.n_nodes--;
    if (leaf->n_tokens > 0) p->n_sinks -= is_sink(p, index);
    p->stats.n_tokens -= leaf->n_tokens;
    p->stats.dropped_tokens += leaf->n_tokens;
    p->stats.unsaved_tokens += leaf->n_tokens - leaf->n_saved;
    const int32_t parent = leaf->parent;
    *leaf = (node){ .depth = -2,
                    .parent = NONE,
                    .child = NONE,
                    .snapshot = NONE,
                    .tip = NONE,
                    .next = p->free_node };
    p->free_node = index;
    const bool is_empty_salt =
        parent != FOREST && p->nodes[parent].n_tokens == 0 && p->nodes[parent].child == NONE;
    if (is_empty_salt && parent != p->parent_in_use) drop_leaf(p, parent);
}

typedef enum leaf_choice {
    LEAF_ANY,
    LEAF_NO_SINK,
    LEAF_IN_MEMORY /* wanted, past the sinks */
} leaf_choice;

/* The leaf to drop first: those of recurrent models without a state, which nothing can continue,
 * then the least recently used. */
static int32_t worst_leaf(const weir_prefix *p, leaf_choice which)
{
    int32_t worst = NONE;
    bool worst_is_dead = false;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&p->limits); i++) {
        const node *const n = &p->nodes[i];
        if (n->parent == NONE || n->n_tokens == 0 || n->child != NONE || !is_idle(p, i)) continue;
        if (which != LEAF_ANY && is_sink(p, i)) continue;
        if (which == LEAF_IN_MEMORY && is_cold(p, i)) continue;
        const bool is_dead = has_states(p) && n->snapshot == NONE;
        if (worst != NONE && (worst_is_dead > is_dead || (worst_is_dead == is_dead &&
                                                          p->nodes[worst].last_use <= n->last_use)))
            continue;
        worst = i;
        worst_is_dead = is_dead;
    }
    return worst;
}

bool prefix_free_node(weir_prefix *prefix, int32_t parent)
{
    const int32_t leaf = worst_leaf(prefix, LEAF_ANY);
    if (leaf == NONE || leaf == parent) return false;
    prefix->parent_in_use = parent;
    drop_leaf(prefix, leaf);
    prefix->parent_in_use = NONE;
    return true;
}

/* Drops the leaf (NONE: there is none), or the pruned entry that was used before it. */
static void drop_worst(weir_prefix *p, int32_t leaf)
{
    const pruned_entry *const oldest = pruned_oldest(p);
    if (leaf == NONE || (oldest != NULL && oldest->last_use < p->nodes[leaf].last_use))
        (void)weir_pruned_drop_oldest(p);
    else
        drop_leaf(p, leaf);
}

/* A sink is the beginning of a sequence: if other pages are short, dropping it does not help; if
 * sinks are short, everything after it is dropped first. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted)
{
    bool fits;
    weir_kv_release_begin(prefix->store);
    for (;;) {
        const weir_kv_pages free = weir_kv_store_free(prefix->store);
        fits = weir_kv_pages_fit(wanted, free);
        if (fits) break;
        const int32_t leaf =
            worst_leaf(prefix, free.sinks >= wanted.sinks ? LEAF_NO_SINK : LEAF_ANY);
        if (leaf == NONE && pruned_oldest(prefix) == NULL) break;
        drop_worst(prefix, leaf);
    }
    weir_kv_release_end(prefix->store);
    return fits;
}

bool weir_prefix_release_tail(weir_prefix *prefix, const weir_kv_sequence *sequence)
{
    const int64_t page = sequence->n_computed / RUN;
    if (prefix->heads == 0 || page >= sequence->table.n_pages || sequence->table.is_pruned)
        return false;
    void *const own = sequence->table.pages[page];
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const leaf = &prefix->nodes[i];
        if (leaf->parent == NONE || leaf->n_tokens == 0 || leaf->child != NONE ||
            pages_of(prefix, i)[0] != own)
            continue;
        if (weir_kv_page_refs(prefix->store, own) != 2) return false;
        drop_leaf(prefix, i);
        return true;
    }
    return false;
}

/* A run that ends a sequence and is held only by the tree and the given sequence. */
static bool is_end_of(const weir_prefix *prefix, int32_t i, const weir_kv_table *table)
{
    const node *const run = &prefix->nodes[i];
    if (run->parent == NONE || run->n_tokens == 0 || run->child != NONE ||
        run->depth >= table->n_pages)
        return false;
    void *const page = pages_of(prefix, i)[0];
    return page == table->pages[run->depth] && weir_kv_page_refs(prefix->store, page) == 2;
}

bool weir_prefix_release_shared(weir_prefix *prefix, const weir_kv_sequence *sequence)
{
    bool any = false;
    for (int32_t i = FOREST + 1; prefix->heads > 0 && i < (int32_t)node_count(&prefix->limits); i++)
        for (int32_t at = i, parent; is_end_of(prefix, at, &sequence->table); at = parent) {
            parent = prefix->nodes[at].parent;
            drop_leaf(prefix, at);
            any = true;
        }
    return any;
}

static const node *node_of(const weir_prefix *p, void *const *pages)
{
    return &p->nodes[(pages - (void *const *)p->pages) / p->heads];
}

/* One pass; keeps `blocks` sorted by insertion. */
int32_t weir_prefix_lru_blocks(const weir_prefix *prefix, void *const **blocks, int32_t most)
{
    int32_t n = 0;
    for (int32_t i = FOREST + 1; prefix->heads > 0 && i < (int32_t)node_count(&prefix->limits);
         i++) {
        const node *const run = &prefix->nodes[i];
        if (run->parent == NONE || run->n_tokens == 0 || !is_idle(prefix, i)) continue;
        if (!weir_kv_may_leave(prefix->store, (void *const *)pages_of(prefix, i), 1)) continue;
        int32_t at = n;
        while (at > 0 && run->last_use < node_of(prefix, blocks[at - 1])->last_use) at--;
        if (at == most) continue;
        if (n < most) n++;
        for (int32_t k = n - 1; k > at; k--) blocks[k] = blocks[k - 1];
        blocks[at] = (void *const *)pages_of(prefix, i);
    }
    return n;
}

/* Ends of sequences in memory are dropped first; if there are none, those on disk, which hold
 * others in memory. */
void weir_prefix_reclaim_memory(weir_prefix *prefix, int64_t n_blocks)
{
    weir_kv_release_begin(prefix->store);
    while (weir_kv_free_blocks(prefix->store) < n_blocks) {
        void *const *oldest = NULL;
        int32_t leaf = worst_leaf(prefix, LEAF_IN_MEMORY);
        if (leaf == NONE && weir_prefix_lru_blocks(prefix, &oldest, 1) == 0) break;
        if (leaf == NONE) leaf = worst_leaf(prefix, LEAF_NO_SINK);
        if (leaf == NONE) break;
        drop_leaf(prefix, leaf);
    }
    weir_kv_release_end(prefix->store);
}

/* ---- counting -------------------------------------------------------------------------------- */
int64_t weir_prefix_idle_cold(const weir_prefix *prefix)
{
    int64_t n = 0;
    for (int32_t i = FOREST + 1; prefix->heads > 0 && i < (int32_t)node_count(&prefix->limits);
         i++) {
        const node *const run = &prefix->nodes[i];
        n += run->parent != NONE && run->n_tokens > 0 && is_cold(prefix, i) && is_idle(prefix, i);
    }
    return n;
}

/* Adds the nodes at and below this one that could be dropped. Returns false if this one could
 * not. */
static bool walk_idle(const weir_prefix *p, int32_t index, weir_kv_pages *n)
{
    bool is_free = p->nodes[index].n_tokens == 0 || is_idle(p, index);
    for (int32_t child = p->nodes[index].child; child != NONE; child = p->nodes[child].next)
        is_free = walk_idle(p, child, n) && is_free;
    if (is_free && p->nodes[index].n_tokens > 0) add_idle_pages(p, index, n);
    return is_free;
}

weir_kv_pages weir_prefix_idle_pages(const weir_prefix *prefix)
{
    weir_kv_pages n = { 0 };
    (void)walk_idle(prefix, FOREST, &n);
    pruned_count(prefix, &n);
    return n;
}

/* The nodes above an idle tip were checked before. */
weir_kv_pages weir_prefix_reclaimable(weir_prefix *prefix)
{
    for (int32_t place = prefix->n_tips - 1; place >= 0; place--) {
        for (int32_t i = prefix->tips[place]; prefix->nodes[i].tip != NONE && is_idle(prefix, i);) {
            unmark(prefix, i);
            i = prefix->nodes[i].parent;
        }
    }
    if (weir_kv_store_has_pruned(prefix->store)) return weir_prefix_idle_pages(prefix);
    const int64_t idle = prefix->stats.n_nodes - prefix->n_used,
                  sinks = prefix->n_sinks - prefix->n_used_sinks;
    const int64_t first = weir_kv_store_spec(prefix->store)->sinks.n_pages;
    weir_kv_pages n = weir_kv_store_pages_of(prefix->store, first, first + idle - sinks);
    n.sinks = sinks * prefix->heads;
    pruned_count(prefix, &n);
    return n;
}
