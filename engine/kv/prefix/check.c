/* engine/kv/prefix/check.c - checks the tree's invariants, for tests. */
#include <stdlib.h>

#include "engine/kv/prefix/pruned_cache_internal.h"
#include "engine/kv/prefix/tiers_internal.h"

static bool is_in_tree(const weir_prefix *p, int32_t index)
{
    return index != FOREST && p->nodes[index].parent != NONE;
}

static bool has_pages(const weir_prefix *p, int32_t index)
{
    return is_in_tree(p, index) && p->nodes[index].n_tokens > 0;
}

/* It is found among its siblings, and has its pages. */
static bool node_is_sound(const weir_prefix *p, int32_t index)
{
    const node *const n = &p->nodes[index], *const parent = &p->nodes[n->parent];
    const int32_t words = n->n_tokens > 0 ? n->n_tokens : RUN;
    int32_t same;
    if (n->depth != parent->depth + 1 || (n->parent == FOREST) != (n->n_tokens == 0)) return false;
    if (parent->n_tokens > 0 && parent->n_tokens < RUN) return false;
    if (n->n_tokens == 0 && n->children == 0) return false;
    if (prefix_nearest_child(p, n->parent, n->tokens, words, &same) != index) return false;
    if (n->has_lost_file && n->n_saved > 0) return false;
    if (n->is_deleted && n->n_tried < n->n_tokens) return false;
    if (n->n_saved < 0 || n->n_saved > n->n_tried || n->n_tried > n->n_tokens) return false;
    if (n->n_tokens > 0 && n->n_tokens < RUN && p->is_paged) return false;
    for (int64_t h = 0; n->n_tokens > 0 && h < p->heads; h++)
        if (weir_kv_page_refs(p->store, pages_of(p, index)[h]) < 1 ||
            weir_kv_page_owner(p->store, pages_of(p, index)[h]) != index)
            return false;
    return true;
}

/* The node's flags follow from its pages and children, and its place in the orders from them. */
static bool kind_is_sound(const weir_prefix *p, int32_t index, int32_t n_busy)
{
    const node *const n = &p->nodes[index];
    if (n->n_busy != n_busy) return false;
    if (n->n_tokens == 0)
        return n->is_droppable == (n_busy == 0) && n->leaf_order == ORDER_NONE && !n->is_demotable;
    const order leaf_order = !n->is_idle || n->children != 0 ? ORDER_NONE
                             : is_sink(p, index)             ? ORDER_SINKS
                             : n->is_cold                    ? ORDER_COLD
                                                             : ORDER_MEMORY;
    const bool is_demotable = n->is_idle && p->heads > 0 &&
                              weir_kv_may_leave(p->store, (void *const *)pages_of(p, index), 1);
    return n->is_idle == has_idle_page(p, index) && n->is_cold == is_cold(p, index) &&
           n->is_droppable == (n->is_idle && n_busy == 0) && n->leaf_order == leaf_order &&
           n->is_demotable == is_demotable;
}

/* Each parent is before its children in the heap, and each node knows its place. */
static bool order_is_sound(const weir_prefix *p, order which)
{
    const int32_t *const heap = p->orders + which * node_count(&p->limits);
    for (int32_t at = 0; at < p->order_size[which]; at++) {
        const node *const n = &p->nodes[heap[at]], *const up = &p->nodes[heap[(at - 1) / 2]];
        const bool is_block = which == ORDER_BLOCKS;
        if (at != (is_block ? n->block_place : n->leaf_place)) return false;
        if (is_block ? !n->is_demotable : n->leaf_order != which) return false;
        if (at > 0 && (is_block ? up->last_use > n->last_use
                                : prefix_goes_before(p, heap[at], heap[(at - 1) / 2])))
            return false;
    }
    return true;
}

/* The sums, from the pages: those of droppable nodes, cold idle runs, and nodes in the orders. */
static bool counts_are_sound(const weir_prefix *p)
{
    weir_kv_pages pages = { 0 };
    int64_t n_cold = 0, n_leaves = 0, n_blocks = 0, n_nodes = 0, n_tokens = 0;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&p->limits); i++) {
        const node *const n = &p->nodes[i];
        if (!has_pages(p, i)) continue;
        for (int64_t h = 0; n->is_droppable && h < p->heads; h++)
            if (weir_kv_page_users(p->store, pages_of(p, i)[h]) == 1)
                weir_kv_pages_add(p->store, &pages, pages_of(p, i)[h]);
        n_cold += n->is_idle && n->is_cold;
        n_leaves += n->leaf_order != ORDER_NONE;
        n_blocks += n->is_demotable;
        n_nodes++;
        n_tokens += n->n_tokens;
    }
    for (int which = 0; which < ORDERS; which++)
        if (!order_is_sound(p, (order)which)) return false;
    return weir_kv_pages_fit(pages, p->droppable_pages) &&
           weir_kv_pages_fit(p->droppable_pages, pages) && n_cold == p->n_idle_cold &&
           n_nodes == p->stats.n_nodes && n_tokens == p->stats.n_tokens &&
           n_leaves == p->order_size[ORDER_SINKS] + p->order_size[ORDER_MEMORY] +
                           p->order_size[ORDER_COLD] &&
           n_blocks == p->order_size[ORDER_BLOCKS];
}

/* All runs are listed, in the order of their last use. */
static bool runs_are_listed(const weir_prefix *p)
{
    int32_t older = NONE;
    int64_t n = 0;
    for (int32_t i = p->oldest; i != NONE; older = i, i = p->nodes[i].newer, n++)
        if (!has_pages(p, i) || p->nodes[i].older != older ||
            (older != NONE && p->nodes[older].last_use > p->nodes[i].last_use))
            return false;
    return p->newest == older && n == p->stats.n_nodes &&
           (p->search.at == NONE || has_pages(p, p->search.at));
}

static bool tree_is_sound(const weir_prefix *p)
{
    const int32_t n = (int32_t)node_count(&p->limits);
    int32_t *const n_busy = calloc((size_t)n, sizeof *n_busy);
    bool is_sound = n_busy != NULL;
    for (int32_t i = FOREST + 1; is_sound && i < n; i++)
        if (is_in_tree(p, i) && !p->nodes[i].is_droppable) n_busy[p->nodes[i].parent]++;
    for (int32_t i = FOREST + 1; is_sound && i < n; i++)
        is_sound = !is_in_tree(p, i) || (node_is_sound(p, i) && kind_is_sound(p, i, n_busy[i]));
    free(n_busy);
    return is_sound && runs_are_listed(p) && counts_are_sound(p);
}

static bool moves(const weir_prefix *p, int32_t index)
{
    for (const prefix_move *one = p->moves.all; one < p->moves.all + p->moves.most; one++)
        if (one->is_begun && one->item == index) return true;
    return false;
}

/* Each attached entry is in the lists of its node, of its parent and of the state before it, and in
 * its order. */
static bool entry_is_sound(const weir_prefix *p, int32_t index)
{
    const snapshot_entry *const s = &p->entries[index];
    if (s->state != ENTRY_ATTACHED) return true;
    if (!has_pages(p, s->node) || s->offset < 1 || s->offset > p->nodes[s->node].n_tokens)
        return false;
    int32_t own = p->nodes[s->node].snapshot, below = p->nodes[p->nodes[s->node].parent].below;
    while (own != NONE && own != index) own = p->entries[own].next;
    while (below != NONE && below != index) below = p->entries[below].next_below;
    const int which = state_order_of(s);
    if (own != index || below != index || s->place >= p->n_ordered[which] ||
        p->state_orders[(int64_t)which * p->n_entries + s->place] != index ||
        (s->memory == NONE && s->block == NONE) ||
        (s->memory != NONE && s->block != NONE && !moves(p, index)) ||
        (s->memory != NONE && p->owners[s->memory] != index))
        return false;
    if (s->before == NONE) return true;
    int32_t after = p->entries[s->before].first_after;
    while (after != NONE && after != index) after = p->entries[after].next_after;
    return after == index && p->entries[s->before].state == ENTRY_ATTACHED &&
           tokens_of_state(p, s->before) < tokens_of_state(p, index);
}

/* No entry goes before the one above it. */
static bool states_are_in_order(const weir_prefix *p, int which)
{
    if (p->n_entries == 0) return p->n_ordered[which] == 0;
    const int32_t *const heap = p->state_orders + (int64_t)which * p->n_entries;
    for (int32_t at = 0; at < p->n_ordered[which]; at++) {
        const snapshot_entry *const own = &p->entries[heap[at]];
        if (own->state != ENTRY_ATTACHED || state_order_of(own) != which ||
            (at > 0 && prefix_state_goes_before(p, heap[at], heap[(at - 1) / 2])))
            return false;
    }
    return true;
}

static bool entries_are_sound(const weir_prefix *p)
{
    int64_t n_kept = 0, n_ordered = 0, n_used = p->n_free_memory + p->moves.n_reading;
    for (int32_t i = 0; i < p->n_entries; i++) {
        if (!entry_is_sound(p, i)) return false;
        n_kept += p->entries[i].state == ENTRY_ATTACHED;
        n_used += p->entries[i].memory != NONE;
    }
    for (int which = 0; which < STATE_ORDERS; which++) {
        if (!states_are_in_order(p, which)) return false;
        n_ordered += p->n_ordered[which];
    }
    return n_ordered == n_kept && n_kept == p->stats.n_snapshots && n_used == n_memory(p) &&
           prefix_free_states(p) >= 0 &&
           p->n_ordered[ORDER_COLD_STATES] == p->stats.n_cold_snapshots;
}

static bool names_are_sound(const weir_prefix *p)
{
    for (const name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' &&
            (!has_pages(p, n->node) || n->offset < 1 || n->offset > p->nodes[n->node].n_tokens))
            return false;
    return true;
}

bool weir_prefix_is_sound(weir_prefix *prefix, weir_error *error)
{
    prefix_settle(prefix);
    const char *const wrong = !pruned_is_sound(prefix)            ? "the list of pruned sequences"
                              : !names_are_sound(prefix)          ? "a name"
                              : !entries_are_sound(prefix)        ? "a state"
                              : !tree_is_sound(prefix)            ? "a node or a count"
                              : !prefix_windows_are_sound(prefix) ? "a window block"
                                                                  : NULL;
    if (wrong == NULL) return true;
    (void)weir_error_set(error, WEIR_EINVAL, "%s of the prefix tree is inconsistent", wrong);
    return false;
}
