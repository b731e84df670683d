/* engine/kv/prefix/pruned_cache.h - sequences with a KV policy, each cached as a whole, next to the
 * prefix tree (prefix.h).
 *
 * A pruned sequence can only be continued from all of its tokens and under the same policy: its
 * rows were selected, and what the policy observed cannot be recomputed. So it is an entry of a
 * list: tokens, rows (table_snapshot.h), recurrent state, state of the policy, and the turns in
 * which it was computed. It is found by its tokens, salt, policy with options, budget and protected
 * rows; it is continued as a whole, any number of times: pages are shared. A sequence that has not
 * lost rows yet is cached here too if its policy must observe all of it.
 *   turns    an entry is the end of a turn, or a checkpoint: its last tokens are whole chunks of a
 *            prompt that went on, so a sequence that continues it computes the rest in the chunks,
 *            and with the bits, of one that computes the whole prompt
 *   order    entries are dropped for their pages together with sequences of the tree, least
 *            recently used first
 *   memory   one block for all entries, allocated at opening, with as many places for checkpoints
 *            as for ends; an entry takes what its sequence needs. One that does not fit displaces
 *            spare entries, then others, least recently used first; a spare one only spare ones.
 *            One that never fits is not cached. An entry that is continued is not spare any more
 *   stay     of the entries that are prefixes of a new one: the longest end of a turn, so that the
 *            last turn can be regenerated; the first checkpoint, which other conversations share,
 *            the last two, which are of the last turn, and the last that is not spare
 * Engine thread only; allocates nothing after opening. */
#pragma once
#include "engine/kv/prefix/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes of one entry: n_tokens, this many rows in each head, and this many bytes of its
 * policy's state. */
size_t weir_pruned_entry_bytes(
    const weir_kv_spec *spec, size_t snapshot_bytes, int64_t n_tokens, int64_t n_rows,
    size_t state_bytes
);

/* Caches the computed tokens of a sequence whose rows are committed and to which its policy was
 * applied: as the end of a turn if its policy's turn has ended, else as a checkpoint. name: may be
 * NULL; an entry that had it loses it, and one that has a name is not spare. Returns NULL, or why
 * it was not cached; static text. */
const char *weir_pruned_insert(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *name,
    bool is_spare
);

/* Gives a sequence, whose tokens and policy are set and of which nothing is computed, the longest
 * cached entry that is a prefix of it, leaving at least one token to compute. `again`: it was
 * computed before, in the turns that its policy recorded; an entry with other turns does not
 * match. is_left: a turn that begins like it went on otherwise after n_matched tokens.
 * is_rewritten: it continues a checkpoint that was not spare, in place of the end of its turn. */
weir_prefix_hit weir_pruned_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, bool again
);

bool weir_pruned_has_places(const weir_prefix *prefix); /* prefix: may be NULL */

/* True if an entry under this salt is a prefix of the tokens, whatever its policy. */
bool weir_pruned_contains(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
);

/* Drops the least recently used entry that is not held, of spare ones if there are any. Returns
 * false if there is none. */
bool weir_pruned_drop_oldest(weir_prefix *prefix);

/* ---- for what writes them to files and reads them -------------------------------------------- */
/* An entry that is held, or a sequence to become one: borrowed. */
typedef struct weir_pruned_entry {
    const int32_t *tokens; /* [n_tokens] */
    int32_t n_tokens;
    /* name "": none. */
    const char *salt, *name;
    weir_policy_history past;
    const char *policy; /* name and options */
    const float *recurrent; /* NULL: the model has none */
    const void *state; /* of the policy */
    size_t state_bytes;
    int32_t entry;
} weir_pruned_entry;

/* Selects the end of a turn: the one with this name, if it is not NULL; else the longest one that
 * is a prefix of these tokens, of several the most recently used. */
typedef struct weir_pruned_query {
    const char *name, *salt;
    const int32_t *tokens;
    int32_t n_tokens;
} weir_pruned_query;
/* The table of an empty sequence shares the rows of the entry, which stays until weir_pruned_unpin.
 * Returns ENOTFOUND if there is none, EFULL if there is no memory for the table. */
WEIR_MUST_CHECK weir_status weir_pruned_pin(
    weir_prefix *prefix, const weir_pruned_query *query, weir_kv_sequence *sequence,
    weir_pruned_entry *content
);
/* The same for the next one, most recently used first. *use: 0 before the first. */
WEIR_MUST_CHECK weir_status weir_pruned_pin_next(
    weir_prefix *prefix, uint64_t *use, weir_kv_sequence *sequence, weir_pruned_entry *content
);
void weir_pruned_unpin(weir_prefix *prefix, const weir_pruned_entry *content);
/* Adds an entry restored from a file, with its rows in the table. Returns NULL, or why not. */
const char *weir_pruned_restore(
    weir_prefix *prefix, const weir_kv_table *table, const weir_pruned_entry *content
);
bool weir_pruned_has_name(const weir_prefix *prefix, const char *name);
/* The name now belongs to another sequence. */
void weir_pruned_remove_name(weir_prefix *prefix, const char *name);

#ifdef __cplusplus
}
#endif
