/* engine/text/vocabulary.h - the tokens of a tokenizer: bytes by id, ids by bytes, and added tokens
 * that are matched in text.
 *
 * Built once, then read by any thread. Each token has one id; an id is a base token (made by
 * merges), an added token (matched in the text as a whole) or both. Sizes are limited so that
 * offsets fit 32 bits. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/text/pair_map.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_VOCABULARY_IDS = 1 << 21, /* ids are below this */
    WEIR_VOCABULARY_BYTES = 1 << 28, /* of all tokens */
    WEIR_ADDED_TOKENS = 1 << 16,
    WEIR_ADDED_TOKEN_BYTES = 512, /* limits the cost of matching at one position */
};

enum {
    WEIR_TOKEN_PRESENT = 1,
    WEIR_TOKEN_ADDED = 2, /* matched in text */
    WEIR_TOKEN_SPECIAL = 4, /* a control token: decoding may skip it, merges never make it */
    WEIR_TOKEN_NORMALIZED = 8, /* matched in the normalised text, after the others */
    WEIR_TOKEN_PADDING = 16, /* pads the matrix: never matched, never made */
    WEIR_TOKEN_BYTE = 32, /* a piece <0xNN>: decodes to one byte, and no text has its name */
    WEIR_TOKEN_UNUSED = 64, /* a piece that merges pass through, but that is no result */
    WEIR_TOKEN_USER = 128, /* a user-defined piece: found in the text before others */
    WEIR_TOKEN_LSTRIP = 512, /* an added token that takes the white space in front of it */
    WEIR_TOKEN_RSTRIP = 1024, /* and behind it */
    WEIR_TOKEN_SINGLE_WORD = 2048, /* an added token that is not found inside words */
    WEIR_TOKEN_SPACED = 256, /* its name has U+2581, its bytes have spaces there */
};

typedef struct weir_token {
    uint32_t offset, length; /* its place in `bytes`; a NUL follows */
    uint32_t flags;
} weir_token;

/* Nodes are numbers; node 0 is the root. An edge's id is the token that ends there. */
typedef struct weir_trie {
    weir_pair_map edges;
    uint32_t n_nodes, n_tokens;
    bool first[256]; /* true if a token begins with this byte */
} weir_trie;

typedef struct weir_name_entry {
    uint32_t hash, offset, length;
    int32_t id; /* -1: empty */
} weir_name_entry;

typedef struct weir_vocabulary {
    weir_token *tokens;
    size_t size, capacity; /* ids 0 .. size-1 */
    weir_buffer bytes;
    weir_name_entry *names; /* base tokens by their bytes */
    size_t n_names, names_mask;
    weir_trie added[2]; /* [matched in normalised text], by their names */
    bool is_verbatim; /* names of base tokens are their bytes, not in the byte alphabet */
    int16_t alphabet[0x144]; /* the byte for a character of the byte alphabet; -1: none */
} weir_vocabulary;

void weir_vocabulary_init(weir_vocabulary *vocabulary);
void weir_vocabulary_free(weir_vocabulary *vocabulary);
/* Reserves `count` base tokens in the table of names, so that it does not grow while loading. */
WEIR_MUST_CHECK weir_status weir_vocabulary_reserve(weir_vocabulary *vocabulary, size_t count);

/* Decodes the name of a base token to `out` [length]. Returns false if it is not in GPT-2's byte
 * alphabet, unless names are verbatim. */
bool weir_vocabulary_unmap(
    const weir_vocabulary *vocabulary, char *out, size_t *n, const char *name, size_t length
);

/* Adds a token with its flags. Without _ADDED, _PADDING and _BYTE it is a base token, found by its
 * name. An added token's name is its literal text. The caller prepends the place to the
 * error message.
 * errors : EFORMAT (id past the limits or taken, name empty, too long or taken), ENOMEM */
WEIR_MUST_CHECK weir_status weir_vocabulary_add(
    weir_vocabulary *vocabulary, int64_t id, const char *name, size_t length, unsigned flags,
    weir_error *error
);
/* Lets the name of an added token also be found as a base token. */
WEIR_MUST_CHECK weir_status weir_vocabulary_add_base_name(
    weir_vocabulary *vocabulary, int32_t id, const char *name, size_t length, weir_error *error
);

static inline const weir_token *weir_vocabulary_at(const weir_vocabulary *vocabulary, int64_t id)
{
    return id >= 0 && (uint64_t)id < vocabulary->size ? &vocabulary->tokens[id] : NULL;
}

/* Returns the id; -1: none. */
int32_t weir_vocabulary_find_base(
    const weir_vocabulary *vocabulary, const char *bytes, size_t length
);
/* Returns the id; -1: none. */
int32_t weir_vocabulary_find_added(
    const weir_vocabulary *vocabulary, const char *text, size_t length
);

/* Adds a text, which no other id may have.
 * errors : EFORMAT, ENOMEM */
WEIR_MUST_CHECK weir_status
weir_trie_add(weir_trie *trie, int32_t id, const char *text, size_t length, weir_error *error);
/* Replaces the bytes of a token, not its name. */
WEIR_MUST_CHECK weir_status weir_vocabulary_set_bytes(
    weir_vocabulary *vocabulary, int32_t id, const char *bytes, size_t length, weir_error *error
);
/* The longest token of the trie that begins at `text` [n], with *length bytes; -1: none. */
int32_t weir_trie_match(const weir_trie *trie, const char *text, size_t n, size_t *length);

#ifdef __cplusplus
}
#endif
