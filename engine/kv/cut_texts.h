/* engine/kv/cut_texts.h - finished texts that a KV policy watched, each as a whole, beside the prefix tree (prefix.h).
 *
 * A text that lost rows is of use to one who goes on with all of its tokens under the same policy and to nobody else: its rows are a choice, and
 * what the policy saw cannot be had again. So a text is an entry of a list: tokens, rows (parcel.h), recurrent state, state of the policy, and the turns that
 * it was computed in. It is found by its tokens, salt, policy with options, budget and protected rows; it is taken whole, as often as wanted: pages are
 * shared. A text that a policy has watched and not cut yet is kept too if the policy has to see all of it.
 *   order    entries go with the texts of the tree, the least recently used one first
 *   memory   one block for all entries, taken at opening; an entry takes what its text needs. A text that does not fit pushes out older ones, one that never
 *            can is not kept
 *   turns    of the texts that begin an entry's text the longest one stays: the last turn can be asked for again, and a conversation has two entries
 * Engine thread only; allocates nothing after opening. */
#pragma once
#include "engine/kv/prefix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one text takes of the block, at most: n_tokens of them, so many rows in each head, and so many bytes of its policy's state. */
size_t weir_cut_text_bytes(const weir_kv_spec *spec, size_t snapshot_bytes, int64_t n_tokens, int64_t n_rows, size_t policy_bytes);

/* Keeps the computed tokens of a sequence whose policy's turn is over and whose rows are committed. NULL: done; else why not, a static text. */
const char *weir_prefix_keep_cut(weir_prefix *prefix, const weir_sequence *sequence, const char *salt);

/* Gives a sequence, whose tokens and policy are set and of which nothing is computed, the longest kept text that begins it, one token of which is left
 * to compute. `again`: it was computed before, in the turns that its policy knows; a text of other turns is not the same. */
weir_prefix_hit weir_prefix_take_cut(weir_prefix *prefix, weir_sequence *sequence, const char *salt, bool again);

/* Drops the least recently used one; false: there is none. */
bool weir_prefix_drop_cut(weir_prefix *prefix);

#ifdef __cplusplus
}
#endif
