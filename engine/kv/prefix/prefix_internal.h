/* engine/kv/prefix/prefix_internal.h - internals of the prefix tree, for the files of this folder.
 *
 * No operation visits more of the tree than the path of its sequence and what changed since the
 * last one. What a node is, is derived from its pages, its states and its children, in one place
 * (prefix_refresh, idle.c), and kept in the node, in counts and in orders:
 *   idle        it has a page that only the tree holds, or a page that cached sequences hold too,
 *               which are dropped like it. As long as no table is pruned, the pages of a block are
 *               shared alike, and its first page stands for all; pruned tables share single pages
 *   droppable   idle, and so is every node below it
 *   evictable   idle, without children
 *   demotable   idle, and its block may be demoted (residency.h)
 * References begin and end in the store, which lists the owners of pages that changed
 * (weir_kv_watch). prefix_settle refreshes the listed nodes. What the tree itself changes it
 * refreshes at once. So after prefix_settle:
 *   1 is_idle, is_cold, idle pages, is_droppable and n_busy of every node are as derived
 *   2 droppable_pages and n_idle_cold are the sums over all nodes
 *   3 the orders have the evictable and the demotable nodes, and no other
 * A page belongs to one node at most: its owner in the store. */
#pragma once
#include <assert.h>
#include <string.h>

#include "engine/base/worker.h"
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"

enum { RUN = WEIR_PAGE_TOKENS, NONE = -1, FOREST = 0 };

/* Sets of nodes, each with its first one at hand (order.c): evictable sinks, evictable blocks in
 * memory and in the lower tier, by is_dead, then last_use; demotable blocks, by last_use. */
typedef enum order {
    ORDER_SINKS,
    ORDER_MEMORY,
    ORDER_COLD,
    ORDER_BLOCKS,
    ORDERS,
    ORDER_NONE = ORDERS
} order;

/* A node of the binary tree of some siblings (children.c): siblings at side 0 have a zero in this
 * bit of this token. */
typedef struct branch {
    int32_t side[2];
    int16_t word; /* NONE: not in use */
    int8_t bit;
} branch;

/* A run of tokens. Node FOREST is the parent of the salts; a salt's node has the salt, filled up
 * with zeros, in place of tokens and no pages. */
typedef struct node {
    int32_t tokens[RUN];
    int32_t n_tokens; /* 0: a salt */
    int32_t depth; /* index of its pages in a sequence; -1: a salt */
    int32_t parent; /* NONE: not in use */
    int32_t children; /* their binary tree: 0: none, i: the node i, -i: the branch in node i */
    int32_t next; /* not in use: the next such */
    /* First entry of its own; first entry of its children's. */
    int32_t snapshot, below;
    int32_t n_busy; /* children that are not droppable */
    int32_t leaf_place, block_place; /* in its order */
    int32_t older, newer; /* runs used last before and after it; NONE at the ends */
    /* Its rows of layers with a window (pool/windows.h): in memory, and on disk; NONE: not there.
     * The next ones in their list. */
    int32_t window, window_copy, window_older, window_newer;
    branch stored; /* one of the parent's children's */
    uint8_t leaf_order; /* of ORDER_SINKS .. ORDER_COLD, or ORDER_NONE */
    uint8_t window_list;
    bool is_window_end; /* a row is likely to be next that reads its window block */
    bool is_demotable; /* in ORDER_BLOCKS */
    bool is_idle, is_cold, is_droppable;
    bool has_lost_file : 1; /* a file that held tokens of this run is gone */
    bool is_deleted : 1; /* its client has deleted the session: it is not saved */
    /* Of its tokens: in a file; in a file or never to be saved. */
    int32_t n_saved, n_tried;
    int32_t salt; /* the node of its salt */
    uint64_t last_use, window_use;
} node;
static_assert(sizeof(int32_t) * RUN > WEIR_PREFIX_SALT, "a salt fits a node");

typedef enum entry_state {
    ENTRY_FREE,
    ENTRY_ACQUIRED,
    ENTRY_ATTACHED,
    ENTRY_DETACHED /* removed from its node: free once it is not pinned */
} entry_state;
/* Orders of kept states: those in memory by rank, and those on disk or on the way there. */
enum { ORDER_COLD_STATES = WEIR_STATE_RANKS, STATE_ORDERS };

/* A state. There are entries for all in memory and on disk. */
typedef struct snapshot_entry {
    entry_state state;
    weir_state_rank rank;
    /* offset: of the node's tokens, 1 .. 64. */
    int32_t node, offset;
    int32_t next; /* of the node's; or the next free entry */
    int32_t next_below, before_below; /* of the parent's `below` */
    /* The nearest state before it on its path, as found when it was attached or used last; NONE:
     * none. The first of those that have this state there, and the others that have the same. */
    int32_t before, first_after, next_after, previous_after;
    int32_t place; /* in its order */
    int32_t memory; /* NONE: on disk only, or free */
    int32_t block; /* on disk; NONE: not there. With memory, it moves */
    int32_t pins; /* by callers, and by its move */
    bool was_read; /* from disk */
    bool demotes; /* to disk, though it is no end of a turn, until its turn is continued */
    int32_t end; /* the last state of its turn, which may be another turn's by now */
    int64_t turn; /* 0: none */
    int64_t worth; /* state_order.c */
    uint64_t last_use;
} snapshot_entry;

/* Window blocks of nodes, each list in the order of use: not of an end; of an end, and not on disk;
 * in memory and on disk; on disk only; being written or read. */
typedef enum window_list {
    WINDOW_OTHER,
    WINDOW_UNWRITTEN,
    WINDOW_WRITTEN,
    WINDOW_COLD,
    WINDOW_MOVING,
    WINDOW_LISTS,
    WINDOW_NONE = WINDOW_LISTS /* the node has none */
} window_list;

/* States that may be written or read at once, and window blocks. */
enum { MOST_MOVES = 8 };

/* A state or a window block that is being written or read (moves.c). */
typedef struct prefix_move {
    /* What moves: of a state its entry and number of memory, of a window block its node, NONE if
     * that has dropped it, and its number in the pool. */
    int32_t item, memory;
    int32_t block; /* on disk */
    int64_t number; /* in order of their begin */
    bool is_begun; /* the engine thread's: it is in use */
    bool is_read;
    bool is_here; /* the engine thread's: a state was read, and is in its memory for now */
    bool is_used; /* the engine thread's: by a sequence, or wanted for a file */
    bool is_queued, is_done; /* (lock) */
    weir_status status; /* once it is done */
    weir_error why;
} prefix_move;

typedef struct prefix_moves {
    prefix_move all[MOST_MOVES]; /* [most] */
    int32_t most; /* 0: none go to disk */
    /* In use; of them, reads whose state is not here yet, and writes, which leave one for reads. */
    int32_t n_begun, n_reading, n_writing;
    bool holds_read; /* weir_prefix_hold_read */
} prefix_moves;

/* The thread that writes and reads. */
typedef struct prefix_mover {
    int64_t n_all; /* moves since opening */
    int32_t n_undone; /* (lock) */
    weir_worker worker;
} prefix_mover;

typedef struct pruned_entry pruned_entry; /* pruned_cache_internal.h */

typedef struct name {
    char text[WEIR_PREFIX_NAME + 1]; /* "": free */
    int32_t node, offset;
} name;

/* A search for a sequence that will be dropped, which goes on in the next call (sequences.c). */
typedef struct victim_search {
    bool is_begun, has_found;
    int32_t at; /* of all runs: the next one; NONE: at the end */
    uint64_t end; /* the last use at its beginning */
    uint64_t use; /* of the runs that are counted in same_use, not yet in before */
    weir_kv_pages before, same_use; /* idle pages of the runs that it went by */
    int64_t n_windows; /* window blocks of these that no sequence holds */
    int64_t debt; /* visits beyond what its calls may take */
} victim_search;

struct weir_prefix {
    weir_kv_store *store;
    weir_ledger *ledger;
    weir_prefix_limits limits;
    node *nodes; /* [n_nodes] */
    void **pages; /* [n_nodes, heads] */
    /* [n_nodes, classes] pages of each size class that only the tree holds, as at the last
     * refresh; the first one if it is a sink. */
    int32_t *idle_pages;
    int32_t *orders; /* [ORDERS, n_nodes] heaps */
    int32_t order_size[ORDERS];
    int32_t *changed; /* [n_nodes] the store's (weir_kv_watch) */
    snapshot_entry *entries; /* [n_entries] */
    int32_t n_entries; /* n_snapshots + n_cold */
    /* Of n_memory: n_snapshots, and one for each move. */
    int32_t *owners; /* [n_memory] the entry that has this memory; or the next free one */
    float *states; /* [n_memory, snapshot_bytes] */
    size_t node_bytes, page_bytes, idle_bytes, order_bytes, changed_bytes, entry_bytes, state_bytes,
        all_pruned_bytes;
    /* [limits.n_pruned], followed by the memory of their parts. */
    pruned_entry *pruned;
    char *pruned_memory;
    int64_t heads;
    int32_t classes; /* size classes of a block past the sinks */
    weir_kv_pages block, sink_block; /* pages of each */
    weir_kv_pages droppable_pages; /* idle pages of droppable nodes */
    int64_t n_idle_cold;
    /* [STATE_ORDERS, n_entries] heaps of attached entries; their sizes; the worth of the last one
     * that went. */
    int32_t *state_orders;
    int32_t n_ordered[STATE_ORDERS];
    int64_t floors[STATE_ORDERS];
    weir_lower_tier *tier, *window_tier; /* states and window blocks on disk; NULL: none */
    prefix_moves moves, window_moves; /* moves: of states */
    prefix_mover mover;
    char *transfer_memory, *transfer; /* the thread's: for what is on its way, aligned */
    size_t transfer_bytes;
    int32_t oldest, newest; /* of all runs, by last_use */
    weir_kv_windows *windows; /* the store's; may be NULL */
    struct {
        int32_t oldest, newest;
    } window_lists[WINDOW_LISTS];
    uint64_t window_clock; /* of uses */
    int64_t window_written_ns; /* when a write ended last, or the first one began */
    int32_t walk; /* of them, where weir_prefix_next ended; NONE: at the end */
    victim_search search;
    int32_t free_entry, free_memory, n_free_memory;
    bool is_paged; /* only whole runs (store.h 5) */
    bool is_open;
    /* Of the node that is being created: not dropped with its last sequence. */
    int32_t free_node, parent_in_use;
    uint64_t clock;
    weir_prefix_stats stats;
    int64_t *visits; /* stats.visits, also for callers that only read */
    name names[WEIR_PREFIX_NAMES];
};

/* A point of the tree: after `offset` tokens of a node. */
typedef struct place {
    int32_t node, offset, at, entry;
} place;

/* ---- prefix.c -------------------------------------------------------------------------------- */
/* Releases the pages of a node, if it is one with pages. */
void prefix_drop_pages(weir_prefix *p, int32_t index);
/* The last node whose block the sequence has, and all above it, within its first `end` tokens: from
 * there on a walk need not begin at the salt. NONE: there is none. */
int32_t prefix_own_node(
    const weir_prefix *p, const weir_kv_sequence *sequence, int32_t salt, int64_t end
);
/* Makes a node available that is not in the tree any more. */
void prefix_free(weir_prefix *p, int32_t index);

/* ---- match.c --------------------------------------------------------------------------------- */
/* Finds where the longest cached prefix of the sequence can be continued. */
weir_prefix_hit prefix_find(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t most,
    place *best
);
/* Shares the pages down to the place, deepest first. False: there is no memory for the table. */
bool prefix_share(weir_prefix *p, weir_kv_sequence *sequence, const place *end);

/* ---- sequences.c ----------------------------------------------------------------------------- */
/* Removes the name from the tree. */
void prefix_unname(weir_prefix *p, const char *text);

/* ---- children.c ------------------------------------------------------------------------------ */
/* The child with the longest common prefix, of several any; NONE if that is empty. Costs at most
 * the bits in which siblings differ, however many there are. */
int32_t prefix_nearest_child(
    const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n, int32_t *n_same
);
int32_t prefix_find_salt(const weir_prefix *p, const char *salt);
/* Fills `words` [RUN] with a salt of at most WEIR_PREFIX_SALT bytes. */
void prefix_salt_words(int32_t *words, const char *salt);
/* Add a node, whose tokens are set, to its parent's children, and remove it. Of two siblings none
 * is the beginning of the other. */
void prefix_add_child(weir_prefix *p, int32_t index);
void prefix_remove_child(weir_prefix *p, int32_t index);

/* ---- order.c --------------------------------------------------------------------------------- */
/* The first node of an order, or NONE. */
int32_t prefix_first(const weir_prefix *p, order which);
/* True if evictable leaf `a` goes before `b`. */
bool prefix_goes_before(const weir_prefix *p, int32_t a, int32_t b);
/* Moves a leaf to an order, or out of all; restores its place if it is there. */
void prefix_order_leaf(weir_prefix *p, int32_t index, order which);
void prefix_order_block(weir_prefix *p, int32_t index, bool is_demotable);
/* Restores the place of a leaf whose states changed. */
void prefix_reorder(weir_prefix *p, int32_t index);
/* Puts a new run at the end of all runs, takes one out, and moves one that is used to the end. */
void prefix_list_run(weir_prefix *p, int32_t index);
void prefix_unlist_run(weir_prefix *p, int32_t index);
void prefix_use_run(weir_prefix *p, int32_t index);

/* ---- idle.c ---------------------------------------------------------------------------------- */
/* Derives what a node is, after its pages, states or children changed. */
void prefix_refresh(weir_prefix *p, int32_t index);
/* Refreshes the nodes whose pages changed in the store. */
void prefix_settle(weir_prefix *p);
/* Count a new node as not droppable, and remove one from the counts. */
void prefix_count_new(weir_prefix *p, int32_t index);
void prefix_count_gone(weir_prefix *p, int32_t index);

/* ---- reclaim.c ------------------------------------------------------------------------------- */
/* Drops a node without children, and its salt with the last of them. */
void prefix_drop_leaf(weir_prefix *p, int32_t index);
/* Drops the worst leaf, so that a node is free; `parent` stays, even a salt that loses its last
 * sequence. Returns false if there is no other leaf. */
bool prefix_free_node(weir_prefix *p, int32_t parent);

/* ---- states.c -------------------------------------------------------------------------------- */
void prefix_open_entries(weir_prefix *p);
/* Attaches an acquired state to the node, `offset` tokens into it. Of two after the same tokens the
 * older one stays: they are equal. */
void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state);
/* Removes the entry from its node. */
void prefix_detach(weir_prefix *p, int32_t index);
/* The same, for want of room in memory or on disk. */
void prefix_drop_state(weir_prefix *p, int32_t index);
/* Of an entry that is not pinned. */
void prefix_free_entry(weir_prefix *p, int32_t index);
/* States that memory has room for. Those that move do not count: they have theirs. */
int32_t prefix_free_states(const weir_prefix *p);
/* Makes room for a state of this rank, if need be for that of another one, which is then written to
 * disk or dropped. keeps_ends: drops no end of a turn that could be written later. False: there is
 * no room. */
bool prefix_reclaim_state(weir_prefix *p, weir_state_rank rank, bool keeps_ends);
int32_t prefix_pop_memory(weir_prefix *p); /* there is room, or a move may begin */
void prefix_give_memory(weir_prefix *p, int32_t memory);
/* A state that has this block now goes to disk; it leaves its memory; it is in memory again, and
 * leaves the disk. */
void prefix_move_state(weir_prefix *p, int32_t index, int32_t block);
void prefix_leave_memory(weir_prefix *p, int32_t index);
void prefix_return_state(weir_prefix *p, int32_t index);
/* The state was used. */
void prefix_use_state(weir_prefix *p, int32_t index);
/* The answer after this state, of the same turn, is not continued. */
void prefix_leave_answer(weir_prefix *p, int32_t index);
/* True if this many ends of turns, or half of all states, can be added before this state goes;
 * NONE: before any end of a turn does. */
bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, int32_t entry);

/* ---- state_order.c --------------------------------------------------------------------------- */
/* Puts an entry that is on a node in the order of its rank, as used now, and takes it out. */
void prefix_order_state(weir_prefix *p, int32_t index);
void prefix_unorder_state(weir_prefix *p, int32_t index);
/* Takes it out before its rank or memory changes and it is put in again. */
void prefix_leave_order(weir_prefix *p, int32_t index);
void prefix_rank_state(weir_prefix *p, int32_t index, weir_state_rank rank);
/* The state that goes first of those that a new one of this rank may take the memory of; NONE:
 * there is none. */
int32_t prefix_next_state(const weir_prefix *p, weir_state_rank rank);
/* The first one of an order that is not pinned, or NONE. */
int32_t prefix_first_state(const weir_prefix *p, int which);
/* True if `a` goes before `b` of the same order. */
bool prefix_state_goes_before(const weir_prefix *p, int32_t a, int32_t b);
/* Entries of ends of turns that are not pinned and are dropped before this one, at most `most`. */
int32_t prefix_ends_before(const weir_prefix *p, int32_t entry, int32_t most);

/* ---- small ones ------------------------------------------------------------------------------ */
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

static inline bool is_unreadable(const weir_prefix *p, int32_t index)
{
    return p->heads > 0 && weir_kv_is_unreadable(p->store, pages_of(p, index)[0]);
}

static inline bool has_states(const weir_prefix *p) { return p->limits.snapshot_bytes > 0; }

/* True if nothing can continue this leaf. */
static inline bool is_dead(const weir_prefix *p, int32_t index)
{
    return has_states(p) && p->nodes[index].snapshot == NONE;
}

static inline int32_t n_memory(const weir_prefix *p)
{
    return p->limits.n_snapshots + weir_prefix_extra_states(&p->limits);
}

static inline size_t state_floats(const weir_prefix *p)
{
    return p->state_bytes / (size_t)n_memory(p) / sizeof(float);
}

static inline float *state_at(const weir_prefix *p, int32_t memory)
{
    return p->states + (size_t)memory * state_floats(p);
}

/* Of an entry that has memory. */
static inline float *state_of(const weir_prefix *p, int32_t index)
{
    return state_at(p, p->entries[index].memory);
}

static inline int32_t entry_of(const weir_prefix *p, const float *state)
{
    return p->owners[(size_t)(state - p->states) / state_floats(p)];
}

static inline int state_order_of(const snapshot_entry *s)
{
    return s->block != NONE ? ORDER_COLD_STATES : (int)s->rank;
}

/* Idle, from its pages. */
static inline bool has_idle_page(const weir_prefix *p, int32_t index)
{
    const int64_t heads = weir_kv_store_has_pruned(p->store) ? p->heads : 1;
    for (int64_t h = 0; p->heads > 0 && h < heads; h++)
        if (weir_kv_page_users(p->store, pages_of(p, index)[h]) == 1) return true;
    return p->heads == 0;
}

/* Tokens before the state. */
static inline int32_t tokens_of_state(const weir_prefix *p, int32_t index)
{
    return p->nodes[p->entries[index].node].depth * RUN + p->entries[index].offset;
}

/* States that ends of turns leave to others; the same for ends that a later turn continues. */
static inline int32_t reserved_states(const weir_prefix *p)
{
    enum { SHARE = 32 };
    const int32_t n = p->limits.n_snapshots / SHARE;
    return n > 1 ? n : 1;
}

/* The most ends of turns that are kept in memory. */
static inline int32_t most_ends(const weir_prefix *p)
{
    return p->limits.n_snapshots - reserved_states(p);
}

static inline int32_t common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

static inline const char *salt_text(const char *salt)
{
    return salt != NULL ? salt : WEIR_PREFIX_NO_SALT;
}
