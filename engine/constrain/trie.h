/* engine/constrain/trie.h - the vocabulary as a trie, its nodes in order of their bytes. */
#pragma once
#include "engine/constrain/constrain.h"

/* A node follows its parent; its children are from the next node up to `skip`. */
typedef struct weir_trie_node {
    uint32_t skip; /* the node after its last descendant */
    uint32_t first, count; /* its tokens: ids[first .. first + count) */
    uint16_t depth; /* 1: first bytes */
    uint8_t byte;
} weir_trie_node;

/* Nodes that a walk visits. */
typedef struct weir_trie_part {
    const weir_trie_node *nodes;
    const int32_t *ids;
    uint32_t n_nodes;
} weir_trie_part;

/* Text tokens are whole characters that stand for themselves in JSON strings: any run of them is
 * possible inside a string. So masks of strings take all of up to some number of characters at
 * once, and walk only the others. */
enum { WEIR_TEXT_COUNTS = 24 };

struct weir_token_trie {
    weir_trie_part all; /* owned: all tokens with bytes, in order of their bytes */
    weir_trie_part others; /* owned: those that are not text */
    uint64_t *text[WEIR_TEXT_COUNTS + 1]; /* owned: masks of text tokens, by their most
                                           * characters; the last one: of all */
    struct weir_text_token
        *long_text; /* owned: of WEIR_TEXT_COUNTS characters or more, ascending */
    size_t n_long_text;
    int32_t *end_ids; /* owned */
    const weir_token_bytes *tokens; /* owned with their bytes, [n_tokens] */
    char *bytes; /* owned */
    size_t n_tokens, n_end_ids;
    int references; /* atomic: its owner's and those of grammars */
    uint32_t longest; /* token, in bytes */
};

typedef struct weir_text_token {
    uint32_t n_chars;
    int32_t id;
} weir_text_token;

void weir_token_trie_retain(weir_token_trie *trie);
/* Adds the text tokens of at most `n_chars` characters to a mask. */
void weir_token_trie_text(const weir_token_trie *trie, uint64_t n_chars, uint64_t *mask);
