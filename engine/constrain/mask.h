/* engine/constrain/mask.h - masks of automaton states, and walks of the vocabulary.
 *
 * What a state allows depends on its callers only after its rule has ended. So a state keeps the
 * tokens that its rule allows whatever its callers are, and a small trie of what is left of tokens
 * after the rule's end, which the callers decide. */
#pragma once
#include "engine/constrain/parser.h"

typedef struct weir_mask_entry {
    size_t bytes; /* of all its memory */
    bool whole; /* not kept: too much is left to the callers, so the whole trie is walked */
    uint32_t n_ids; /* the ids, if they are few */
    int32_t *ids; /* owned */
    uint64_t *bits; /* owned, or NULL: ids */
    weir_trie_part rest; /* owned: what is left after the rule */
} weir_mask_entry;

/* Sets the bits of the tokens that one of the items allows; their sets are on the parser's stack.
 * False on failure (machine.status). */
bool weir_mask_items(
    weir_parser *parser, const weir_token_trie *trie, weir_item_set set, uint64_t *mask
);

/* A walk of nodes from a set of items.
 * mask : bits of the tokens that are possible
 * ends : NULL, or gets the nodes after whose bytes the items' rule may have ended, and which have
 *        children; at most `most_ends`, n_ends counts on */
typedef struct weir_walk {
    weir_parser *parser;
    weir_trie_part part;
    uint64_t *mask;
    uint32_t *ends;
    uint32_t n_ends, most_ends;
} weir_walk;
bool weir_walk_run(weir_walk *walk, weir_item_set set);

/* Merges the children of nodes [n] of a trie into one trie of those that begin with a byte of
 * `follow`. *out: owned nodes and ids, empty if there are none. Returns 0, 1 if it would be too
 * large, -1 if memory is short. */
int weir_rest_build(
    weir_trie_part *out, const weir_trie_part *trie, const uint32_t *nodes, uint32_t n,
    const uint64_t follow[4]
);
