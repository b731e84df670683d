/* engine/kv/prefix/order.c - which node is next: heaps of evictable leaves and of demotable blocks,
 * with the place of each node in them, and the list of all runs in the order of their last use. */
#include "engine/kv/prefix/prefix_internal.h"

static int32_t *heap_of(const weir_prefix *p, order which)
{
    return p->orders + which * node_count(&p->limits);
}

static int32_t *place_in(const weir_prefix *p, order which, int32_t index)
{
    node *const n = &p->nodes[index];
    return which == ORDER_BLOCKS ? &n->block_place : &n->leaf_place;
}

static bool is_older(const weir_prefix *p, int32_t a, int32_t b)
{
    const uint64_t left = p->nodes[a].last_use, right = p->nodes[b].last_use;
    return left < right || (left == right && a < b);
}

bool prefix_goes_before(const weir_prefix *p, int32_t a, int32_t b)
{
    const bool left = is_dead(p, a), right = is_dead(p, b);
    return left != right ? left : is_older(p, a, b);
}

static bool goes_before(const weir_prefix *p, order which, int32_t a, int32_t b)
{
    return which == ORDER_BLOCKS ? is_older(p, a, b) : prefix_goes_before(p, a, b);
}

static void put(weir_prefix *p, order which, int32_t at, int32_t index)
{
    heap_of(p, which)[at] = index;
    *place_in(p, which, index) = at;
    ++*p->visits;
}

/* Moves the node, which may be put at `at`, to where it belongs. */
static void place_node(weir_prefix *p, order which, int32_t at, int32_t index)
{
    const int32_t *const heap = heap_of(p, which), n = p->order_size[which];
    for (int32_t up; at > 0 && goes_before(p, which, index, heap[up = (at - 1) / 2]); at = up)
        put(p, which, at, heap[up]);
    for (int32_t down; (down = 2 * at + 1) < n; at = down) {
        if (down + 1 < n && goes_before(p, which, heap[down + 1], heap[down])) down++;
        if (!goes_before(p, which, heap[down], index)) break;
        put(p, which, at, heap[down]);
    }
    put(p, which, at, index);
}

static void add(weir_prefix *p, order which, int32_t index)
{
    place_node(p, which, p->order_size[which]++, index);
}

static void take_out(weir_prefix *p, order which, int32_t index)
{
    const int32_t at = *place_in(p, which, index), last = --p->order_size[which];
    if (at != last) place_node(p, which, at, heap_of(p, which)[last]);
}

int32_t prefix_first(const weir_prefix *p, order which)
{
    return p->order_size[which] > 0 ? heap_of(p, which)[0] : NONE;
}

void prefix_order_leaf(weir_prefix *p, int32_t index, order which)
{
    node *const n = &p->nodes[index];
    if (n->leaf_order != which) {
        if (n->leaf_order != ORDER_NONE) take_out(p, n->leaf_order, index);
        n->leaf_order = (uint8_t)which;
        if (which != ORDER_NONE) add(p, which, index);
    } else if (which != ORDER_NONE) {
        place_node(p, which, n->leaf_place, index);
    }
}

void prefix_order_block(weir_prefix *p, int32_t index, bool is_demotable)
{
    node *const n = &p->nodes[index];
    if (n->is_demotable != is_demotable) {
        n->is_demotable = is_demotable;
        if (is_demotable)
            add(p, ORDER_BLOCKS, index);
        else
            take_out(p, ORDER_BLOCKS, index);
    } else if (is_demotable) {
        place_node(p, ORDER_BLOCKS, n->block_place, index);
    }
}

void prefix_reorder(weir_prefix *p, int32_t index)
{
    prefix_order_leaf(p, index, p->nodes[index].leaf_order);
    prefix_order_block(p, index, p->nodes[index].is_demotable);
}

/* ---- all runs -------------------------------------------------------------------------------- */
void prefix_list_run(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    n->last_use = p->clock;
    n->newer = NONE;
    n->older = p->newest;
    *(n->older != NONE ? &p->nodes[n->older].newer : &p->oldest) = index;
    p->newest = index;
}

void prefix_unlist_run(weir_prefix *p, int32_t index)
{
    const int32_t older = p->nodes[index].older, newer = p->nodes[index].newer;
    if (p->walk == index) p->walk = older;
    if (p->search.at == index) p->search.at = newer;
    *(older != NONE ? &p->nodes[older].newer : &p->oldest) = newer;
    *(newer != NONE ? &p->nodes[newer].older : &p->newest) = older;
}

void prefix_use_run(weir_prefix *p, int32_t index)
{
    prefix_unlist_run(p, index);
    prefix_list_run(p, index);
    prefix_reorder(p, index);
}
