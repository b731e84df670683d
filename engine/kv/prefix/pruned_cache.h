/* engine/kv/prefix/pruned_cache.h - finished texts that a KV policy watched, each as a whole, beside the
 * prefix tree (prefix.h).
 *
 * A text that lost rows is of use to one who goes on with all of its tokens under the same policy
 * and to nobody else: its rows are a choice, and what the policy saw cannot be had again. So a text
 * is an entry of a list: tokens, rows (table_snapshot.h), recurrent state, state of the policy, and
 * the turns that it was computed in. It is found by its tokens, salt, policy with options, budget
 * and protected rows; it is taken whole, as often as wanted: pages are shared. A text that a policy
 * has watched and not cut yet is kept too if the policy has to see all of it.
 *   order    entries go with the texts of the tree, the least recently used one first
 *   memory   one block for all entries, taken at opening; an entry takes what its text needs. A
 *            text that does not fit pushes out older ones, one that never can is not kept
 *   turns    of the texts that begin an entry's text the longest one stays: the last turn can be
 *            asked for again, and a conversation has two entries
 * Engine thread only; allocates nothing after opening. */
#pragma once
#include "engine/kv/prefix/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one text takes of the block, at most: n_tokens of them, so many rows in each head, and so
 * many bytes of its policy's state. */
size_t weir_pruned_entry_bytes(
    const weir_kv_spec *spec, size_t snapshot_bytes, int64_t n_tokens, int64_t n_rows,
    size_t state_bytes
);

/* Keeps the computed tokens of a sequence whose policy's turn is over and whose rows are committed.
 * name: NULL, or the text's, which leaves the one that had it. NULL: done; else why not, a static
 * text. */
const char *weir_pruned_insert(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name
);

/* Gives a sequence, whose tokens and policy are set and of which nothing is computed, the longest
 * kept text that begins it, one token of which is left to compute. `again`: it was computed before,
 * in the turns that its policy knows; a text of other turns is not the same. */
weir_prefix_hit weir_pruned_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, bool again
);

/* A text under this salt begins the tokens, under whatever policy. */
bool weir_pruned_contains(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);

/* Drops the least recently used one that nobody holds; false: there is none. */
bool weir_pruned_drop_oldest(weir_prefix *prefix);

/* ---- for what writes them to files and reads them -------------------------------------------- */
/* Of an entry that is held, or of a text that becomes one: borrowed */
typedef struct weir_pruned_entry {
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens;
    const char *salt, *name; /* name "": none */
    weir_policy_history past;
    const char *policy; /* name and options */
    const float *recurrent; /* NULL: the model has none */
    const void *state; /* of the policy */
    size_t state_bytes;
    int32_t entry;
} weir_pruned_entry;

/* Which one: that of this name, if it is not NULL; else the longest one, the last used of several,
 * that begins these tokens. */
typedef struct weir_pruned_query {
    const char *name, *salt;
    const int32_t *tokens;
    int32_t n_tokens;
} weir_pruned_query;
/* The table of an empty sequence shares the rows of the entry, which stays until it is let go.
 * false: there is none. */
bool weir_pruned_pin(
    weir_prefix *prefix, const weir_pruned_query *wish, weir_kv_sequence *sequence,
    weir_pruned_entry *content
);
/* The same for the next one, most recently used first. *use: 0 before the first. */
bool weir_pruned_pin_next(
    weir_prefix *prefix, uint64_t *use, weir_kv_sequence *sequence, weir_pruned_entry *content
);
void weir_pruned_unpin(weir_prefix *prefix, const weir_pruned_entry *content);
/* A text that came from a file, its rows in the table. NULL: done; else why not. */
const char *weir_pruned_restore(
    weir_prefix *prefix, const weir_kv_table *table, const weir_pruned_entry *content
);
bool weir_pruned_has_name(const weir_prefix *prefix, const char *name);
/* It is another text's from now on */
void weir_pruned_remove_name(weir_prefix *prefix, const char *name);

#ifdef __cplusplus
}
#endif
