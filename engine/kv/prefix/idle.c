/* engine/kv/prefix/idle.c - which nodes only the tree holds, and how many pages they have: derived
 * for a node when something about it changed. */
#include "engine/kv/prefix/prefix_internal.h"

static int32_t *counts_of(const weir_prefix *p, int32_t index)
{
    return p->idle_pages + (int64_t)index * p->classes;
}

/* Adds or removes (by -1) its idle pages, which are counted as long as it is droppable. */
static void count_pages(weir_prefix *p, int32_t index, int by)
{
    const int32_t *const counts = counts_of(p, index);
    if (p->nodes[index].n_tokens == 0) return;
    if (is_sink(p, index)) {
        p->droppable_pages.sinks += by * counts[0];
        return;
    }
    for (int32_t i = 0; i < p->classes; i++) p->droppable_pages.others[i] += by * counts[i];
}

/* Pages that only the tree holds. */
static weir_kv_pages idle_pages(const weir_prefix *p, int32_t index)
{
    weir_kv_pages n = { 0 };
    if (p->heads == 0) return n;
    if (!weir_kv_store_has_pruned(p->store)) {
        if (weir_kv_page_users(p->store, pages_of(p, index)[0]) != 1) return n;
        return is_sink(p, index) ? p->sink_block : p->block;
    }
    for (int64_t h = 0; h < p->heads; h++)
        if (weir_kv_page_users(p->store, pages_of(p, index)[h]) == 1)
            weir_kv_pages_add(p->store, &n, pages_of(p, index)[h]);
    return n;
}

/* Derives whether it is idle, with its pages. */
static void look_at_pages(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    const weir_kv_pages now = idle_pages(p, index);
    int32_t *const counts = counts_of(p, index);
    bool is_idle = p->heads == 0;
    if (n->is_droppable) count_pages(p, index, -1);
    for (int32_t i = 0; i < p->classes; i++) {
        counts[i] = (int32_t)(is_sink(p, index) ? (i == 0 ? now.sinks : 0) : now.others[i]);
        is_idle = is_idle || counts[i] > 0;
    }
    if (n->is_droppable) count_pages(p, index, 1);
    const bool is_cold_now = is_cold(p, index);
    p->n_idle_cold += (is_idle && is_cold_now) - (n->is_idle && n->is_cold);
    n->is_idle = is_idle;
    n->is_cold = is_cold_now;
}

/* Derives whether it is droppable, and what follows for the nodes above. */
static void look_at_children(weir_prefix *p, int32_t index)
{
    for (int32_t i = index; i != NONE; i = p->nodes[i].parent) {
        node *const n = &p->nodes[i];
        const bool is_droppable = (n->n_tokens == 0 || n->is_idle) && n->n_busy == 0;
        ++*p->visits;
        if (is_droppable == n->is_droppable) return;
        n->is_droppable = is_droppable;
        count_pages(p, i, is_droppable ? 1 : -1);
        if (n->parent != NONE) p->nodes[n->parent].n_busy += is_droppable ? -1 : 1;
    }
}

static order leaf_order_of(const weir_prefix *p, const node *n, int32_t index)
{
    if (!n->is_idle || n->children != 0) return ORDER_NONE;
    if (is_sink(p, index)) return ORDER_SINKS;
    return n->is_cold ? ORDER_COLD : ORDER_MEMORY;
}

void prefix_refresh(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    if (n->parent == NONE) return; /* the forest, or it was dropped since its pages changed */
    if (n->n_tokens > 0) {
        look_at_pages(p, index);
        prefix_order_leaf(p, index, leaf_order_of(p, n, index));
        prefix_order_block(
            p, index,
            n->is_idle && p->heads > 0 &&
                weir_kv_may_leave(p->store, (void *const *)pages_of(p, index), 1)
        );
    }
    look_at_children(p, index);
}

void prefix_settle(weir_prefix *p)
{
    for (int32_t index; (index = weir_kv_next_changed(p->store)) != 0;) prefix_refresh(p, index);
}

void prefix_count_new(weir_prefix *p, int32_t index)
{
    const int32_t parent = p->nodes[index].parent;
    memset(counts_of(p, index), 0, (size_t)p->classes * sizeof(int32_t));
    p->nodes[parent].n_busy++;
    look_at_children(p, parent);
    prefix_refresh(p, parent); /* it is no leaf any more */
}

void prefix_count_gone(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    if (n->is_droppable)
        count_pages(p, index, -1);
    else
        p->nodes[n->parent].n_busy--;
    p->n_idle_cold -= n->is_idle && n->is_cold;
    prefix_order_leaf(p, index, ORDER_NONE);
    prefix_order_block(p, index, false);
}
