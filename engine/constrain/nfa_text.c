/* engine/constrain/nfa_text.c - automata of characters: UTF-8 and the escapes of JSON strings. */
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/constrain/nfa.h"

/* The last byte states of a class, which its sequences share. */
typedef struct shared {
    weir_nfa *nfa;
    uint32_t from; /* states of this class begin here */
} shared;

static uint32_t byte_of(shared *s, unsigned low, unsigned high, uint32_t next)
{
    const uint32_t end = s->nfa->count;
    const uint32_t begin = end - s->from > 24 ? end - 24 : s->from;
    for (uint32_t i = begin; i < end; i++) {
        const weir_nfa_state *const state = &s->nfa->states[i];
        if (state->kind == WEIR_NFA_BYTE && state->low == low && state->high == high &&
            state->next == next) {
            return i;
        }
    }
    return weir_nfa_byte(s->nfa, low, high, next);
}

/* Code points low..high, all of which take `length` bytes; `shift` bits of them are not written
 * yet by the bytes before. */
static uint32_t utf8_span(
    shared *s, uint32_t low, uint32_t high, int length, int left, uint32_t next
)
{
    static const unsigned lead[] = { 0, 0x00, 0xC0, 0xE0, 0xF0 };
    const int shift = 6 * (left - 1);
    const unsigned prefix = left == length ? lead[length] : 0x80;
    const unsigned bits = left == length ? (length == 1 ? 0x7F : 0x3F >> (length - 1)) : 0x3F;
    const uint32_t tail = (1U << shift) - 1;
    const unsigned a = (low >> shift) & bits, b = (high >> shift) & bits;
    if (left == 1) return byte_of(s, prefix | a, prefix | b, next);
    if (a == b) {
        return byte_of(s, prefix | a, prefix | a, utf8_span(s, low, high, length, left - 1, next));
    }
    uint32_t out = 0;
    unsigned first = a, last = b;
    if ((low & tail) != 0) {
        const uint32_t rest = utf8_span(s, low, low | tail, length, left - 1, next);
        out = weir_nfa_split(s->nfa, out, byte_of(s, prefix | a, prefix | a, rest));
        first++;
    }
    if ((high & tail) != tail) {
        const uint32_t rest = utf8_span(s, high & ~tail, high, length, left - 1, next);
        out = weir_nfa_split(s->nfa, out, byte_of(s, prefix | b, prefix | b, rest));
        last--;
    }
    if (first <= last && first != UINT32_MAX) {
        const uint32_t rest = utf8_span(s, 0, tail, length, left - 1, next);
        out = weir_nfa_split(s->nfa, out, byte_of(s, prefix | first, prefix | last, rest));
    }
    return out;
}

static uint32_t utf8_range(shared *s, uint32_t low, uint32_t high, uint32_t next)
{
    static const uint32_t ends[] = { 0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, 0x10FFFF };
    static const int lengths[] = { 1, 2, 3, 0, 3, 4 }; /* 0: surrogates */
    uint32_t out = 0, begin = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; begin = ends[i++] + 1) {
        const uint32_t a = low > begin ? low : begin, b = high < ends[i] ? high : ends[i];
        if (a > b || lengths[i] == 0) continue;
        out = weir_nfa_split(s->nfa, out, utf8_span(s, a, b, lengths[i], lengths[i], next));
    }
    return out;
}

static bool has(const weir_range *ranges, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= ranges[i].low && c <= ranges[i].high) return true;
    }
    return false;
}

static uint32_t hex_digit(weir_nfa *nfa, unsigned digit, uint32_t next)
{
    if (digit < 10) return weir_nfa_byte(nfa, '0' + digit, '0' + digit, next);
    const unsigned letter = digit - 10;
    return weir_nfa_split(
        nfa, weir_nfa_byte(nfa, 'a' + letter, 'a' + letter, next),
        weir_nfa_byte(nfa, 'A' + letter, 'A' + letter, next)
    );
}

/* Escapes of JSON that are needed for the ranges, and \/. */
static uint32_t escapes(weir_nfa *nfa, const weir_range *ranges, size_t n, uint32_t next)
{
    static const char escaped[] = "\"\\/\b\f\n\r\t", letters[] = "\"\\/bfnrt";
    uint32_t out = 0;
    for (size_t i = 0; escaped[i] != '\0'; i++) {
        if (!has(ranges, n, (unsigned char)escaped[i])) continue;
        if (nfa->python && escaped[i] == '/') continue; /* two characters in Python */
        const unsigned letter = (unsigned char)letters[i];
        out = weir_nfa_split(nfa, out, weir_nfa_byte(nfa, letter, letter, next));
    }
    uint32_t codes = 0;
    for (unsigned high = 0; high < 2; high++) {
        uint32_t digits = 0;
        for (unsigned low = 0; low < 16; low++) {
            if (!has(ranges, n, high * 16 + low)) continue;
            digits = weir_nfa_split(nfa, digits, hex_digit(nfa, low, next));
        }
        codes = weir_nfa_split(nfa, codes, hex_digit(nfa, high, digits));
    }
    out = weir_nfa_split(nfa, out, weir_nfa_text(nfa, "u00", 3, codes));
    return weir_nfa_byte(nfa, '\\', '\\', out);
}

uint32_t weir_nfa_class(
    weir_nfa *nfa, const weir_range *ranges, size_t n, weir_encoding encoding, uint32_t next
)
{
    shared s = { .nfa = nfa, .from = nfa->count };
    if (next == 0) return 0;
    uint32_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (encoding == WEIR_ENCODING_PLAIN) {
            out = weir_nfa_split(nfa, out, utf8_range(&s, ranges[i].low, ranges[i].high, next));
            continue;
        }
        static const weir_range literal[] = { { ' ', '!' }, { '#', '[' }, { ']', 0x10FFFF } };
        for (size_t k = 0; k < 3; k++) {
            const uint32_t a = ranges[i].low > literal[k].low ? ranges[i].low : literal[k].low;
            const uint32_t b = ranges[i].high < literal[k].high ? ranges[i].high : literal[k].high;
            if (a <= b) out = weir_nfa_split(nfa, out, utf8_range(&s, a, b, next));
        }
    }
    if (encoding == WEIR_ENCODING_JSON)
        out = weir_nfa_split(nfa, out, escapes(nfa, ranges, n, next));
    return out;
}

uint32_t weir_nfa_encoded(
    weir_nfa *nfa, const char *text, size_t n, weir_encoding encoding, uint32_t next
)
{
    if (encoding == WEIR_ENCODING_PLAIN) return weir_nfa_text(nfa, text, n, next);
    while (n > 0 && next != 0) {
        size_t length;
        n = weir_utf8_last(text, n);
        const uint32_t c = (uint32_t)weir_utf8_decode(text + n, &length);
        next = weir_nfa_class(nfa, &(weir_range){ c, c }, 1, encoding, next);
    }
    return next;
}

static uint32_t hex(weir_nfa *nfa, uint32_t next)
{
    const uint32_t small = weir_nfa_byte(nfa, 'a', 'f', next);
    const uint32_t large = weir_nfa_byte(nfa, 'A', 'F', next);
    return weir_nfa_split(
        nfa, weir_nfa_byte(nfa, '0', '9', next), weir_nfa_split(nfa, small, large)
    );
}

/* The letter d, then a digit low..high or a letter first..last, as in the second digit of
 * surrogates. */
static uint32_t after_d(weir_nfa *nfa, unsigned first, unsigned last, uint32_t next)
{
    const uint32_t letters = weir_nfa_split(
        nfa, weir_nfa_byte(nfa, 'a' + first, 'a' + last, next),
        weir_nfa_byte(nfa, 'A' + first, 'A' + last, next)
    );
    return weir_nfa_split(
        nfa, weir_nfa_byte(nfa, 'd', 'd', letters), weir_nfa_byte(nfa, 'D', 'D', letters)
    );
}

uint32_t weir_nfa_json_char(weir_nfa *nfa, uint32_t next)
{
    if (next == 0) return 0;
    static const weir_range all = { 0, 0x10FFFF };
    const uint32_t hex1 = hex(nfa, next), hex2 = hex(nfa, hex1), hex3 = hex(nfa, hex2);
    /* Not a surrogate: the first digit is not d, or the second one is below 8. */
    uint32_t code = weir_nfa_byte(nfa, '0', '9', hex3);
    static const char others[] = "abcefABCEF";
    for (size_t i = 0; others[i] != '\0'; i++) {
        const unsigned letter = (unsigned char)others[i];
        code = weir_nfa_split(nfa, code, weir_nfa_byte(nfa, letter, letter, hex3));
    }
    const uint32_t below = weir_nfa_byte(nfa, '0', '7', hex2);
    code = weir_nfa_split(
        nfa, code,
        weir_nfa_split(
            nfa, weir_nfa_byte(nfa, 'd', 'd', below), weir_nfa_byte(nfa, 'D', 'D', below)
        )
    );
    /* A pair: \uD8xx to \uDBxx, then \uDCxx to \uDFxx. */
    const uint32_t low = weir_nfa_text(nfa, "\\u", 2, after_d(nfa, 2, 5, hex2));
    const uint32_t low1 = hex(nfa, low), low2 = hex(nfa, low1);
    const uint32_t ab = weir_nfa_split(
        nfa, weir_nfa_byte(nfa, '8', '9', low2),
        weir_nfa_split(nfa, weir_nfa_byte(nfa, 'a', 'b', low2), weir_nfa_byte(nfa, 'A', 'B', low2))
    );
    const uint32_t pair =
        weir_nfa_split(nfa, weir_nfa_byte(nfa, 'd', 'd', ab), weir_nfa_byte(nfa, 'D', 'D', ab));
    const uint32_t unicode = weir_nfa_byte(nfa, 'u', 'u', weir_nfa_split(nfa, code, pair));
    const uint32_t escape = weir_nfa_byte(nfa, '\\', '\\', unicode);
    return weir_nfa_split(nfa, weir_nfa_class(nfa, &all, 1, WEIR_ENCODING_JSON, next), escape);
}
