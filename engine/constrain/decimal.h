/* engine/constrain/decimal.h - decimal numbers of any length, and automata that compare with
 * them. */
#pragma once
#include <stdbool.h>

#include "engine/constrain/arena.h"
#include "engine/constrain/nfa.h"

/* Digits without leading or trailing zeros; the whole part of 0 is "0". */
typedef struct weir_decimal {
    bool negative; /* never of 0 */
    const char *whole, *fraction; /* [n_whole], [n_fraction] */
    size_t n_whole, n_fraction;
} weir_decimal;

enum { WEIR_DECIMAL_DIGITS = 512 };

/* Reads a JSON number of at most 512 digits, written out; false: longer, or no memory. */
bool weir_decimal_read(weir_decimal *out, weir_scratch *scratch, const char *text, size_t n);
/* Whether it is a whole number from 0 to `most`; longer ones give `most`. */
bool weir_decimal_count(const weir_decimal *decimal, uint64_t most, uint64_t *out);
bool weir_decimal_is_whole(const weir_decimal *decimal);

/* JSON numbers: digits only, or with a fraction, or also with an exponent; then `next`. */
uint32_t weir_nfa_integer(weir_nfa *nfa, uint32_t next);
uint32_t weir_nfa_fraction(weir_nfa *nfa, uint32_t next);
uint32_t weir_nfa_number(weir_nfa *nfa, uint32_t next);
/* Numbers without exponent that are at least, or at most, a bound; `strict`: and not equal. A bound
 * from 0 up as a minimum allows no minus sign. */
uint32_t weir_nfa_at_least(weir_nfa *nfa, const weir_decimal *bound, bool strict, uint32_t next);
uint32_t weir_nfa_at_most(weir_nfa *nfa, const weir_decimal *bound, bool strict, uint32_t next);
