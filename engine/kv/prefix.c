/* One file past 600 lines: nodes, states and names keep each other's invariants, and every part of it reads all three. */
#include "engine/kv/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/residency.h"

enum { RUN = WEIR_PAGE_TOKENS, NONE = -1, FOREST = 0 };

/* A run of tokens. Node FOREST holds the salts; a salt's node has its text in place of tokens and no pages. */
typedef struct node {
    int32_t  tokens[RUN];
    int32_t  n_tokens; /* 0: a salt */
    int32_t  depth; /* number of its pages in a text; -1: a salt */
    int32_t  parent, child, next, snapshot; /* first child, next sibling or free node, first slot */
    int32_t  n_used; /* children that are marked as used */
    int32_t  n_saved, n_tried; /* of its tokens, in a file; in one or in none for good */
    int32_t  tip; /* its place in `tips`, NONE: not there */
    bool     is_used; /* marked: a sequence used its pages when that was looked at last */
    uint64_t last_use;
} node;
_Static_assert(sizeof(int32_t) * RUN > WEIR_PREFIX_SALT, "a salt fits a node");

typedef enum slot_state { SLOT_FREE, SLOT_LENT, SLOT_KEPT, SLOT_LEFT /* by its node: free when nobody pins it */ } slot_state;
typedef struct slot {
    slot_state state;
    int32_t    node, next, offset; /* of the node's tokens, 1 .. 64 */
    int32_t    pins;
    uint64_t   last_use;
} slot;

typedef struct name {
    char    text[WEIR_PREFIX_NAME + 1]; /* "": free */
    int32_t node, offset;
} name;

struct weir_prefix {
    weir_kv_store     *store;
    weir_ledger       *ledger;
    weir_prefix_limits limits;
    node              *nodes;  /* [n_nodes] */
    void             **pages;  /* [n_nodes, heads] */
    slot              *slots;  /* [n_snapshots] */
    float             *states; /* [n_snapshots, snapshot_bytes] */
    size_t             node_bytes, page_bytes, tip_bytes, slot_bytes, state_bytes;
    int64_t            heads;
    int32_t           *tips; /* [n_tips] nodes that are marked and have no marked child: where sequences leave the tree */
    int32_t            n_tips;
    int64_t            n_used;   /* marked nodes */
    int64_t            n_sinks, n_used_sinks; /* of the nodes with pages, and of the marked ones */
    bool               is_paged; /* whole runs only (store.h 5) */
    int32_t            free_node, parent_in_use; /* of the node that is being made: not dropped with its last text */
    uint64_t           clock;
    weir_prefix_stats  stats;
    name               names[WEIR_PREFIX_NAMES];
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */
static int64_t heads_of(const weir_kv_spec *spec) { return spec->n_layers * spec->n_kv_heads; }

/* The forest and some salts beside what was asked for. */
static int64_t node_count(const weir_prefix_limits *limits) { return limits->n_nodes + 64; }

static bool measure(weir_prefix *prefix, const weir_kv_spec *spec)
{
    const size_t nodes = (size_t)node_count(&prefix->limits), slots = (size_t)prefix->limits.n_snapshots;
    prefix->heads = heads_of(spec);
    prefix->is_paged = weir_kv_is_paged(spec);
    return prefix->limits.n_nodes >= 0 && prefix->limits.n_nodes < INT32_MAX - 64 && prefix->limits.n_snapshots >= 0 &&
           weir_mul_size(&prefix->node_bytes, nodes, sizeof(node)) &&
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
    return measure(&prefix, &none) ? prefix.slot_bytes + prefix.state_bytes : SIZE_MAX;
}

static weir_status take_memory(weir_prefix *p, weir_error *error)
{
    WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->nodes, WEIR_ACCOUNT_PAGE_TABLES, p->node_bytes, error));
    if (p->page_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->pages, WEIR_ACCOUNT_PAGE_TABLES, p->page_bytes, error));
    WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->tips, WEIR_ACCOUNT_PAGE_TABLES, p->tip_bytes, error));
    if (p->slot_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->slots, WEIR_ACCOUNT_SNAPSHOTS, p->slot_bytes, error));
    if (p->state_bytes > 0) WEIR_TRY(weir_ledger_alloc(p->ledger, (void **)&p->states, WEIR_ACCOUNT_SNAPSHOTS, p->state_bytes, error));
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

static void **pages_of(const weir_prefix *p, int32_t index) { return p->pages + index * p->heads; }

static const node *node_of(const weir_prefix *p, void *const *pages) { return &p->nodes[(pages - (void *const *)p->pages) / p->heads]; }

/* Its pages are sinks. */
static bool is_sink(const weir_prefix *p, int32_t index) { return p->nodes[index].depth < weir_kv_store_spec(p->store)->sinks.n_pages; }

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
    if (prefix->nodes != NULL && (prefix->page_bytes == 0 || prefix->pages != NULL)) drop_all(prefix, FOREST);
    weir_ledger_free(prefix->ledger, prefix->nodes, WEIR_ACCOUNT_PAGE_TABLES, prefix->node_bytes);
    weir_ledger_free(prefix->ledger, prefix->pages, WEIR_ACCOUNT_PAGE_TABLES, prefix->page_bytes);
    weir_ledger_free(prefix->ledger, prefix->tips, WEIR_ACCOUNT_PAGE_TABLES, prefix->tip_bytes);
    weir_ledger_free(prefix->ledger, prefix->slots, WEIR_ACCOUNT_SNAPSHOTS, prefix->slot_bytes);
    weir_ledger_free(prefix->ledger, prefix->states, WEIR_ACCOUNT_SNAPSHOTS, prefix->state_bytes);
    free(prefix);
}

/* ---- states -------------------------------------------------------------------------------------------------------- */
static bool has_states(const weir_prefix *p) { return p->limits.snapshot_bytes > 0; }

static float *state_of(const weir_prefix *p, int32_t index)
{
    return p->states + (size_t)index * (p->state_bytes / (size_t)p->limits.n_snapshots / sizeof(float));
}

static int32_t slot_of(const weir_prefix *p, const float *state)
{
    return (int32_t)((size_t)(state - p->states) / (p->state_bytes / (size_t)p->limits.n_snapshots / sizeof(float)));
}

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
/* Nobody but the tree uses its pages. */
static bool is_idle(const weir_prefix *p, int32_t index)
{
    return p->heads == 0 || weir_kv_page_refs(p->store, pages_of(p, index)[0]) == 1;
}

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

static void mark(weir_prefix *p, int32_t index)
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

/* A sink is the beginning of a text: where others are missing it is in nobody's way, where sinks are missing all that follows them is. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted)
{
    for (;;) {
        const weir_kv_pages free = weir_kv_store_free(prefix->store);
        if (weir_kv_pages_fit(wanted, free)) return true;
        const int32_t leaf = worst_leaf(prefix, free.sinks >= wanted.sinks ? LEAF_NO_SINK : LEAF_ANY);
        if (leaf == NONE) return false;
        drop_leaf(prefix, leaf);
    }
}

bool weir_prefix_yield(weir_prefix *prefix, const weir_sequence *sequence)
{
    const int64_t page = sequence->n_computed / RUN;
    if (prefix->heads == 0 || page >= sequence->table.n_pages) return false;
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

/* One pass; `blocks` stays sorted by insertion. */
int32_t weir_prefix_oldest(const weir_prefix *prefix, void *const **blocks, int32_t most)
{
    int32_t n = 0;
    for (int32_t i = FOREST + 1; prefix->heads > 0 && i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const run = &prefix->nodes[i];
        if (run->parent == NONE || run->n_tokens == 0 || is_sink(prefix, i) || !is_idle(prefix, i) || is_cold(prefix, i)) continue;
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
        if (weir_prefix_oldest(prefix, &oldest, 1) == 0) return;
        int32_t leaf = worst_leaf(prefix, LEAF_IN_MEMORY);
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
    if (is_free && p->nodes[index].n_tokens > 0) *(is_sink(p, index) ? &n->sinks : &n->others) += p->heads;
    return is_free;
}

weir_kv_pages weir_prefix_idle_pages(const weir_prefix *prefix)
{
    weir_kv_pages n = { 0 };
    (void)walk_idle(prefix, FOREST, &n);
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
    const int64_t idle = prefix->stats.n_nodes - prefix->n_used, sinks = prefix->n_sinks - prefix->n_used_sinks;
    return (weir_kv_pages){ .sinks = sinks * prefix->heads, .others = (idle - sinks) * prefix->heads };
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

static int32_t common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static int32_t find_salt(const weir_prefix *p, const char *salt)
{
    for (int32_t i = p->nodes[FOREST].child; i != NONE; i = p->nodes[i].next)
        if (strcmp((const char *)p->nodes[i].tokens, salt) == 0) return i;
    return NONE;
}

/* The child that shares the most first tokens. */
static int32_t nearest_child(const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n, int32_t *n_same)
{
    int32_t best = NONE;
    *n_same = 0;
    for (int32_t i = p->nodes[parent].child; i != NONE; i = p->nodes[i].next) {
        const node *const child = &p->nodes[i];
        const int32_t     same = common(child->tokens, tokens, child->n_tokens < n ? child->n_tokens : n);
        if (same > *n_same) {
            *n_same = same;
            best = i;
        }
    }
    return best;
}

static const char *salt_text(const char *salt) { return salt != NULL ? salt : WEIR_PREFIX_NO_SALT; }

/* ---- taking ------------------------------------------------------------------------------------------------------------ */
typedef struct place { /* a point of the tree: after `offset` tokens of a node */
    int32_t node, offset, at, slot;
} place;

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

/* Shares the pages down to the place, deepest first. */
static void share(weir_prefix *p, weir_sequence *sequence, const place *end)
{
    int32_t page = (end->at - 1) / RUN;
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, page--) {
        if (p->heads > 0) weir_kv_table_share(&sequence->table, p->store, page, pages_of(p, i));
        mark(p, i);
    }
    WEIR_ASSERT(page == -1);
    weir_kv_commit(&sequence->table, end->at);
    sequence->n_computed = end->at;
}

/* The same, used now, with a copy of the state. */
static void give(weir_prefix *p, weir_sequence *sequence, const place *end)
{
    share(p, sequence, end);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) p->nodes[i].last_use = p->clock;
    if (end->slot == NONE) return;
    p->slots[end->slot].last_use = p->clock;
    if (sequence->recurrent_bytes == 0) return; /* one that only carries rows to a file */
    memcpy(sequence->recurrent, state_of(p, end->slot), sequence->recurrent_bytes);
    sequence->recurrent_dirty = true;
}

/* Where the longest kept text that begins the sequence can be continued. */
static weir_prefix_hit find(const weir_prefix *p, const weir_sequence *sequence, const char *salt, int32_t most, place *best)
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
    const weir_prefix_hit hit = find(prefix, sequence, salt, most, &best);
    if (best.node != NONE) give(prefix, sequence, &best);
    return hit;
}

int32_t weir_prefix_reach(const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt)
{
    place               best;
    const weir_sequence text = { .tokens = (int32_t *)tokens, .n_tokens = n_tokens }; /* only read */
    return find(prefix, &text, salt, n_tokens, &best).n_rows;
}

/* ---- keeping ------------------------------------------------------------------------------------------------------------- */
static void copy_pages(weir_prefix *p, int32_t index, const weir_sequence *sequence, int32_t page)
{
    for (int64_t h = 0; h < p->heads; h++) {
        void *const own = sequence->table.pages[h * sequence->table.capacity + page];
        weir_kv_page_hold(p->store, own);
        pages_of(p, index)[h] = own;
    }
    mark(p, index);
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
    mark(p, index);
}

/* The node has these tokens, and its page is on disk with no other user, or lost there: the sequence's own, in memory, is better. */
static bool is_worse(const weir_prefix *p, int32_t index, const weir_sequence *sequence, int32_t page)
{
    return is_cold(p, index) && (is_lost(p, index) || is_idle(p, index)) && !weir_kv_is_cold(p->store, sequence->table.pages[page]);
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
    const int32_t end = whole_pages || prefix->is_paged ? sequence->n_computed / RUN * RUN : sequence->n_computed;
    int32_t       at = 0, mark = 0, index = end > 0 ? keep_salt(prefix, salt_text(salt)) : NONE;
    while (index != NONE && at < end) {
        const int32_t n = end - at < RUN ? end - at : RUN;
        index = keep_run(prefix, index, sequence, at, n);
        if (index == NONE) break;
        prefix->nodes[index].last_use = prefix->clock;
        for (; mark < n_marks && marks[mark].at <= at + n; mark++) attach(prefix, index, marks[mark].at - at, marks[mark].state);
        at += n;
    }
    if (whole_pages && at == end) return n_marks - mark;
    for (; mark < n_marks; mark++) weir_prefix_give_back(prefix, marks[mark].state);
    return 0;
}

/* ---- kept texts --------------------------------------------------------------------------------------------------------- */
/* Tokens above a node. */
static int32_t tokens_before(const weir_prefix *p, int32_t index)
{
    int32_t n = 0;
    for (int32_t i = p->nodes[index].parent; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) n += p->nodes[i].n_tokens;
    return n;
}

/* The node that holds the last of the sequence's computed tokens that are kept. */
static int32_t last_node(const weir_prefix *p, const weir_sequence *sequence, const char *salt, int32_t *n_kept)
{
    int32_t index = NONE, parent = find_salt(p, salt_text(salt)), same = RUN;
    *n_kept = 0;
    while (parent != NONE && same == RUN && *n_kept < sequence->n_computed) {
        parent = nearest_child(p, parent, sequence->tokens + *n_kept, sequence->n_computed - *n_kept, &same);
        if (parent != NONE) index = parent;
        *n_kept += same;
    }
    return index;
}

static int by_place(const void *a, const void *b)
{
    const weir_prefix_mark *const left = a, *const right = b;
    return (left->at > right->at) - (left->at < right->at);
}

/* States of all children count, as they do for weir_prefix_take: one may be on a run of another text, which can be dropped meanwhile. */
int32_t weir_prefix_pin(weir_prefix *prefix, const weir_sequence *sequence, const char *salt, weir_prefix_mark *marks, int32_t most)
{
    int32_t n = 0, before = 0, same = RUN, parent = find_salt(prefix, salt_text(salt));
    while (parent != NONE && same == RUN && before < sequence->n_computed) {
        const int32_t *const tokens = sequence->tokens + before, left = sequence->n_computed - before;
        for (int32_t i = prefix->nodes[parent].child; i != NONE; i = prefix->nodes[i].next) {
            const node *const child = &prefix->nodes[i];
            const int32_t     equal = common(child->tokens, tokens, child->n_tokens < left ? child->n_tokens : left);
            for (int32_t s = child->snapshot; s != NONE; s = prefix->slots[s].next) {
                const weir_prefix_mark mark = { before + prefix->slots[s].offset, state_of(prefix, s) };
                bool                   is_new = prefix->slots[s].offset <= equal;
                for (int32_t k = 0; k < n; k++) is_new = is_new && marks[k].at != mark.at;
                if (!is_new) continue;
                if (n == most) memmove(marks, marks + 1, (size_t)--n * sizeof *marks);
                marks[n++] = mark;
                qsort(marks, (size_t)n, sizeof *marks, by_place);
            }
        }
        parent = nearest_child(prefix, parent, tokens, left, &same);
        before += same;
    }
    for (int32_t k = 0; k < n; k++) prefix->slots[slot_of(prefix, marks[k].state)].pins++;
    return n;
}

void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_mark *marks, int32_t n_marks)
{
    for (const weir_prefix_mark *mark = marks; mark < marks + n_marks; mark++) {
        slot *const pinned = &prefix->slots[slot_of(prefix, mark->state)];
        WEIR_ASSERT(pinned->pins > 0);
        if (--pinned->pins == 0 && pinned->state == SLOT_LEFT) pinned->state = SLOT_FREE;
    }
}

/* The name's place, else a free one, else that of the least recently used text. */
static name *place_for_name(weir_prefix *p, const char *text)
{
    name *best = NULL;
    for (name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++) {
        if (strcmp(n->text, text) == 0) return n;
        if (best == NULL || (best->text[0] != '\0' && (n->text[0] == '\0' || p->nodes[n->node].last_use < p->nodes[best->node].last_use)))
            best = n;
    }
    return best;
}

void weir_prefix_name(weir_prefix *prefix, const weir_sequence *sequence, const char *salt, const char *text)
{
    int32_t       n_kept;
    const int32_t index = last_node(prefix, sequence, salt, &n_kept);
    if (index == NONE || text[0] == '\0' || strlen(text) > WEIR_PREFIX_NAME) return;
    name *const place = place_for_name(prefix, text);
    *place = (name){ .node = index, .offset = n_kept - tokens_before(prefix, index) };
    memcpy(place->text, text, strlen(text) + 1);
}

/* The tokens down to `offset` of a node become those of the sequence. */
static void copy_text(const weir_prefix *p, int32_t index, int32_t offset, weir_sequence *sequence, char *salt)
{
    int32_t at = tokens_before(p, index), n = offset, i = index;
    WEIR_ASSERT(sequence->n_computed == 0 && at + offset <= weir_kv_store_spec(p->store)->max_rows);
    sequence->n_tokens = at + offset;
    for (; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, n = RUN, at -= RUN)
        memcpy(sequence->tokens + at, p->nodes[i].tokens, (size_t)n * sizeof *sequence->tokens);
    memcpy(salt, p->nodes[i].tokens, WEIR_PREFIX_SALT + 1);
}

static const name *find_name(const weir_prefix *p, const char *text)
{
    for (const name *n = p->names; n < p->names + WEIR_PREFIX_NAMES && text[0] != '\0'; n++)
        if (strcmp(n->text, text) == 0) return n;
    return NULL;
}

bool weir_prefix_named(const weir_prefix *prefix, const char *text, weir_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1])
{
    const name *const found = find_name(prefix, text);
    if (found != NULL) copy_text(prefix, found->node, found->offset, sequence, salt);
    return found != NULL;
}

bool weir_prefix_has_name(const weir_prefix *prefix, const char *text) { return find_name(prefix, text) != NULL; }

static bool is_before(const weir_prefix *p, int32_t index, const weir_prefix_cursor *cursor)
{
    const uint64_t use = p->nodes[index].last_use;
    return cursor->node == 0 || use < cursor->last_use || (use == cursor->last_use && index < cursor->node);
}

bool weir_prefix_next(const weir_prefix *prefix, weir_prefix_cursor *cursor, weir_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1],
                      char text[WEIR_PREFIX_NAME + 1])
{
    int32_t found = NONE;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const n = &prefix->nodes[i];
        if (n->parent == NONE || n->n_tokens == 0 || n->child != NONE || !is_before(prefix, i, cursor)) continue;
        if (found == NONE || n->last_use >= prefix->nodes[found].last_use) found = i;
    }
    if (found == NONE) return false;
    *cursor = (weir_prefix_cursor){ prefix->nodes[found].last_use, found };
    copy_text(prefix, found, prefix->nodes[found].n_tokens, sequence, salt);
    text[0] = '\0';
    for (const name *n = prefix->names; n < prefix->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && n->node == found && n->offset == prefix->nodes[found].n_tokens) memcpy(text, n->text, sizeof n->text);
    return true;
}

/* ---- texts that will be dropped ---------------------------------------------------------------------------------------- */
/* Tokens that nobody has tried to save and that would go with this leaf, up to `enough`: those of its runs that no other text has. */
static int32_t loss_of(const weir_prefix *p, int32_t leaf, int32_t enough)
{
    int32_t n = 0, child = NONE;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0 && n < enough && is_idle(p, i); child = i, i = p->nodes[i].parent) {
        if (child != NONE && (p->nodes[i].child != child || p->nodes[child].next != NONE)) break;
        n += p->nodes[i].n_tokens - p->nodes[i].n_tried;
    }
    return n;
}

/* So many, or half of all, can be lent before one that was used at `use` or since. */
static bool has_states_before(const weir_prefix *p, int32_t n_states, uint64_t use)
{
    const int32_t half = p->limits.n_snapshots / 2;
    int32_t       n = 0;
    for (int32_t i = 0; i < p->limits.n_snapshots; i++) {
        const slot *const s = &p->slots[i];
        n += s->state == SLOT_FREE || (s->state == SLOT_KEPT && s->pins == 0 && s->last_use < use);
    }
    return n >= (n_states < half ? n_states : half);
}

bool weir_prefix_has_free_states(const weir_prefix *prefix, int32_t n_states) { return has_states_before(prefix, n_states, 0); }

/* When the state of this text that goes first was used. */
static uint64_t use_of_states(const weir_prefix *p, int32_t leaf)
{
    uint64_t use = p->nodes[leaf].last_use;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent)
        for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->slots[s].next)
            if (p->slots[s].last_use < use) use = p->slots[s].last_use;
    return use;
}

bool weir_prefix_endangered(weir_prefix *prefix, weir_kv_pages wanted, int32_t n_states, int32_t least, weir_sequence *sequence,
                            char salt[WEIR_PREFIX_SALT + 1])
{
    const int32_t n = (int32_t)node_count(&prefix->limits);
    int32_t       found = NONE;
    weir_kv_pages before = weir_kv_store_free(prefix->store); /* free, and of runs that go first */
    for (int32_t i = FOREST + 1; i < n; i++) {
        const node *const leaf = &prefix->nodes[i];
        if (leaf->parent == NONE || leaf->n_tokens == 0 || leaf->child != NONE) continue;
        if ((found == NONE || leaf->last_use < prefix->nodes[found].last_use) && loss_of(prefix, i, least) >= least) found = i;
    }
    if (found == NONE) return false;
    for (int32_t i = FOREST + 1; i < n; i++) {
        const node *const run = &prefix->nodes[i];
        if (run->parent == NONE || run->n_tokens == 0 || run->last_use >= prefix->nodes[found].last_use || !is_idle(prefix, i)) continue;
        *(is_sink(prefix, i) ? &before.sinks : &before.others) += prefix->heads;
    }
    if (weir_kv_pages_fit(wanted, before) && has_states_before(prefix, n_states, use_of_states(prefix, found))) return false;
    copy_text(prefix, found, prefix->nodes[found].n_tokens, sequence, salt);
    return true;
}

int32_t weir_prefix_hold(weir_prefix *prefix, weir_sequence *sequence, const char *salt)
{
    place best;
    WEIR_ASSERT(sequence->n_computed == 0);
    (void)find(prefix, sequence, salt, sequence->n_tokens, &best);
    if (best.node != NONE) share(prefix, sequence, &best);
    return sequence->n_computed;
}

void weir_prefix_tried(weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, int32_t n_saved, const char *salt)
{
    int32_t index = find_salt(prefix, salt_text(salt)), same = RUN;
    for (int32_t at = 0; index != NONE && same == RUN && at < n_tokens; at += same) {
        index = nearest_child(prefix, index, tokens + at, n_tokens - at, &same);
        if (index == NONE) return;
        node *const   run = &prefix->nodes[index];
        const int32_t saved = n_saved - at < same ? n_saved - at : same;
        if (same > run->n_tried) run->n_tried = same;
        if (saved > run->n_saved) run->n_saved = saved;
    }
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
