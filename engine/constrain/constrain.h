/* engine/constrain/constrain.h - constrained decoding: which tokens may come next, so that an
 * answer is of a JSON schema, a regular expression, a list of choices or a GBNF grammar.
 *
 * A grammar is compiled to rules over bytes. A state of a sequence is a set of places in rules with
 * stacks that share their frames (an Earley parser whose items are states of automata); a mask is
 * a walk of the vocabulary's trie with it. Exact: a byte passes if and only if some right answer
 * goes on with it. docs/decisions/0083-constrained-decoding.md lists the decisions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of all tokens as a trie. Immutable after open: any thread may use it. */
typedef struct weir_token_trie weir_token_trie;

/* One token. Special tokens have no bytes: they are never allowed, unless they end answers. */
typedef struct weir_token_bytes {
    const char *bytes; /* [length], borrowed during the call */
    size_t length;
} weir_token_bytes;

/* owner  : copies what it needs; charged to the calling thread's tracker
 * errors : EINVAL: too many tokens, an id in `end_ids` is out of range; ENOMEM */
WEIR_MUST_CHECK weir_status weir_token_trie_open(
    weir_token_trie **out, const weir_token_bytes *tokens, size_t n_tokens, const int32_t *end_ids,
    size_t n_end_ids, weir_error *error
);
/* Grammars that were compiled with it keep it. NULL-safe. */
void weir_token_trie_close(weir_token_trie *trie);
size_t weir_token_trie_words(const weir_token_trie *trie); /* 64-bit words of a mask */
bool weir_token_trie_is_end(const weir_token_trie *trie, int32_t id);

/* For tests: ids are 0 .. size-1. */
size_t weir_token_trie_size(const weir_token_trie *trie);

typedef enum weir_grammar_kind {
    WEIR_GRAMMAR_SCHEMA, /* JSON schema, as JSON text */
    WEIR_GRAMMAR_REGEX, /* matches the whole answer */
    WEIR_GRAMMAR_CHOICE, /* JSON list of strings */
    WEIR_GRAMMAR_GBNF, /* llama.cpp's grammars */
    WEIR_GRAMMAR_CALLS, /* tool calls and the text around them: calls.h */
    WEIR_GRAMMAR_COUNT,
} weir_grammar_kind;
const char *weir_grammar_kind_name(weir_grammar_kind kind); /* "schema", "regex", ... */

/* What a grammar may take. Too large ones are refused with EUNSUPPORTED. */
typedef struct weir_grammar_limits {
    size_t text_bytes; /* of the grammar */
    size_t states; /* of its automata, 12 bytes each */
    size_t rules;
    size_t cache_bytes; /* automaton states and masks that are kept; more are computed again */
    size_t depth; /* of nested values in an answer: deeper ones are not allowed */
    size_t white_space; /* bytes of it in one place of an answer in JSON */
    size_t steps; /* automaton steps of one call */
    /* Objects with declared properties take no others, unless the schema says something about
     * others or about their number. */
    bool closed_objects;
} weir_grammar_limits;
extern const weir_grammar_limits weir_grammar_default_limits;

/* Where and why a grammar is refused. */
typedef struct weir_grammar_fault {
    char keyword[64]; /* of the schema, or the kind of the grammar; "": none */
    char path[256]; /* "#/properties/a" in a schema; "" in other grammars */
} weir_grammar_fault;

typedef struct weir_grammar weir_grammar;

/* Compiles a grammar.
 * trie   : may be NULL (no masks); otherwise the grammar retains it
 * limits : NULL: the default limits
 * tracker: may be NULL (not charged); else outlives the grammar and is charged for it, for its
 *          cache, and for its states
 * fault  : may be NULL; filled on EFORMAT and EUNSUPPORTED
 * owner  : the caller releases *out with weir_grammar_release
 * errors : EFORMAT: malformed; EUNSUPPORTED: a keyword that is not supported, nothing satisfies
 *          it, too large; ENOMEM */
WEIR_MUST_CHECK weir_status weir_grammar_compile(
    weir_grammar **out, weir_grammar_kind kind, const char *text, size_t n, weir_token_trie *trie,
    const weir_grammar_limits *limits, weir_memory_tracker *tracker, weir_grammar_fault *fault,
    weir_error *error
);
/* Grammars are shared: any thread may use one; calls on it and on its states wait for each other.
 * A state retains its grammar. */
void weir_grammar_retain(weir_grammar *grammar);
void weir_grammar_release(weir_grammar *grammar); /* NULL-safe */
/* Of rules, cache and frames of its states, after the last call: does not wait for one that
 * runs. */
size_t weir_grammar_bytes(const weir_grammar *grammar);

/* The state of one sequence: everything accepted so far. */
typedef struct weir_grammar_state weir_grammar_state;
WEIR_MUST_CHECK weir_status
weir_grammar_state_open(weir_grammar_state **out, weir_grammar *grammar, weir_error *error);
/* For tests. */
WEIR_MUST_CHECK weir_status weir_grammar_state_clone(
    weir_grammar_state **out, const weir_grammar_state *state, weir_error *error
);
/* Makes `to` equal to `from`, a state of the same grammar, to go back to a copy. */
WEIR_MUST_CHECK weir_status
weir_grammar_state_copy(weir_grammar_state *to, const weir_grammar_state *from, weir_error *error);
void weir_grammar_state_close(weir_grammar_state *state); /* NULL-safe */

/* Accepts bytes; *n_accepted of them are possible. The state moves only if all are. They return
 * WEIR_OK also if not all are accepted. errors: ENOMEM; EFULL: more steps than the limit. */
WEIR_MUST_CHECK weir_status weir_grammar_accept_bytes(
    weir_grammar_state *state, const char *bytes, size_t n, size_t *n_accepted, weir_error *error
);
/* Accepts a token of the trie. An end token is accepted if the answer is complete, and leaves the
 * state as it is. */
WEIR_MUST_CHECK weir_status
weir_grammar_accept_token(weir_grammar_state *state, int32_t id, bool *accepted, weir_error *error);
/* Writes the mask of the next token, bit id % 64 of word id / 64.
 * shapes : mask [weir_token_trie_words(trie)]
 * errors : EINVAL: the grammar has no trie; ENOMEM; EFULL: more steps than the limit */
WEIR_MUST_CHECK weir_status
weir_grammar_mask(weir_grammar_state *state, uint64_t *mask, weir_error *error);
bool weir_grammar_is_complete(weir_grammar_state *state); /* the answer may end here */
/* For tests: appends the bytes that must come next, at most `most`: every right answer goes on with
 * them. Stops where the answer may end or the next byte is free. The state stays. */
WEIR_MUST_CHECK weir_status weir_grammar_forced(
    weir_grammar_state *state, char *out, size_t most, size_t *n, weir_error *error
);
/* Complete, and no byte may follow. */
WEIR_MUST_CHECK weir_status
weir_grammar_must_end(weir_grammar_state *state, bool *must, weir_error *error);
/* For tests: without shared frames. */
size_t weir_grammar_state_bytes(const weir_grammar_state *state);

#ifdef __cplusplus
}
#endif
