/* engine/kv/prefix.c - the tree itself: its memory, its nodes and states, which of them are used, taking and keeping. Texts as wholes are in
 * prefix_texts.c. Past 600 lines: nodes, states, which of them are used, and the room they give up keep each other's invariants in the same functions. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/cut_internal.h"
#include "engine/kv/cut_texts.h"
#include "engine/kv/residency.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */
static int64_t heads_of(const weir_kv_spec *spec) { return spec->n_layers * spec->n_kv_heads; }

static bool measure(weir_prefix *prefix, const weir_kv_spec *spec)
{
    const size_t nodes = (size_t)node_count(&prefix->limits), slots = (size_t)prefix->limits.n_snapshots;
    prefix->heads = heads_of(spec);
    prefix->is_paged = weir_kv_is_paged(spec);
    prefix->all_cut_bytes = cut_bytes(&prefix->limits);
    return prefix->all_cut_bytes != SIZE_MAX && prefix->limits.n_nodes >= 0 && prefix->limits.n_nodes < INT32_MAX - 64 &&
           prefix->limits.n_snapshots >= 0 && weir_mul_size(&prefix->node_bytes, nodes, sizeof(node)) &&
           weir_mul_size(&prefix->page_bytes, nodes, (size_t)prefix->heads * sizeof(void *)) &&
           weir_mul_size(&prefix->tip_bytes, nodes, sizeof(int32_t)) && weir_mul_size(&prefix->slot_bytes, slots, sizeof(slot)) &&
           weir_mul_size(&prefix->state_bytes, slots, (prefix->limits.snapshot_bytes + 63) & ~(size_t)63);
}

size_t weir_prefix_tree_bytes(const weir_prefix_limits *limits, const weir_kv_spec *spec)
{
    weir_prefix prefix = { .limits = *limits };
    return measure(&prefix, spec) ? prefix.node_bytes + prefix.page_bytes + prefix.tip_bytes : SIZE_MAX;
}

size_t weir_prefix_state_bytes(const weir_prefix_limits *limits)
{
    weir_prefix        prefix = { .limits = *limits };
    const weir_kv_spec none = { 0 };
    size_t             bytes;
    return measure(&prefix, &none) && weir_add_size(&bytes, prefix.slot_bytes, prefix.state_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.all_cut_bytes)
               ? bytes
               : SIZE_MAX;
}

static weir_status take_memory(weir_prefix *p, weir_error *error)
{
    WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->nodes, WEIR_ACCOUNT_PAGE_TABLES, p->node_bytes, error));
    if (p->page_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->pages, WEIR_ACCOUNT_PAGE_TABLES, p->page_bytes, error));
    WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->tips, WEIR_ACCOUNT_PAGE_TABLES, p->tip_bytes, error));
    if (p->slot_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->slots, WEIR_ACCOUNT_SNAPSHOTS, p->slot_bytes, error));
    if (p->state_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->states, WEIR_ACCOUNT_SNAPSHOTS, p->state_bytes, error));
    if (p->all_cut_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->cut, WEIR_ACCOUNT_SNAPSHOTS, p->all_cut_bytes, error));
    cut_open(p);
    return WEIR_OK;
}

weir_status weir_prefix_open(weir_prefix **out, weir_kv_store *store, weir_ledger *ledger, const weir_prefix_limits *limits,
                             weir_error *error)
{
    weir_prefix *const prefix = calloc(1, sizeof *prefix);
    if (prefix == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the prefix index");
    *prefix = (weir_prefix){ .store = store, .ledger = ledger, .limits = *limits };
    weir_status status = measure(prefix, weir_kv_store_spec(store))
                             ? take_memory(prefix, error)
                             : weir_error_set(error, WEIR_EINVAL, "a prefix index of these sizes does not fit in memory");
    if (status != WEIR_OK) {
        weir_prefix_close(prefix);
        return status;
    }
    const int32_t n = (int32_t)node_count(limits);
    for (int32_t i = 0; i < n; i++)
        prefix->nodes[i] =
            (node){ .depth = -2, .parent = NONE, .child = NONE, .snapshot = NONE, .tip = NONE, .next = i + 1 < n ? i + 1 : NONE };
    prefix->nodes[FOREST].next = NONE;
    prefix->free_node = FOREST + 1;
    prefix->parent_in_use = NONE;
    *out = prefix;
    return WEIR_OK;
}

static const node *node_of(const weir_prefix *p, void *const *pages) { return &p->nodes[(pages - (void *const *)p->pages) / p->heads]; }

static void drop_pages(weir_prefix *p, int32_t index)
{
    for (int64_t h = 0; p->nodes[index].n_tokens > 0 && h < p->heads; h++) weir_kv_page_drop(p->store, pages_of(p, index)[h]);
}

static void drop_all(weir_prefix *p, int32_t index)
{
    for (int32_t child = p->nodes[index].child; child != NONE; child = p->nodes[child].next) drop_all(p, child);
    drop_pages(p, index);
}

void weir_prefix_close(weir_prefix *prefix)
{
    if (prefix == NULL) return;
    cut_close(prefix);
    if (prefix->nodes != NULL && (prefix->page_bytes == 0 || prefix->pages != NULL)) drop_all(prefix, FOREST);
    weir_ledger_free(prefix->ledger, prefix->nodes, WEIR_ACCOUNT_PAGE_TABLES, prefix->node_bytes);
    weir_ledger_free(prefix->ledger, prefix->pages, WEIR_ACCOUNT_PAGE_TABLES, prefix->page_bytes);
    weir_ledger_free(prefix->ledger, prefix->tips, WEIR_ACCOUNT_PAGE_TABLES, prefix->tip_bytes);
    weir_ledger_free(prefix->ledger, prefix->slots, WEIR_ACCOUNT_SNAPSHOTS, prefix->slot_bytes);
    weir_ledger_free(prefix->ledger, prefix->states, WEIR_ACCOUNT_SNAPSHOTS, prefix->state_bytes);
    weir_ledger_free(prefix->ledger, prefix->cut, WEIR_ACCOUNT_SNAPSHOTS, prefix->all_cut_bytes);
    free(prefix);
}

/* ---- states -------------------------------------------------------------------------------------------------------- */
static void unlink_slot(weir_prefix *p, int32_t index)
{
    int32_t *at = &p->nodes[p->slots[index].node].snapshot;
    while (*at != index) at = &p->slots[*at].next;
    *at = p->slots[index].next;
    p->slots[index].state = p->slots[index].pins > 0 ? SLOT_LEFT : SLOT_FREE;
    p->stats.n_snapshots--;
}

float *weir_prefix_lend(weir_prefix *prefix)
{
    int32_t found = NONE;
    for (int32_t i = 0; i < prefix->limits.n_snapshots; i++) {
        const slot *const s = &prefix->slots[i];
        if (s->state == SLOT_LENT || s->pins > 0) continue;
        if (found == NONE ||
            (prefix->slots[found].state == SLOT_KEPT && (s->state == SLOT_FREE || s->last_use < prefix->slots[found].last_use)))
            found = i;
    }
    if (found == NONE) return NULL;
    if (prefix->slots[found].state == SLOT_KEPT) unlink_slot(prefix, found);
    prefix->slots[found].state = SLOT_LENT;
    return state_of(prefix, found);
}

void weir_prefix_give_back(weir_prefix *prefix, float *state)
{
    WEIR_ASSERT(prefix->slots[slot_of(prefix, state)].state == SLOT_LENT);
    prefix->slots[slot_of(prefix, state)].state = SLOT_FREE;
}

/* Of two states after the same tokens the older one stays: they are equal. */
static void attach(weir_prefix *p, int32_t index, int32_t offset, float *state)
{
    const int32_t mine = slot_of(p, state);
    for (int32_t s = p->nodes[index].snapshot; s != NONE; s = p->slots[s].next) {
        if (p->slots[s].offset != offset) continue;
        p->slots[s].last_use = p->clock;
        weir_prefix_give_back(p, state);
        return;
    }
    p->slots[mine] = (slot){ .state = SLOT_KEPT, .node = index, .next = p->nodes[index].snapshot, .offset = offset, .last_use = p->clock };
    p->nodes[index].snapshot = mine;
    p->stats.n_snapshots++;
}

/* ---- nodes ----------------------------------------------------------------------------------------------------------- */
/* ---- which nodes are used ----
 * References end without a word when a sequence lets its pages go, and begin only here: nodes are marked when a sequence takes or gives their
 * pages, and unmarked from the tips up when the count is asked for. What is above a used tip cannot be dropped, used or not. */
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

static void drop_leaf(weir_prefix *p, int32_t index)
{
    node *const leaf = &p->nodes[index];
    WEIR_ASSERT(leaf->child == NONE);
    unmark(p, index);
    while (leaf->snapshot != NONE) unlink_slot(p, leaf->snapshot);
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
    *leaf = (node){ .depth = -2, .parent = NONE, .child = NONE, .snapshot = NONE, .tip = NONE, .next = p->free_node };
    p->free_node = index;
    const bool is_empty_salt = parent != FOREST && p->nodes[parent].n_tokens == 0 && p->nodes[parent].child == NONE;
    if (is_empty_salt && parent != p->parent_in_use) drop_leaf(p, parent);
}

static bool is_cold(const weir_prefix *p, int32_t index) { return p->heads > 0 && weir_kv_is_cold(p->store, pages_of(p, index)[0]); }

static bool is_lost(const weir_prefix *p, int32_t index) { return p->heads > 0 && weir_kv_is_lost(p->store, pages_of(p, index)[0]); }

typedef enum leaf_choice { LEAF_ANY, LEAF_NO_SINK, LEAF_IN_MEMORY /* past the sinks */ } leaf_choice;

/* What to lose first: leaves of recurrent models that have no state, which nothing can continue, then the least recently used. */
static int32_t worst_leaf(const weir_prefix *p, leaf_choice which)
{
    int32_t worst = NONE;
    bool    worst_is_dead = false;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&p->limits); i++) {
        const node *const n = &p->nodes[i];
        if (n->parent == NONE || n->n_tokens == 0 || n->child != NONE || !is_idle(p, i)) continue;
        if (which != LEAF_ANY && is_sink(p, i)) continue;
        if (which == LEAF_IN_MEMORY && is_cold(p, i)) continue;
        const bool is_dead = has_states(p) && n->snapshot == NONE;
        if (worst != NONE && (worst_is_dead > is_dead || (worst_is_dead == is_dead && p->nodes[worst].last_use <= n->last_use))) continue;
        worst = i;
        worst_is_dead = is_dead;
    }
    return worst;
}

/* The leaf (NONE: there is none), or the cut text that was used before it. */
static void drop_worst(weir_prefix *p, int32_t leaf)
{
    const cut_text *const oldest = cut_oldest(p);
    if (leaf == NONE || (oldest != NULL && oldest->last_use < p->nodes[leaf].last_use))
        (void)weir_prefix_drop_cut(p);
    else
        drop_leaf(p, leaf);
}

/* A sink is the beginning of a text: where others are missing it is in nobody's way, where sinks are missing all that follows them is. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted)
{
    for (;;) {
        const weir_kv_pages free = weir_kv_store_free(prefix->store);
        if (weir_kv_pages_fit(wanted, free)) return true;
        const int32_t leaf = worst_leaf(prefix, free.sinks >= wanted.sinks ? LEAF_NO_SINK : LEAF_ANY);
        if (leaf == NONE && cut_oldest(prefix) == NULL) return false;
        drop_worst(prefix, leaf);
    }
}

bool weir_prefix_yield(weir_prefix *prefix, const weir_sequence *sequence)
{
    const int64_t page = sequence->n_computed / RUN;
    if (prefix->heads == 0 || page >= sequence->table.n_pages || sequence->table.is_cut) return false;
    void *const own = sequence->table.pages[page];
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const leaf = &prefix->nodes[i];
        if (leaf->parent == NONE || leaf->n_tokens == 0 || leaf->child != NONE || pages_of(prefix, i)[0] != own) continue;
        if (weir_kv_page_refs(prefix->store, own) != 2) return false;
        drop_leaf(prefix, i);
        return true;
    }
    return false;
}

/* A run that ends a text and that nobody has but the tree and the sequence. */
static bool is_end_of(const weir_prefix *prefix, int32_t i, const weir_kv_table *table)
{
    const node *const run = &prefix->nodes[i];
    if (run->parent == NONE || run->n_tokens == 0 || run->child != NONE || run->depth >= table->n_pages) return false;
    void *const page = pages_of(prefix, i)[0];
    return page == table->pages[run->depth] && weir_kv_page_refs(prefix->store, page) == 2;
}

bool weir_prefix_leave(weir_prefix *prefix, const weir_sequence *sequence)
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

/* One pass; `blocks` stays sorted by insertion. */
int32_t weir_prefix_oldest(const weir_prefix *prefix, void *const **blocks, int32_t most)
{
    int32_t n = 0;
    for (int32_t i = FOREST + 1; prefix->heads > 0 && i < (int32_t)node_count(&prefix->limits); i++) {
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

/* Ends of texts that are in memory go first; where none is, those on disk are in the way of what is. */
void weir_prefix_reclaim_memory(weir_prefix *prefix, int64_t n_blocks)
{
    while (weir_kv_store_room(prefix->store) < n_blocks) {
        void *const *oldest = NULL;
        int32_t      leaf = worst_leaf(prefix, LEAF_IN_MEMORY);
        if (leaf == NONE && weir_prefix_oldest(prefix, &oldest, 1) == 0) return;
        if (leaf == NONE) leaf = worst_leaf(prefix, LEAF_NO_SINK);
        if (leaf == NONE) return;
        drop_leaf(prefix, leaf);
    }
}

/* Adds the nodes below and at this one that could be dropped; false: this one could not. */
static bool walk_idle(const weir_prefix *p, int32_t index, weir_kv_pages *n)
{
    bool is_free = p->nodes[index].n_tokens == 0 || is_idle(p, index);
    for (int32_t child = p->nodes[index].child; child != NONE; child = p->nodes[child].next) is_free = walk_idle(p, child, n) && is_free;
    if (is_free && p->nodes[index].n_tokens > 0) *(is_sink(p, index) ? &n->sinks : &n->others) += idle_pages(p, index);
    return is_free;
}

weir_kv_pages weir_prefix_idle_pages(const weir_prefix *prefix)
{
    weir_kv_pages n = { 0 };
    (void)walk_idle(prefix, FOREST, &n);
    cut_count(prefix, &n);
    return n;
}

/* What an idle tip leaves in its place was looked at before. */
weir_kv_pages weir_prefix_reclaimable(weir_prefix *prefix)
{
    for (int32_t place = prefix->n_tips - 1; place >= 0; place--) {
        for (int32_t i = prefix->tips[place]; prefix->nodes[i].tip != NONE && is_idle(prefix, i);) {
            unmark(prefix, i);
            i = prefix->nodes[i].parent;
        }
    }
    if (weir_kv_store_has_cut(prefix->store)) return weir_prefix_idle_pages(prefix);
    const int64_t idle = prefix->stats.n_nodes - prefix->n_used, sinks = prefix->n_sinks - prefix->n_used_sinks;
    weir_kv_pages n = { .sinks = sinks * prefix->heads, .others = (idle - sinks) * prefix->heads };
    cut_count(prefix, &n);
    return n;
}

/* A node under `parent`; NONE when all are in use. */
static int32_t new_node(weir_prefix *p, int32_t parent)
{
    if (p->free_node == NONE) {
        const int32_t leaf = worst_leaf(p, LEAF_ANY);
        if (leaf == NONE || leaf == parent) return NONE;
        p->parent_in_use = parent;
        drop_leaf(p, leaf);
        p->parent_in_use = NONE;
    }
    const int32_t index = p->free_node;
    p->free_node = p->nodes[index].next;
    p->nodes[index] = (node){ .depth = p->nodes[parent].depth + 1,
                              .parent = parent,
                              .child = NONE,
                              .snapshot = NONE,
                              .tip = NONE,
                              .next = p->nodes[parent].child,
                              .last_use = p->clock };
    p->nodes[parent].child = index;
    return index;
}

/* ---- taking ------------------------------------------------------------------------------------------------------------ */
/* Moves `best` to the deepest point of this node, within its first n_same tokens and `most` tokens in all, where a sequence can go on. */
static void find_point(const weir_prefix *p, int32_t index, int32_t before, int32_t n_same, int32_t most, place *best)
{
    int32_t end = n_same < most - before ? n_same : most - before;
    if (p->is_paged && end < RUN) return;
    if (!has_states(p) && end > 0 && before + end > best->at) *best = (place){ index, end, before + end, NONE };
    for (int32_t s = p->nodes[index].snapshot; s != NONE; s = p->slots[s].next) {
        const int32_t offset = p->slots[s].offset;
        if (p->is_paged && offset < RUN) continue;
        if (offset <= end && before + offset > best->at) *best = (place){ index, offset, before + offset, s };
    }
}

/* The child that shares the most first tokens. States of all children count: on a common beginning they are equal. What the disk has lost is not
 * begun again. */
static int32_t descend(const weir_prefix *p, int32_t parent, const weir_sequence *sequence, int32_t before, int32_t most, place *best,
                       int32_t *n_same)
{
    int32_t nearest = NONE;
    *n_same = 0;
    for (int32_t i = p->nodes[parent].child; i != NONE; i = p->nodes[i].next) {
        const int32_t n = p->nodes[i].n_tokens, left = sequence->n_tokens - before;
        if (is_lost(p, i)) continue;
        const int32_t same = common(p->nodes[i].tokens, sequence->tokens + before, n < left ? n : left);
        find_point(p, i, before, same, most, best);
        if (same <= *n_same) continue;
        *n_same = same;
        nearest = i;
    }
    return nearest;
}

void prefix_share(weir_prefix *p, weir_sequence *sequence, const place *end)
{
    int32_t page = (end->at - 1) / RUN;
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, page--) {
        if (p->heads > 0) weir_kv_table_share(&sequence->table, p->store, page, pages_of(p, i));
        prefix_mark(p, i);
    }
    WEIR_ASSERT(page == -1);
    weir_kv_commit(&sequence->table, end->at - sequence->table.n_rows);
    sequence->n_computed = end->at;
}

/* The same, used now, with a copy of the state. */
static void give(weir_prefix *p, weir_sequence *sequence, const place *end)
{
    prefix_share(p, sequence, end);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) p->nodes[i].last_use = p->clock;
    if (end->slot == NONE) return;
    p->slots[end->slot].last_use = p->clock;
    if (sequence->recurrent_bytes == 0) return; /* one that only carries rows to a file */
    memcpy(sequence->recurrent, state_of(p, end->slot), sequence->recurrent_bytes);
    sequence->recurrent_dirty = true;
}

weir_prefix_hit prefix_find(const weir_prefix *p, const weir_sequence *sequence, const char *salt, int32_t most, place *best)
{
    weir_prefix_hit hit = { .reason = "nothing is kept under this salt" };
    int32_t         at = find_salt(p, salt_text(salt));
    *best = (place){ .node = NONE };
    if (at == NONE) return hit;
    hit.reason = "no kept text begins like this";
    for (int32_t same = RUN; same == RUN && hit.n_matched < sequence->n_tokens;) {
        at = descend(p, at, sequence, hit.n_matched, most, best, &same);
        hit.n_matched += same;
    }
    hit.n_rows = best->at;
    if (hit.n_matched >= sequence->n_tokens)
        hit.reason = "the whole text is kept";
    else if (hit.n_matched > 0)
        hit.reason = "the nearest kept text ends or differs here";
    if (hit.n_matched == 0 || (best->node != NONE && (best->at == hit.n_matched || best->at == most))) return hit;
    if (has_states(p))
        hit.reason =
            best->node == NONE ? "no recurrent state is kept on the common part" : "the last recurrent state on the common part is here";
    else if (p->is_paged)
        hit.reason = "this KV format continues texts at multiples of 64 tokens";
    return hit;
}

weir_prefix_hit weir_prefix_take(weir_prefix *prefix, weir_sequence *sequence, const char *salt, int32_t most)
{
    place best;
    WEIR_ASSERT(sequence->n_computed == 0);
    prefix->clock++;
    const weir_prefix_hit hit = prefix_find(prefix, sequence, salt, most, &best);
    if (best.node != NONE) give(prefix, sequence, &best);
    return hit;
}

int32_t weir_prefix_reach(const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt)
{
    place               best;
    const weir_sequence text = { .tokens = (int32_t *)tokens, .n_tokens = n_tokens }; /* only read */
    return prefix_find(prefix, &text, salt, n_tokens, &best).n_rows;
}

/* ---- keeping ------------------------------------------------------------------------------------------------------------- */
static void copy_pages(weir_prefix *p, int32_t index, const weir_sequence *sequence, int32_t page)
{
    for (int64_t h = 0; h < p->heads; h++) {
        void *const own = sequence->table.pages[h * sequence->table.capacity + page];
        weir_kv_page_hold(p->store, own);
        pages_of(p, index)[h] = own;
    }
    prefix_mark(p, index);
}

/* The sequence computed what the node has: equal bits, so its own whole page is given up for the node's. */
static void adopt(weir_prefix *p, int32_t index, weir_sequence *sequence, int32_t page)
{
    void **const own = sequence->table.pages + page;
    if (p->heads == 0 || own[0] == pages_of(p, index)[0]) return;
    for (int64_t h = 0; h < p->heads; h++) {
        weir_kv_page_drop(p->store, own[h * sequence->table.capacity]);
        own[h * sequence->table.capacity] = NULL;
    }
    weir_kv_table_share(&sequence->table, p->store, page, pages_of(p, index));
    prefix_mark(p, index);
}

/* The node has these tokens, and its page is on disk with no other user, or lost there: the sequence's own, in memory, is better. */
static bool is_worse(const weir_prefix *p, int32_t index, const weir_sequence *sequence, int32_t page)
{
    return is_cold(p, index) && (is_lost(p, index) || is_idle(p, index)) && !weir_kv_is_cold(p->store, sequence->table.pages[page]);
}

static void use(weir_prefix *p, int32_t index)
{
    node *const run = &p->nodes[index];
    run->last_use = p->clock;
    if (!run->has_lost_file) return;
    run->has_lost_file = false;
    run->n_tried = 0;
}

/* The node for tokens [at, at + n) of the sequence under `parent`: one that has them, one that is made longer or gets a better page, or a new one. */
static int32_t keep_run(weir_prefix *p, int32_t parent, weir_sequence *sequence, int32_t at, int32_t n)
{
    int32_t    same, index = nearest_child(p, parent, sequence->tokens + at, n, &same);
    const bool is_whole = index != NONE && same == p->nodes[index].n_tokens;
    if (index != NONE && same == n && !(is_whole && is_worse(p, index, sequence, at / RUN))) {
        if (n == RUN && !is_lost(p, index)) adopt(p, index, sequence, at / RUN);
        return index;
    }
    if (is_whole)
        drop_pages(p, index); /* its rows are in the sequence's pages too */
    else
        index = new_node(p, parent);
    if (index == NONE) return NONE;
    node *const run = &p->nodes[index];
    if (!is_whole) p->stats.n_nodes++;
    if (!is_whole) p->n_sinks += is_sink(p, index);
    p->stats.n_tokens += n - run->n_tokens;
    memcpy(run->tokens, sequence->tokens + at, (size_t)n * sizeof *run->tokens);
    run->n_tokens = n;
    copy_pages(p, index, sequence, at / RUN);
    return index;
}

static int32_t keep_salt(weir_prefix *p, const char *salt)
{
    const int32_t found = find_salt(p, salt);
    if (found != NONE || strlen(salt) > WEIR_PREFIX_SALT) return found;
    const int32_t index = new_node(p, FOREST);
    if (index != NONE) memcpy(p->nodes[index].tokens, salt, strlen(salt) + 1);
    return index;
}

int32_t weir_prefix_keep(weir_prefix *prefix, weir_sequence *sequence, const char *salt, const weir_prefix_mark *marks, int32_t n_marks,
                         bool whole_pages)
{
    prefix->clock++;
    const int32_t whole = sequence->n_computed / RUN * RUN;
    const int32_t end = sequence->table.is_cut ? 0 : whole_pages || prefix->is_paged ? whole : sequence->n_computed;
    int32_t       at = 0, mark = 0, index = end > 0 ? keep_salt(prefix, salt_text(salt)) : NONE;
    while (index != NONE && at < end) {
        const int32_t n = end - at < RUN ? end - at : RUN;
        index = keep_run(prefix, index, sequence, at, n);
        if (index == NONE) break;
        use(prefix, index);
        for (; mark < n_marks && marks[mark].at <= at + n; mark++) attach(prefix, index, marks[mark].at - at, marks[mark].state);
        at += n;
    }
    if (whole_pages && at == end) return n_marks - mark;
    for (; mark < n_marks; mark++) weir_prefix_give_back(prefix, marks[mark].state);
    return 0;
}

weir_prefix_stats weir_prefix_stats_of(const weir_prefix *prefix) { return prefix->stats; }

/* Marks: on every node that a sequence uses, in the list where no child has one. */
static bool marks_are_sound(const weir_prefix *p, int32_t index)
{
    const node *const n = &p->nodes[index];
    int32_t           n_used = 0;
    for (int32_t child = n->child; child != NONE; child = p->nodes[child].next) n_used += p->nodes[child].is_used;
    if (n_used != n->n_used || (n->tip != NONE) != (n->is_used && n_used == 0) || (n->tip != NONE && p->tips[n->tip] != index))
        return false;
    if (n->depth != (index == FOREST ? -2 : p->nodes[n->parent].depth + 1)) return false;
    if (n->n_tokens == 0) return !n->is_used;
    return n->is_used || is_idle(p, index);
}

static bool node_is_sound(const weir_prefix *p, int32_t index, int64_t *n_slots)
{
    const node *const n = &p->nodes[index];
    if (!marks_are_sound(p, index)) return false;
    if (n->has_lost_file && n->n_saved > 0) return false;
    if (n->n_saved < 0 || n->n_saved > n->n_tried || n->n_tried > n->n_tokens) return false;
    if (n->n_tokens > 0 && n->n_tokens < RUN && (n->child != NONE || p->is_paged)) return false;
    for (int64_t h = 0; n->n_tokens > 0 && h < p->heads; h++)
        if (weir_kv_page_refs(p->store, pages_of(p, index)[h]) < 1) return false;
    for (int32_t s = n->snapshot; s != NONE; s = p->slots[s].next, (*n_slots)++)
        if (p->slots[s].state != SLOT_KEPT || p->slots[s].node != index || p->slots[s].offset < 1 || p->slots[s].offset > n->n_tokens)
            return false;
    for (int32_t child = n->child; child != NONE; child = p->nodes[child].next)
        if (p->nodes[child].parent != index || !node_is_sound(p, child, n_slots)) return false;
    return true;
}

bool weir_prefix_is_sound(const weir_prefix *prefix, weir_error *error)
{
    int64_t n_kept = 0, n_nodes = 0, n_tokens = 0, n_slots = 0, n_used = 0, n_sinks = 0, n_used_sinks = 0;
    for (int32_t i = 0; i < prefix->limits.n_snapshots; i++) n_slots += prefix->slots[i].state == SLOT_KEPT;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const n = &prefix->nodes[i];
        n_nodes += n->parent != NONE && n->n_tokens > 0;
        n_tokens += n->n_tokens;
        n_used += n->is_used;
        n_sinks += n->parent != NONE && n->n_tokens > 0 && is_sink(prefix, i);
        n_used_sinks += n->is_used && is_sink(prefix, i);
    }
    bool names_are_sound = true;
    if (!cut_is_sound(prefix)) return weir_error_set(error, WEIR_EINVAL, "the list of cut texts is unsound") == WEIR_OK;
    for (const name *n = prefix->names; n < prefix->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && (prefix->nodes[n->node].parent == NONE || n->offset < 1 || n->offset > prefix->nodes[n->node].n_tokens))
            names_are_sound = false;
    if (!names_are_sound)
        (void)weir_error_set(error, WEIR_EINVAL, "a name of the prefix tree stands for nothing");
    else if (!node_is_sound(prefix, FOREST, &n_kept))
        (void)weir_error_set(error, WEIR_EINVAL, "a node of the prefix tree is unsound");
    else if (n_kept != n_slots || n_kept != prefix->stats.n_snapshots)
        (void)weir_error_set(error, WEIR_EINVAL, "states of the prefix tree are lost");
    else if (n_nodes != prefix->stats.n_nodes || n_tokens != prefix->stats.n_tokens || n_used != prefix->n_used ||
             n_sinks != prefix->n_sinks || n_used_sinks != prefix->n_used_sinks)
        (void)weir_error_set(error, WEIR_EINVAL, "nodes of the prefix tree are lost");
    else
        return true;
    return false;
}
