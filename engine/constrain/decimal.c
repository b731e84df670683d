/* engine/constrain/decimal.c - decimals, and automata that compare digit by digit. */
#include "engine/constrain/decimal.h"

#include <string.h>

bool weir_decimal_read(weir_decimal *out, weir_scratch *scratch, const char *text, size_t n)
{
    const bool negative = n > 0 && text[0] == '-';
    size_t at = negative ? 1 : 0, n_digits = 0, point = 0;
    char *const digits = weir_scratch_take(scratch, 3 * WEIR_DECIMAL_DIGITS);
    if (digits == NULL) return false;
    bool fraction = false;
    for (; at < n && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            fraction = true;
            continue;
        }
        if (n_digits == WEIR_DECIMAL_DIGITS) return false;
        digits[WEIR_DECIMAL_DIGITS + n_digits++] = text[at];
        if (!fraction) point++;
    }
    int64_t exponent = 0;
    if (at < n) {
        const bool down = text[at + 1] == '-';
        for (at += down || text[at + 1] == '+' ? 2 : 1; at < n; at++) {
            exponent = exponent > 100000 ? exponent : exponent * 10 + (text[at] - '0');
        }
        if (down) exponent = -exponent;
    }
    /* Zeros around the digits stand for the exponent. */
    char *first = digits + WEIR_DECIMAL_DIGITS;
    int64_t place = (int64_t)point + exponent; /* of the point, from the first digit */
    while (n_digits > 0 && *first == '0') {
        first++;
        n_digits--;
        place--;
    }
    while (n_digits > 0 && first[n_digits - 1] == '0') n_digits--;
    if (n_digits == 0) place = 0;
    if (place > WEIR_DECIMAL_DIGITS || place < -WEIR_DECIMAL_DIGITS) return false;
    while (place > (int64_t)n_digits) {
        if (first + n_digits == digits + 3 * WEIR_DECIMAL_DIGITS) return false;
        first[n_digits++] = '0';
    }
    const bool below = place <= 0;
    for (; place < 0; place++) {
        if (first == digits) return false;
        *--first = '0';
        n_digits++;
    }
    *out = (weir_decimal){ .negative = negative && n_digits > 0,
                           .whole = below ? "0" : first,
                           .n_whole = below ? 1 : (size_t)place,
                           .fraction = first + place,
                           .n_fraction = n_digits - (size_t)place };
    return true;
}

bool weir_decimal_is_whole(const weir_decimal *decimal) { return decimal->n_fraction == 0; }

bool weir_decimal_count(const weir_decimal *decimal, uint64_t most, uint64_t *out)
{
    if (decimal->negative || decimal->n_fraction > 0) return false;
    *out = 0;
    for (size_t i = 0; i < decimal->n_whole; i++) {
        *out = *out * 10 + (uint64_t)(decimal->whole[i] - '0');
        if (*out >= most || i >= 18) {
            *out = most;
            break;
        }
    }
    return true;
}

/* Any digits, and then `next`; none at all too. */
static uint32_t any_digits(weir_nfa *nfa, uint32_t next)
{
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_byte(nfa, '0', '9', head), next);
    return head;
}

/* A point and at least one digit, or nothing. */
static uint32_t any_fraction(weir_nfa *nfa, uint32_t next)
{
    const uint32_t digits = weir_nfa_byte(nfa, '0', '9', any_digits(nfa, next));
    return weir_nfa_split(nfa, weir_nfa_byte(nfa, '.', '.', digits), next);
}

static uint32_t any_whole(weir_nfa *nfa, uint32_t next)
{
    const uint32_t more = weir_nfa_byte(nfa, '1', '9', any_digits(nfa, next));
    return weir_nfa_split(nfa, weir_nfa_byte(nfa, '0', '0', next), more);
}

static uint32_t signed_number(weir_nfa *nfa, uint32_t unsigned_start)
{
    return weir_nfa_split(nfa, weir_nfa_byte(nfa, '-', '-', unsigned_start), unsigned_start);
}

uint32_t weir_nfa_integer(weir_nfa *nfa, uint32_t next)
{
    return signed_number(nfa, any_whole(nfa, next));
}

uint32_t weir_nfa_fraction(weir_nfa *nfa, uint32_t next)
{
    return signed_number(nfa, any_whole(nfa, any_fraction(nfa, next)));
}

uint32_t weir_nfa_number(weir_nfa *nfa, uint32_t next)
{
    const uint32_t digits = weir_nfa_byte(nfa, '0', '9', any_digits(nfa, next));
    const uint32_t sign = weir_nfa_split(
        nfa, digits,
        weir_nfa_split(
            nfa, weir_nfa_byte(nfa, '+', '+', digits), weir_nfa_byte(nfa, '-', '-', digits)
        )
    );
    const uint32_t exponent =
        weir_nfa_split(nfa, weir_nfa_byte(nfa, 'e', 'e', sign), weir_nfa_byte(nfa, 'E', 'E', sign));
    return weir_nfa_fraction(nfa, weir_nfa_split(nfa, exponent, next));
}

/* `n` digits, and then `next`. */
static uint32_t some_digits(weir_nfa *nfa, size_t n, uint32_t next)
{
    for (size_t i = 0; i < n; i++) next = weir_nfa_byte(nfa, '0', '9', next);
    return next;
}

/* Zeros, and then a digit above 0 and any digits: what makes a fraction larger. */
static uint32_t more_than_zeros(weir_nfa *nfa, uint32_t next)
{
    const uint32_t head = weir_nfa_loop(nfa);
    const uint32_t zero = weir_nfa_byte(nfa, '0', '0', head);
    const uint32_t digit = weir_nfa_byte(nfa, '1', '9', any_digits(nfa, next));
    weir_nfa_loop_join(nfa, head, zero, digit);
    return head;
}

static uint32_t zeros(weir_nfa *nfa, uint32_t next)
{
    const uint32_t head = weir_nfa_loop(nfa);
    weir_nfa_loop_join(nfa, head, weir_nfa_byte(nfa, '0', '0', head), next);
    return head;
}

/* What may follow a whole part that is equal to that of the bound. */
static uint32_t fraction_from(
    weir_nfa *nfa, const weir_decimal *bound, bool least, bool strict, uint32_t next
)
{
    /* After all digits of the bound. */
    uint32_t at;
    if (least) {
        at = strict ? more_than_zeros(nfa, next) : any_digits(nfa, next);
    } else {
        at = strict ? 0 : zeros(nfa, next);
    }
    if (bound->n_fraction == 0) {
        const uint32_t digits = least && !strict ? weir_nfa_byte(nfa, '0', '9', at)
                                : least          ? at
                                : strict         ? 0
                                                 : weir_nfa_byte(nfa, '0', '0', at);
        return weir_nfa_split(nfa, weir_nfa_byte(nfa, '.', '.', digits), strict ? 0 : next);
    }
    for (size_t i = bound->n_fraction; i-- > 0;) {
        const unsigned digit = (unsigned char)bound->fraction[i];
        const bool has_other = least ? digit < '9' : digit > '0';
        const uint32_t free_digits = has_other ? any_digits(nfa, next) : 0;
        const uint32_t other = !has_other ? 0
                               : least    ? weir_nfa_byte(nfa, digit + 1, '9', free_digits)
                                          : weir_nfa_byte(nfa, '0', digit - 1, free_digits);
        at = weir_nfa_split(nfa, weir_nfa_byte(nfa, digit, digit, at), other);
        /* A fraction that ends here is smaller than the bound. */
        if (!least && i > 0) at = weir_nfa_split(nfa, at, next);
    }
    const uint32_t point = weir_nfa_byte(nfa, '.', '.', at);
    return least ? point : weir_nfa_split(nfa, point, next);
}

/* Numbers without a sign that are at least, or at most, the absolute value of the bound. */
static uint32_t compare(
    weir_nfa *nfa, const weir_decimal *bound, bool least, bool strict, uint32_t next
)
{
    const size_t n = bound->n_whole;
    const uint32_t free_fraction = any_fraction(nfa, next);
    uint32_t at = fraction_from(nfa, bound, least, strict, next), rest = free_fraction;
    for (size_t i = n; i-- > 0; rest = weir_nfa_byte(nfa, '0', '9', rest)) {
        const unsigned digit = (unsigned char)bound->whole[i];
        const unsigned lowest = i == 0 && n > 1 ? '1' : '0';
        uint32_t other = 0;
        if (least && digit < '9') other = weir_nfa_byte(nfa, digit + 1, '9', rest);
        if (!least && digit > lowest) other = weir_nfa_byte(nfa, lowest, digit - 1, rest);
        at = weir_nfa_split(nfa, weir_nfa_byte(nfa, digit, digit, at), other);
    }
    if (least) {
        const uint32_t longer = some_digits(nfa, n, any_digits(nfa, free_fraction));
        return weir_nfa_split(nfa, at, weir_nfa_byte(nfa, '1', '9', longer));
    }
    uint32_t shorter = free_fraction;
    for (size_t digits = 1; digits < n; digits++) {
        at = weir_nfa_split(nfa, at, weir_nfa_byte(nfa, digits == 1 ? '0' : '1', '9', shorter));
        shorter = weir_nfa_byte(nfa, '0', '9', shorter);
    }
    return at;
}

static bool is_zero(const weir_decimal *bound)
{
    return bound->n_fraction == 0 && bound->n_whole == 1 && bound->whole[0] == '0';
}

uint32_t weir_nfa_at_least(weir_nfa *nfa, const weir_decimal *bound, bool strict, uint32_t next)
{
    if (!bound->negative) return compare(nfa, bound, true, strict, next);
    const uint32_t below = weir_nfa_byte(nfa, '-', '-', compare(nfa, bound, false, strict, next));
    return weir_nfa_split(nfa, below, any_whole(nfa, any_fraction(nfa, next)));
}

uint32_t weir_nfa_at_most(weir_nfa *nfa, const weir_decimal *bound, bool strict, uint32_t next)
{
    if (bound->negative) {
        return weir_nfa_byte(nfa, '-', '-', compare(nfa, bound, true, strict, next));
    }
    if (strict && is_zero(bound)) {
        return weir_nfa_byte(nfa, '-', '-', compare(nfa, bound, true, true, next));
    }
    const uint32_t any = any_whole(nfa, any_fraction(nfa, next));
    return weir_nfa_split(
        nfa, weir_nfa_byte(nfa, '-', '-', any), compare(nfa, bound, false, strict, next)
    );
}
