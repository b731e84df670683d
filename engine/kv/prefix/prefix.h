/* engine/kv/prefix/prefix.h - the prefix cache: a radix tree of the pages of past sequences, with
 * recurrent states.
 *
 * A node is a run of up to 64 tokens after its parent's, with the pages, one per (layer, KV head),
 * that hold its rows; a run of fewer than 64 has no children. The first level is the salt:
 * sequences under different salts share nothing. A snapshot is the recurrent state of a sequence
 * after some tokens; a model with recurrent layers can be continued there only. If sequences are
 * paged (store.h 5), only whole runs are cached, and a sequence is continued at their ends. The
 * formats of pages are not part of the salt: a process has one store.
 *
 * Invariants
 *   1 A node holds one reference to each of its pages; rows that it names are never written again
 *     (store.h 2 and 3).
 *   2 Nodes that no sequence uses, nor any node below them, can be dropped from the leaves up. When
 *     a sequence is inserted, its whole pages are replaced by those of equal nodes, so that an
 *     unused subtree can be freed.
 *   3 A snapshot entry is free, acquired by a caller, or part of one node. A pinned one stays part
 *     of its node; so does the node, whose pages the caller holds.
 *   4 A page belongs to one node.
 *   5 A name stands for the first tokens of one sequence, and is removed with the node that holds
 *     the last of them.
 * Reused rows and states have the bits that computing them again would give: they do not depend on
 * how a sequence was cut into steps. Engine thread only; allocates nothing after opening. */
#pragma once
#include "engine/kv/pool/sequence.h"
#include "engine/kv/tiers/lower_tier.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_PREFIX_SALT = 255, WEIR_PREFIX_NAME = 96 /* bytes, at most */, WEIR_PREFIX_NAMES = 64 };

/* The salt of sequences without one: starts with a byte that no other may start with. */
#define WEIR_PREFIX_NO_SALT "\x01"

typedef struct weir_prefix weir_prefix;

typedef struct weir_prefix_limits {
    int64_t n_nodes; /* runs of 64 tokens that can be cached */
    /* States in memory; 0: sequences of a model with recurrent state are not reused. */
    int32_t n_snapshots;
    /* Recurrent state of a sequence; 0: the model has none. */
    size_t snapshot_bytes;
    int32_t n_pruned; /* pruned sequences (pruned_cache.h) */
    size_t pruned_bytes; /* memory for all of them */
    int32_t n_cold; /* states on disk, at most; 0 if the store has no blocks there */
    const char *disk_folder; /* borrowed while the cache is opened */
    int32_t n_cold_windows; /* window blocks on disk, at most */
    size_t window_bytes; /* of a window block, if there are some */
} weir_prefix_limits;

/* Bytes that opening charges to the ledger: the tree and the metadata of states on disk
 * (page_tables), the states and pruned caches (snapshots); SIZE_MAX on overflow. */
size_t weir_prefix_tree_bytes(const weir_prefix_limits *limits, const weir_kv_spec *spec);
size_t weir_prefix_state_bytes(const weir_prefix_limits *limits);
WEIR_MUST_CHECK weir_status weir_prefix_open(
    weir_prefix **out, weir_kv_store *store, weir_ledger *ledger, const weir_prefix_limits *limits,
    weir_error *error
);
void weir_prefix_close(weir_prefix *prefix); /* before the store */

typedef struct weir_prefix_hit {
    int32_t n_rows; /* rows reused */
    /* Tokens equal to those of the longest matching sequence. */
    int32_t n_matched;
    const char *reason; /* why not more; static text */
    /* Nothing yet: something is being read from disk, or written to it. */
    bool waits;
    bool is_left; /* the cached sequence goes on otherwise after n_matched */
    /* So it does, and the sequence continues a turn before its answer. */
    bool is_rewritten;
} weir_prefix_hit;

/* Finds the longest cached prefix of a sequence whose tokens are set and of which nothing is
 * computed, and gives it the rows and the state: at most `most` of its tokens. salt NULL is a salt
 * of its own. Gives nothing if there is no memory for the sequence's table (store.h), or as long as
 * the state or the window is being read from disk, or windows of others are being written that
 * would be dropped for it (`waits`): to be called again in each step, as what was read and is not
 * taken leaves memory. */
weir_prefix_hit weir_prefix_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most
);

/* The same for a sequence that has computed rows: replaces them if the longest cached prefix is at
 * least `least` rows longer and its state and window are in memory. n_rows: rows that it has
 * then. */
weir_prefix_hit weir_prefix_extend(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most, int32_t least
);
/* False if the model has recurrent state and no states are cached. */
bool weir_prefix_can_match(const weir_prefix *prefix);
/* Rows, in whole pages, of the longest cached prefix of these tokens that sequences hold now: a
 * sequence that shares them needs no memory for them. */
int32_t weir_prefix_shared_rows(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);

/* A state after the first `at` tokens of a sequence, in an acquired snapshot entry. */
typedef struct weir_prefix_snapshot {
    int32_t at;
    float *state;
} weir_prefix_snapshot;

/* What a state is kept for. If there is no memory for another, those of lower ranks go first, and
 * of one rank those that cost least to compute again and were not used for long
 * (state_order.c). */
typedef enum weir_state_rank {
    WEIR_STATE_SPARE, /* in case a later prompt branches off there; a checkpoint once it is used */
    WEIR_STATE_CHECKPOINT, /* within a turn; the end of a past one once it is used */
    WEIR_STATE_PAST, /* a later turn continues it */
    WEIR_STATE_LAST, /* of the last turn of a conversation */
    WEIR_STATE_RANKS
} weir_state_rank;

/* Acquires a snapshot entry for a state of this rank. A spare state takes only the memory of spare
 * ones, a checkpoint not that of ends of turns, as long as these leave some. turn: a number for the
 * states that one turn has where its answer begins and later; 0: it is before. Returns NULL if
 * there is no memory that it may take. */
float *weir_prefix_acquire_snapshot(weir_prefix *prefix, weir_state_rank rank, int64_t turn);
void weir_prefix_release_snapshot(weir_prefix *prefix, float *state);
/* The acquired state goes to disk like the end of a turn, if there is room, until its turn is
 * continued: for the same prompt again. */
void weir_prefix_demote_snapshot(weir_prefix *prefix, float *state);

/* Inserts the computed rows of a sequence and its states, unless it is pruned (store.h), as far as
 * they are not cached under another salt; its whole pages are replaced by equal cached ones. Takes
 * over the entries; drops what does not fit.
 * `whole_pages`: inserts only pages that the sequence will not write to any more, for a sequence
 * that continues; later snapshots stay with the caller. Returns their number; they are the last
 * ones. */
int32_t weir_prefix_insert(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt,
    const weir_prefix_snapshot *marks, int32_t n_marks, bool whole_pages
);

/* A later prompt may continue the computed tokens of a cached sequence after `at` of them, so what
 * layers with a window read there may go to disk. */
void weir_prefix_mark_window(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, int32_t at
);

/* ---- states and window blocks on disk (state_tier.c, window_tier.c) ----
 * Ends of turns whose memory is taken are written to disk, and read when they are needed, by a
 * thread (moves.c). So are states before the last token of a prompt, and the rows that layers with
 * a window read after the end of a cached sequence. */
/* States that memory has room for besides n_snapshots, while they are written or read. */
int32_t weir_prefix_extra_states(const weir_prefix_limits *limits);
/* Window blocks that the pool has for those that are written or read. */
int32_t weir_prefix_extra_windows(const weir_kv_windows_spec *spec);
/* Between steps: begins to write window blocks of ends, if few others could be dropped. NULL-safe.
 */
void weir_prefix_demote_windows(weir_prefix *prefix);
/* States and window blocks that are being written or read, or were and whose moves have not been
 * ended. NULL-safe. */
int32_t weir_prefix_moves(const weir_prefix *prefix);
/* Between steps: ends what is written or read. Returns true if there was anything. */
bool weir_prefix_end_moves(weir_prefix *prefix);
/* Between steps: states that were read stay until it is called with false, also by who waits for
 * their memory (weir_reclaim). For sequences that wait for them and take them later. NULL-safe. */
void weir_prefix_hold_read(weir_prefix *prefix, bool holds);
/* True if weir_prefix_end_moves will end one, now or when the thread has done it. NULL-safe. */
bool weir_prefix_will_end_moves(weir_prefix *prefix);
/* Waits until the thread has nothing to do. Any thread. */
void weir_prefix_wait_for_moves(weir_prefix *prefix);
/* Sets what the thread calls each time that a move can be ended (weir_worker_listen). NULL-safe. */
void weir_prefix_listen_to_moves(weir_prefix *prefix, void (*listener)(void *user), void *user);
/* Drops states and window blocks from disk until n_blocks more KV blocks have room there.
 * NULL-safe. */
void weir_prefix_leave_disk(weir_prefix *prefix, int64_t n_blocks);
/* For tests. NULL: there is none. */
weir_lower_tier *weir_prefix_lower_tier(const weir_prefix *prefix); /* of states */
weir_lower_tier *weir_prefix_window_tier(const weir_prefix *prefix);

/* Makes the last state on the computed tokens of a cached sequence the end of its turn. */
void weir_prefix_end_turn(weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt);

/* ---- cached sequences, for what writes them to files ---- A salt that comes out of here may
 * go into weir_prefix_match, also the one that stands for none. */

enum { WEIR_PREFIX_WAITS = -1 };
/* Gets the states on the first n_computed tokens of a sequence that shares them, in order, the last
 * `most` of them. Each is pinned until weir_prefix_unpin. Returns WEIR_PREFIX_WAITS if the last one
 * is being read from disk: to be called again when moves have been ended. */
int32_t weir_prefix_pin(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt,
    weir_prefix_snapshot *marks, int32_t most
);
void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_snapshot *marks, int32_t n_marks);
/* Names the cached prefix of a sequence's computed tokens; the sequence that had the name loses it.
 * If there are too many names, the least recently used sequence loses its name. */
void weir_prefix_name(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name
);
/* Copies the tokens of the sequence with this name to a clear sequence. Returns false if there is
 * none. */
bool weir_prefix_named(
    const weir_prefix *prefix, const char *name, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1]
);

bool weir_prefix_has_name(const weir_prefix *prefix, const char *name);

typedef struct weir_prefix_cursor { /* zero: before the most recently used sequence */
    uint64_t last_use;
} weir_prefix_cursor;
/* The next sequence that no other one extends, most recently used first; `name` is "" if it has
 * none. Returns false at the end. Costs what it copies, and a walk over the runs used since if
 * several cursors move in turn. */
bool weir_prefix_next(
    weir_prefix *prefix, weir_prefix_cursor *cursor, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1], char name[WEIR_PREFIX_NAME + 1]
);

/* ---- sequences that will be dropped, for what saves them before ------------------------------ */
typedef struct weir_prefix_wanted {
    weir_kv_pages pages;
    int32_t n_states; /* ends of turns */
    int64_t n_windows; /* window blocks */
} weir_prefix_wanted;
typedef enum weir_prefix_victim {
    WEIR_VICTIM_NONE,
    WEIR_VICTIM_FOUND,
    WEIR_VICTIM_LATER
} weir_prefix_victim;
/* Finds the LRU unsaved, unused sequence of at least `least` tokens that reclaim would drop before
 * the wanted pages are free, or that would lose the end of a turn before the wanted turns end (or
 * half of all states), or its window before the wanted window blocks are taken. Counts only tokens
 * not shared with other sequences and not tried before. Copies its tokens to a clear sequence. A
 * call looks at some hundred runs: it goes on where the last one ended, LATER if it is not at an
 * end then, and NONE if there was no such sequence since the search began. To be called between
 * steps as long as it is not NONE. */
weir_prefix_victim weir_prefix_next_victim(
    weir_prefix *prefix, const weir_prefix_wanted *wanted, int32_t least,
    weir_kv_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1]
);
/* True if n_blocks window blocks can be taken without dropping one, those included that could go
 * to disk. */
bool weir_prefix_has_free_windows(const weir_prefix *prefix, int64_t n_blocks);
/* True if this many turns, or half of all states, can end without taking the end of another. */
bool weir_prefix_has_free_states(const weir_prefix *prefix, int32_t n_states);
/* Shares the rows of the sequence's tokens up to where they can be continued, as weir_prefix_match
 * does, but does not count as a use and copies no state. Returns how many; 0 also if there is no
 * memory for the table; WEIR_PREFIX_WAITS if its window is being read from disk: to be called again
 * when moves have been ended. */
int32_t weir_prefix_share(weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt);
/* Marks the cached prefix of these tokens: n_saved of them are in a file, the others were tried or
 * cannot be saved. weir_prefix_next_victim skips them. */
void weir_prefix_mark_saved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, int32_t n_saved, const char *salt
);
/* The file that held these tokens is gone: they may be saved again after they were used again. */
void weir_prefix_mark_unsaved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);
/* Their client has deleted these tokens: what no other sequence shares of them, and sequences with
 * a policy that they continue, are not saved before they are used again. */
void weir_prefix_forget(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);
/* The same for the sequence of this name, which has none any more. Returns false if there is none,
 * also none with a policy. */
bool weir_prefix_forget_name(weir_prefix *prefix, const char *name);
/* The rows that weir_prefix_match would give; changes nothing. */
int32_t weir_prefix_match_length(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);

/* Drops the least recently used sequences, pruned ones included, until the store has this many free
 * pages. Returns false if that is not possible. */
bool weir_prefix_reclaim(weir_prefix *prefix, weir_kv_pages wanted);
/* Makes the page that the sequence writes to next its own by dropping the cached end of a sequence,
 * if that is the only other holder. For a sequence that has all other pages, and would need one
 * more for a copy. */
bool weir_prefix_release_tail(weir_prefix *prefix, const weir_kv_sequence *sequence);
/* Drops what extends the run that holds this page, if only the cache holds all of it, so that
 * release_tail can drop the run: what is in the lower tier is not dropped for lack of memory.
 * Returns false if there is nothing. */
bool weir_prefix_release_extensions(weir_prefix *prefix, const weir_kv_sequence *sequence);
/* Drops the cached runs that only the tree and the sequence hold, from the end of the sequence as
 * far as no other one extends them. Returns false if there are none. For a sequence that is about
 * to lose rows. */
bool weir_prefix_release_shared(weir_prefix *prefix, const weir_kv_sequence *sequence);
/* Pages that reclaiming could free. The cost of this and the next depends on the pages that changed
 * since the last call, not on the tree. */
weir_kv_pages weir_prefix_reclaimable(weir_prefix *prefix);
/* Runs in the lower tier that only the cache holds: they free addresses, but no memory near the
 * kernels. */
int64_t weir_prefix_idle_cold(weir_prefix *prefix);
/* With a lower tier. Finds up to `most` blocks in memory, past the sinks, that only the cache
 * holds, least recently used first. weir_prefix_reclaim_memory is for when none can be demoted:
 * drops sequences until n_blocks fit in memory or none is left that would help. */
int32_t weir_prefix_lru_blocks(weir_prefix *prefix, void *const **blocks, int32_t most);
/* The index in its sequences of a block that the last function returned. */
int64_t weir_prefix_block_index(const weir_prefix *prefix, void *const *block);
void weir_prefix_reclaim_memory(weir_prefix *prefix, int64_t n_blocks);

typedef struct weir_prefix_stats {
    int64_t n_nodes, n_tokens, n_snapshots; /* n_snapshots: also those on disk */
    int64_t n_cold_snapshots; /* on disk, or being written to it */
    /* Since opening: written to disk, read back, and what failed. */
    int64_t snapshots_out, snapshots_back, snapshot_errors;
    /* Cached sequences with a policy. */
    int64_t n_pruned, n_pruned_tokens;
    int64_t dropped_tokens; /* since opening */
    int64_t unsaved_tokens; /* of them: not in a file */
    int64_t n_windows; /* window blocks in memory (pool/windows.h) */
    int64_t n_cold_windows; /* on disk, or being written to it; some are in memory, too */
    /* Since opening: written to disk, read back, and what failed. */
    int64_t windows_out, windows_back, window_errors;
    int64_t n_inserted; /* insertions of tokens, states or pruned entries, since opening */
    /* For tests: nodes and states looked at since opening, which is what calls cost. */
    int64_t visits;
} weir_prefix_stats;
weir_prefix_stats weir_prefix_stats_of(const weir_prefix *prefix);
/* For tests: checks the invariants, false with a message. */
bool weir_prefix_is_sound(weir_prefix *prefix, weir_error *error);

#ifdef __cplusplus
}
#endif
