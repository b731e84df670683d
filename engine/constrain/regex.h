/* engine/constrain/regex.h - regular expressions as in ECMAScript, without look-around, back
 * references and word boundaries. \d and \w are ASCII; `.` is any code point but a line end. */
#pragma once
#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "engine/constrain/arena.h"
#include "engine/constrain/nfa.h"

typedef enum weir_regex_kind {
    WEIR_REGEX_EMPTY,
    WEIR_REGEX_CLASS,
    WEIR_REGEX_BEGIN,
    WEIR_REGEX_END,
    WEIR_REGEX_JOIN, /* all children, one after the other */
    WEIR_REGEX_EITHER, /* one of the children */
    WEIR_REGEX_REPEAT, /* the child, low to high times */
    WEIR_REGEX_RULE, /* GBNF: the rule `low` */
} weir_regex_kind;

enum { WEIR_REGEX_ENDLESS = -1, WEIR_REGEX_DEPTH = 200, WEIR_REGEX_REPEATS = 100000 };

typedef struct weir_regex {
    weir_regex_kind kind;
    int32_t low, high; /* high: WEIR_REGEX_ENDLESS */
    weir_range *ranges; /* [n] of a class */
    struct weir_regex *child, *next; /* the first child; the next one of the same parent */
    size_t n;
} weir_regex;

/* Parses text [n], which is UTF-8.
 * owner  : *out lives in `scratch`
 * errors : EFORMAT, EUNSUPPORTED: *why says why, *at where; ENOMEM */
WEIR_MUST_CHECK weir_status weir_regex_parse(
    weir_regex **out, weir_scratch *scratch, const char *text, size_t n, const char **why,
    size_t *at
);
/* The automaton, then `next`. Anchors are kept as BEGIN and END. */
uint32_t weir_regex_build(
    weir_nfa *nfa, const weir_regex *regex, weir_encoding encoding, uint32_t next
);
bool weir_regex_has_anchors(const weir_regex *regex);

/* Sets of code points while they grow. */
typedef struct weir_ranges {
    weir_range *data; /* in the scratch */
    size_t n, capacity;
} weir_ranges;
WEIR_MUST_CHECK weir_status
weir_ranges_add(weir_ranges *ranges, weir_scratch *scratch, uint32_t low, uint32_t high);
/* Sorts and joins them; the others if `negated`. */
WEIR_MUST_CHECK weir_status
weir_ranges_finish(weir_ranges *ranges, weir_scratch *scratch, bool negated);

weir_regex *weir_regex_node(weir_scratch *scratch, weir_regex_kind kind); /* NULL: no memory */
