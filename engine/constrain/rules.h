/* engine/constrain/rules.h - the rules of a grammar, and what is known of them before any text.
 *
 * A rule is an automaton whose states may call rules; or, if it has parts, a product of automata
 * without calls: all of its parts read the same bytes. Left recursion is refused, so a rule never
 * calls itself before a byte. */
#pragma once
#include "engine/base/error.h"
#include "engine/constrain/nfa.h"

typedef enum weir_part_kind {
    WEIR_PART_MATCH, /* an automaton that accepts */
    WEIR_PART_EXCLUDE, /* one that does not */
    WEIR_PART_LENGTH, /* of a JSON string in code points: low to high */
    WEIR_PART_MULTIPLE, /* a decimal number that is a multiple of low / 10^high */
} weir_part_kind;

typedef struct weir_part {
    weir_part_kind kind;
    uint32_t start; /* WEIR_PART_MATCH, WEIR_PART_EXCLUDE */
    uint64_t low, high;
} weir_part;
#define WEIR_LENGTH_UNLIMITED UINT32_MAX

typedef struct weir_rule {
    uint32_t start; /* of a rule without parts */
    uint32_t first_part, n_parts;
    bool nullable; /* matches the empty text */
    bool productive; /* matches any text at all */
    bool always_live; /* while its first part goes on, its product reaches an end */
    uint32_t text_end; /* of a JSON string of any characters: the state before its last quotation
                        * mark; 0: another rule */
    uint64_t first[4], follow[4]; /* bytes that may begin it, and that may come after it */
} weir_rule;

typedef struct weir_rules {
    weir_nfa nfa;
    weir_rule *rules; /* owned */
    weir_part *parts; /* owned */
    uint32_t n_rules, rules_capacity, n_parts, parts_capacity;
    uint32_t limit;
} weir_rules;

static inline bool weir_byte_in(const uint64_t set[4], unsigned byte)
{
    return (set[byte >> 6] >> (byte & 63) & 1) != 0;
}
static inline void weir_byte_add(uint64_t set[4], unsigned byte)
{
    set[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

weir_status weir_rules_init(weir_rules *rules, size_t states, size_t limit);
void weir_rules_free(weir_rules *rules);
/* Returns the new rule, or UINT32_MAX: then rules->nfa.status says why. */
uint32_t weir_rules_add(weir_rules *rules);
/* Appends a part to the last rule. */
void weir_rules_part(weir_rules *rules, weir_part part);

/* Marks the states that reach an end, as if all rules that they call matched something. */
void weir_rules_mark_live(weir_rules *rules);
/* Computes the fields of rules without parts, and which states are live. Call it after the
 * products' `productive` is known.
 * errors : EUNSUPPORTED, *rule: the rule that is left-recursive; ENOMEM */
WEIR_MUST_CHECK weir_status weir_rules_finish(weir_rules *rules, uint32_t *rule);
