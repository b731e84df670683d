/* engine/kv/prefix/prefix.h - what was computed before and can be continued: texts of the past as a tree
 * of pages, and recurrent states on it.
 *
 * A node is a run of up to 64 tokens behind its parent's and the pages, one per (layer, KV head),
 * that hold its rows; a run of fewer than 64 has no children. The first level is the salt: texts
 * under different salts never meet. A snapshot is the recurrent memory of a sequence after some
 * tokens; a model with recurrent layers can be continued there and nowhere else. Where texts are
 * paged (store.h 5), only whole runs are kept, and a text is continued at their ends. The formats
 * of pages are no part of the salt: a process has one store.
 *
 * Invariants
 *   1 A node holds one reference to each of its pages; rows that it names are never written again
 *     (store.h 2 and 3).
 *   2 What no sequence uses, nor anything below it, can be dropped from the leaves up. A sequence
 *     whose own whole pages hold what a node holds gives them up for the node's when it is kept,
 *     lest it hold the node up by what is below it without using it.
 *   3 A snapshot slot is free, lent to a caller, or part of one node. One that is pinned stays part
 *     of its node; so does the node, whose pages the caller holds.
 *   4 A name stands for the first tokens of one text, and goes with the node that holds the last of
 *     them.
 * What is taken over has the bits that computing it again would have: rows and states do not depend
 * on how a text was cut into steps. Engine thread only; allocates nothing after opening. */
#pragma once
#include "engine/kv/pool/sequence.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_PREFIX_SALT = 255, WEIR_PREFIX_NAME = 96 /* bytes, at most */, WEIR_PREFIX_NAMES = 64 };

/* The salt of texts that have none: starts with a byte that no other may start with. */
#define WEIR_PREFIX_NO_SALT "\x01"

typedef struct weir_prefix weir_prefix;

typedef struct weir_prefix_limits {
    int64_t n_nodes; /* runs of 64 tokens that can be kept */
    int32_t n_snapshots; /* 0: a model with recurrent memory reuses nothing */
    size_t snapshot_bytes; /* recurrent memory of a sequence; 0: the model has none */
    int32_t n_pruned; /* texts that a policy watched (pruned_cache.h) ... */
    size_t pruned_bytes; /* ... and memory for all of them */
} weir_prefix_limits;

/* What opening takes from the ledger: the tree (page tables), the states and cut texts (snapshots);
 * SIZE_MAX when the sizes are absurd. */
size_t weir_prefix_tree_bytes(const weir_prefix_limits *limits, const weir_kv_spec *spec);
size_t weir_prefix_state_bytes(const weir_prefix_limits *limits);
WEIR_MUST_CHECK weir_status weir_prefix_open(
    weir_prefix **out, weir_kv_store *store, weir_ledger *ledger, const weir_prefix_limits *limits,
    weir_error *error
);
void weir_prefix_close(weir_prefix *prefix); /* before the store */

typedef struct weir_prefix_hit {
    int32_t n_rows; /* taken over */
    int32_t n_matched; /* tokens that equal the nearest text: the first that differs is n_matched */
    const char *reason; /* why not more, a static text */
} weir_prefix_hit;

/* Gives a sequence, whose tokens are set and of which nothing is computed, the rows and the state
 * of the longest kept text that begins it: at most `most` of its tokens. salt: NULL is a salt of
 * its own. */
weir_prefix_hit weir_prefix_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most
);

/* A state after the first `at` tokens of a sequence, in a lent slot. */
typedef struct weir_prefix_snapshot {
    int32_t at;
    float *state;
} weir_prefix_snapshot;

/* A slot for a state, the least recently used one if none is free; NULL when all are lent. */
float *weir_prefix_acquire_snapshot(weir_prefix *prefix);
void weir_prefix_release_snapshot(weir_prefix *prefix, float *state);

/* Keeps the computed rows of a sequence and the states on them, none of a cut table (store.h);
 * whole pages that others kept before become the sequence's. The slots become the tree's; what does
 * not fit is dropped. `whole_pages`: only pages that the sequence will not write to any more, for a
 * sequence that goes on; marks behind them stay with the caller, and their number is returned: they
 * are the last ones. */
int32_t weir_prefix_insert(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt,
    const weir_prefix_snapshot *marks, int32_t n_marks, bool whole_pages
);

/* ---- texts as they are kept, for what writes them to files ---- A salt that comes out of here may
 * go into weir_prefix_match, also the one that stands for none. */

/* The states on the first n_computed tokens of a sequence that took them, in order, the last `most`
 * of them. Each is pinned until it is given back with weir_prefix_unpin. */
int32_t weir_prefix_pin(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt,
    weir_prefix_snapshot *marks, int32_t most
);
void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_snapshot *marks, int32_t n_marks);
/* Names the kept beginning of a sequence's computed tokens; the name leaves the text that had it.
 * Of too many names the least recently used text loses its one. */
void weir_prefix_name(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name
);
/* The text of this name becomes the tokens of a clear sequence; false: there is none. */
bool weir_prefix_named(
    const weir_prefix *prefix, const char *name, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1]
);

bool weir_prefix_has_name(const weir_prefix *prefix, const char *name);

typedef struct weir_prefix_cursor { /* zero: before the most recently used text */
    uint64_t last_use;
    int32_t node;
} weir_prefix_cursor;
/* The next text that no other text continues, most recently used first; `name` is "" for one
 * without. false: there are no more. */
bool weir_prefix_next(
    const weir_prefix *prefix, weir_prefix_cursor *cursor, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1], char name[WEIR_PREFIX_NAME + 1]
);

/* ---- texts that will be dropped, for what saves them before ---------------------------------- */
/* Of the texts that nobody uses and that have `least` tokens or more which nobody has tried to save
 * and no other text has, the least recently used one, if it will go before so many pages are free,
 * or lose a state before so many are lent (or half of all): its tokens become those of a clear
 * sequence. Costs a pass over the tree. */
bool weir_prefix_next_victim(
    weir_prefix *prefix, weir_kv_pages wanted, int32_t n_states, int32_t least,
    weir_kv_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1]
);
/* So many states, or half of all, can be lent and no text loses one. */
bool weir_prefix_has_free_states(const weir_prefix *prefix, int32_t n_states);
/* The sequence shares the rows of its tokens up to where they can be continued, as
 * weir_prefix_match does, but that counts as no use of them and copies no state. Returns how
 * many. */
int32_t weir_prefix_share(weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt);
/* The kept beginning of these tokens is not endangered any more: n_saved of them are in a file, the
 * rest was tried or is of no use in one. */
void weir_prefix_mark_saved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, int32_t n_saved, const char *salt
);
/* The file that held these tokens is gone: what is kept of them may be saved again once it was used
 * again. */
void weir_prefix_mark_unsaved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);
/* Rows that weir_prefix_match would give; nothing changes. */
int32_t weir_prefix_match_length(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);

/* Drops the least recently used texts, cut ones too, until the store has so many free pages; false
 * when that cannot be reached. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted);
/* The page that the sequence writes to next becomes its own, if one end of a text is all that
 * shares it: that end is dropped. For a sequence that has all other pages, and would need one more
 * for a copy. */
bool weir_prefix_release_tail(weir_prefix *prefix, const weir_kv_sequence *sequence);
/* What only the tree and the sequence hold becomes the sequence's own, from the end of its text as
 * far as no other text continues it; false: nothing. For a sequence that is about to lose rows. */
bool weir_prefix_release_shared(weir_prefix *prefix, const weir_kv_sequence *sequence);
/* Pages that reclaiming could free. Costs as much as the sequences that came and went since the
 * last call, not as the tree, which it does while a table is cut. */
weir_kv_pages weir_prefix_reclaimable(weir_prefix *prefix);
/* With a disk. Up to `most` blocks in memory, past the sinks, that nobody else uses, the least
 * recently used first; and what is done when none can leave it: texts are dropped until n_blocks
 * fit in memory or none is left that would help. */
int32_t weir_prefix_lru_blocks(const weir_prefix *prefix, void *const **blocks, int32_t most);
void weir_prefix_reclaim_memory(weir_prefix *prefix, int64_t n_blocks);

typedef struct weir_prefix_stats {
    int64_t n_nodes, n_tokens, n_snapshots;
    int64_t n_pruned, n_pruned_tokens; /* texts that a policy watched */
    int64_t dropped_tokens; /* since opening */
    int64_t unsaved_tokens; /* of them, that were in no file */
} weir_prefix_stats;
weir_prefix_stats weir_prefix_stats_of(const weir_prefix *prefix);
/* For tests: what weir_prefix_reclaimable says, by a walk over the tree; the invariants, false with
 * a text. */
weir_kv_pages weir_prefix_idle_pages(const weir_prefix *prefix);
bool weir_prefix_is_sound(const weir_prefix *prefix, weir_error *error);

#ifdef __cplusplus
}
#endif
