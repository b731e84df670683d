/* engine/kv/prefix/prefix_internal.h - internals of the prefix tree, for the files of this
 * folder. */
#pragma once
#include <string.h>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

enum { RUN = WEIR_PAGE_TOKENS, NONE = -1, FOREST = 0 };

/* A run of tokens. Node FOREST is the parent of the salts; a salt's node has the salt in place of
 * tokens and no pages. */
typedef struct node {
    int32_t tokens[RUN];
    int32_t n_tokens; /* 0: a salt */
    int32_t depth; /* index of its pages in a sequence; -1: a salt */
    /* First child, next sibling or free node, first slot. */
    int32_t parent, child, next, snapshot;
    int32_t n_used; /* marked children */
    /* Of its tokens: in a file; in a file or never to be saved. */
    int32_t n_saved, n_tried;
    bool has_lost_file; /* a file that held tokens of this run is gone */
    int32_t tip; /* its index in `tips`, or NONE */
    bool is_used; /* marked: a sequence used its pages at the last check */
    uint64_t last_use;
} node;
_Static_assert(sizeof(int32_t) * RUN > WEIR_PREFIX_SALT, "a salt fits a node");

typedef enum slot_state {
    SLOT_FREE,
    SLOT_LENT,
    SLOT_KEPT,
    SLOT_LEFT /* removed from its node: free once it is not pinned */
} slot_state;
typedef struct slot {
    slot_state state;
    /* offset: of the node's tokens, 1 .. 64. */
    int32_t node, next, offset;
    int32_t pins;
    bool is_spare; /* goes before all that are not */
    uint64_t last_use;
} slot;

typedef struct pruned_entry pruned_entry; /* pruned_cache_internal.h */

typedef struct name {
    char text[WEIR_PREFIX_NAME + 1]; /* "": free */
    int32_t node, offset;
} name;

struct weir_prefix {
    weir_kv_store *store;
    weir_ledger *ledger;
    weir_prefix_limits limits;
    node *nodes; /* [n_nodes] */
    void **pages; /* [n_nodes, heads] */
    slot *slots; /* [n_snapshots] */
    float *states; /* [n_snapshots, snapshot_bytes] */
    size_t node_bytes, page_bytes, tip_bytes, slot_bytes, state_bytes, all_pruned_bytes;
    /* [limits.n_pruned], followed by the memory of their parts. */
    pruned_entry *pruned;
    char *pruned_memory;
    int64_t heads;
    /* [n_tips] marked nodes without a marked child: where sequences leave the tree. */
    int32_t *tips;
    int32_t n_tips;
    int64_t n_used; /* marked nodes */
    int64_t n_sinks, n_used_sinks; /* of nodes with pages, and of marked ones */
    bool is_paged; /* only whole runs (store.h 5) */
    /* Of the node that is being created: not dropped with its last sequence. */
    int32_t free_node, parent_in_use;
    uint64_t clock;
    weir_prefix_stats stats;
    name names[WEIR_PREFIX_NAMES];
};

/* A point of the tree: after `offset` tokens of a node. */
typedef struct place {
    int32_t node, offset, at, slot;
} place;

/* Finds where the longest cached prefix of the sequence can be continued. */
weir_prefix_hit prefix_find(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t most,
    place *best
);
/* Shares the pages down to the place, deepest first. */
void prefix_share(weir_prefix *p, weir_kv_sequence *sequence, const place *end);
/* The same, marking them as used, with a copy of the state. */
void prefix_give(weir_prefix *p, weir_kv_sequence *sequence, const place *end);

/* Removes the name from the tree. */
void prefix_unname(weir_prefix *p, const char *text);
/* Marks the run and those above it: a sequence has some of its pages. */
void prefix_mark(weir_prefix *p, int32_t index);
/* Drops the worst leaf, so that a node is free; `parent` stays, even a salt that loses its last
 * sequence. Returns false if there is no other leaf. */
bool prefix_free_node(weir_prefix *p, int32_t parent);

/* Attaches an acquired state to the node, `offset` tokens into it. Of two after the same tokens the
 * older one stays: they are equal. */
void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state);
/* Removes the slot from its node. */
void prefix_detach(weir_prefix *p, int32_t index);
/* True if this many states, or half of all, can be acquired before taking one that was used at
 * `use` or later. */
bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, uint64_t use);

/* Adds the forest and some salts. */
static inline int64_t node_count(const weir_prefix_limits *limits) { return limits->n_nodes + 64; }

static inline void **pages_of(const weir_prefix *p, int32_t index)
{
    return p->pages + index * p->heads;
}

/* True if its pages are sinks. */
static inline bool is_sink(const weir_prefix *p, int32_t index)
{
    return p->nodes[index].depth < weir_kv_store_spec(p->store)->sinks.n_pages;
}

static inline bool is_cold(const weir_prefix *p, int32_t index)
{
    return p->heads > 0 && weir_kv_is_cold(p->store, pages_of(p, index)[0]);
}

static inline bool is_lost(const weir_prefix *p, int32_t index)
{
    return p->heads > 0 && weir_kv_is_unreadable(p->store, pages_of(p, index)[0]);
}

static inline void drop_pages(weir_prefix *p, int32_t index)
{
    for (int64_t h = 0; p->nodes[index].n_tokens > 0 && h < p->heads; h++)
        weir_kv_page_drop(p->store, pages_of(p, index)[h]);
}

static inline bool has_states(const weir_prefix *p) { return p->limits.snapshot_bytes > 0; }

static inline float *state_of(const weir_prefix *p, int32_t index)
{
    return p->states +
           (size_t)index * (p->state_bytes / (size_t)p->limits.n_snapshots / sizeof(float));
}

static inline int32_t slot_of(const weir_prefix *p, const float *state)
{
    return (int32_t)((size_t)(state - p->states) /
                     (p->state_bytes / (size_t)p->limits.n_snapshots / sizeof(float)));
}

/* True if only the tree, and cached sequences that can be dropped like it, hold its pages; with
 * pruned tables, which share single pages of a block: hold one page of it. Dropping it then frees
 * something. */
static inline bool is_idle(const weir_prefix *p, int32_t index)
{
    const int64_t heads = weir_kv_store_has_pruned(p->store) ? p->heads : 1;
    for (int64_t h = 0; p->heads > 0 && h < heads; h++)
        if (weir_kv_page_users(p->store, pages_of(p, index)[h]) == 1) return true;
    return p->heads == 0;
}

/* Adds the pages that dropping it would free. */
static inline void add_idle_pages(const weir_prefix *p, int32_t index, weir_kv_pages *n)
{
    const bool has_pruned = weir_kv_store_has_pruned(p->store);
    for (int64_t h = 0; h < p->heads; h++)
        if (!has_pruned || weir_kv_page_users(p->store, pages_of(p, index)[h]) == 1)
            weir_kv_pages_add(p->store, n, pages_of(p, index)[h]);
}

static inline int32_t common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static inline int32_t find_salt(const weir_prefix *p, const char *salt)
{
    for (int32_t i = p->nodes[FOREST].child; i != NONE; i = p->nodes[i].next)
        if (strcmp((const char *)p->nodes[i].tokens, salt) == 0) return i;
    return NONE;
}

/* The child with the longest common prefix. */
static inline int32_t nearest_child(
    const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n, int32_t *n_same
)
{
    int32_t best = NONE;
    *n_same = 0;
    for (int32_t i = p->nodes[parent].child; i != NONE; i = p->nodes[i].next) {
        const node *const child = &p->nodes[i];
        const int32_t same =
            common(child->tokens, tokens, child->n_tokens < n ? child->n_tokens : n);
        if (same > *n_same) {
            *n_same = same;
            best = i;
        }
    }
    return best;
}

static inline const char *salt_text(const char *salt)
{
    return salt != NULL ? salt : WEIR_PREFIX_NO_SALT;
}
