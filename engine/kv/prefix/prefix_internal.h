/* engine/kv/prefix/prefix_internal.h - the inside of the prefix tree, for the files prefix*.c and
 * pruned_cache.c. */
#pragma once
#include <string.h>

#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

enum { RUN = WEIR_PAGE_TOKENS, NONE = -1, FOREST = 0 };

/* A run of tokens. Node FOREST holds the salts; a salt's node has its text in place of tokens and
 * no pages. */
typedef struct node {
    int32_t tokens[RUN];
    int32_t n_tokens; /* 0: a salt */
    int32_t depth; /* number of its pages in a text; -1: a salt */
    int32_t parent, child, next, snapshot; /* first child, next sibling or free node, first slot */
    int32_t n_used; /* children that are marked as used */
    int32_t n_saved, n_tried; /* of its tokens, in a file; in one or in none for good */
    bool has_lost_file; /* it held tokens of this run */
    int32_t tip; /* its place in `tips`, NONE: not there */
    bool is_used; /* marked: a sequence used its pages when that was looked at last */
    uint64_t last_use;
} node;
_Static_assert(sizeof(int32_t) * RUN > WEIR_PREFIX_SALT, "a salt fits a node");

typedef enum slot_state {
    SLOT_FREE,
    SLOT_LENT,
    SLOT_KEPT,
    SLOT_LEFT /* by its node: free when nobody pins it */
} slot_state;
typedef struct slot {
    slot_state state;
    int32_t node, next, offset; /* of the node's tokens, 1 .. 64 */
    int32_t pins;
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
    pruned_entry *pruned; /* [limits.n_pruned] and the memory of their parts behind them */
    char *pruned_memory;
    int64_t heads;
    /* [n_tips] nodes that are marked and have no marked child: where sequences leave the tree */
    int32_t *tips;
    int32_t n_tips;
    int64_t n_used; /* marked nodes */
    int64_t n_sinks, n_used_sinks; /* of the nodes with pages, and of the marked ones */
    bool is_paged; /* whole runs only (store.h 5) */
    int32_t free_node,
        parent_in_use; /* of the node that is being made: not dropped with its last text */
    uint64_t clock;
    weir_prefix_stats stats;
    name names[WEIR_PREFIX_NAMES];
};

typedef struct place { /* a point of the tree: after `offset` tokens of a node */
    int32_t node, offset, at, slot;
} place;

/* Where the longest kept text that begins the sequence can be continued. */
weir_prefix_hit prefix_find(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t most,
    place *best
);
/* Shares the pages down to the place, deepest first. */
void prefix_share(weir_prefix *p, weir_kv_sequence *sequence, const place *end);

/* Nothing in the tree has this name from now on. */
void prefix_unname(weir_prefix *p, const char *text);
/* The run is used, as those above it must be: a sequence has some of its pages. */
void prefix_mark(weir_prefix *p, int32_t index);
/* The worst leaf is dropped, so a node is free; `parent` stays, also a salt that loses its last
 * text by that. false: there is no other leaf. */
bool prefix_free_node(weir_prefix *p, int32_t parent);

/* A lent state is now on the node, `offset` tokens into it. Of two after the same tokens the older
 * one stays: they are equal. */
void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state);
/* The slot leaves its node. */
void prefix_detach(weir_prefix *p, int32_t index);
/* So many, or half of all, can be lent before one that was used at `use` or since. */
bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, uint64_t use);

/* The forest and some salts beside what was asked for. */
static inline int64_t node_count(const weir_prefix_limits *limits) { return limits->n_nodes + 64; }

static inline void **pages_of(const weir_prefix *p, int32_t index)
{
    return p->pages + index * p->heads;
}

/* Its pages are sinks. */
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

/* Nobody but the tree, and texts that go as it does, uses its pages; beside cut tables, which use
 * some pages of a block and not others: one page of it. What could be dropped then frees
 * something. */
static inline bool is_idle(const weir_prefix *p, int32_t index)
{
    const int64_t heads = weir_kv_store_has_pruned(p->store) ? p->heads : 1;
    for (int64_t h = 0; p->heads > 0 && h < heads; h++)
        if (weir_kv_page_users(p->store, pages_of(p, index)[h]) == 1) return true;
    return p->heads == 0;
}

/* Adds what dropping it would free. */
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

/* The child that shares the most first tokens. */
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
