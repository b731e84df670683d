/* engine/constrain/nfa.h - automata over bytes, built from the end to the start: every function
 * takes the state that follows, and returns the state before it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/abi/status.h"

typedef enum weir_nfa_kind {
    WEIR_NFA_NEVER, /* state 0: nothing follows */
    WEIR_NFA_BYTE, /* a byte in low..high, then `next` */
    WEIR_NFA_SPLIT, /* `next` or `other` */
    WEIR_NFA_CALL, /* rule `other`, then `next` */
    WEIR_NFA_ACCEPT,
    WEIR_NFA_BEGIN, /* `next` if no byte came before; only until weir_nfa_anchor */
    WEIR_NFA_END, /* `next`, and no byte may come after; only until weir_nfa_anchor */
} weir_nfa_kind;

typedef struct weir_nfa_state {
    uint8_t kind, low, high;
    uint8_t live; /* an end can be reached; set by weir_rules_finish */
    uint32_t next, other;
} weir_nfa_state;

typedef struct weir_nfa {
    weir_nfa_state *states; /* owned */
    uint32_t count, capacity;
    uint32_t limit; /* more states are refused with EFULL */
    weir_status status; /* the first failure; afterwards all functions return 0 */
    bool python; /* JSON is written as Python: True, and / is not escaped */
} weir_nfa;

weir_status weir_nfa_init(weir_nfa *nfa, size_t limit);
void weir_nfa_free(weir_nfa *nfa);

uint32_t weir_nfa_accept(weir_nfa *nfa);
/* These return 0 if `next` is 0. */
uint32_t weir_nfa_byte(weir_nfa *nfa, unsigned low, unsigned high, uint32_t next);
uint32_t weir_nfa_text(weir_nfa *nfa, const char *text, size_t n, uint32_t next);
uint32_t weir_nfa_call(weir_nfa *nfa, uint32_t rule, uint32_t next);
uint32_t weir_nfa_anchor_state(weir_nfa *nfa, weir_nfa_kind kind, uint32_t next);
uint32_t weir_nfa_split(weir_nfa *nfa, uint32_t a, uint32_t b); /* one of both, if the other is 0 */
/* A loop: first its head, then its body, which ends at the head, then both are joined. */
uint32_t weir_nfa_loop(weir_nfa *nfa);
void weir_nfa_loop_join(weir_nfa *nfa, uint32_t head, uint32_t body, uint32_t after);

/* Copies what can be reached from `start` up to `end`, which is not copied, without BEGIN and END,
 * whose conditions the copy holds exactly. */
uint32_t weir_nfa_anchor(weir_nfa *nfa, uint32_t start, uint32_t end);

/* Ranges of code points, ascending and disjoint. */
typedef struct weir_range {
    uint32_t low, high;
} weir_range;

/* How a character is written. */
typedef enum weir_encoding {
    WEIR_ENCODING_PLAIN, /* UTF-8 */
    WEIR_ENCODING_JSON, /* inside a JSON string; printable characters as they are */
} weir_encoding;

/* A character of one of the ranges. */
uint32_t weir_nfa_class(
    weir_nfa *nfa, const weir_range *ranges, size_t n, weir_encoding encoding, uint32_t next
);
/* The characters of valid UTF-8 text, then `next`. */
uint32_t weir_nfa_encoded(
    weir_nfa *nfa, const char *text, size_t n, weir_encoding encoding, uint32_t next
);
/* Any character of a JSON string, also as \uXXXX. */
uint32_t weir_nfa_json_char(weir_nfa *nfa, uint32_t next);
