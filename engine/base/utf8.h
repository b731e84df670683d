/* engine/base/utf8.h - UTF-8, well-formed as in The Unicode Standard, table 3-7: no overlong form,
 * no surrogate, nothing past U+10FFFF. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_UTF8_REPLACEMENT "\xEF\xBF\xBD"

/* Length of the code point that begins with `lead`; 0: none does. */
static inline int weir_utf8_length(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

/* True if `byte` is valid at position `at` (1 to 3) after `lead`. The second byte alone excludes
 * overlong forms, surrogates and values past U+10FFFF. */
static inline bool weir_utf8_continues(unsigned char lead, int at, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xBF;
    if (at == 1) {
        if (lead == 0xE0)
            low = 0xA0;
        else if (lead == 0xED)
            high = 0x9F;
        else if (lead == 0xF0)
            low = 0x90;
        else if (lead == 0xF4)
            high = 0x8F;
    }
    return byte >= low && byte <= high;
}

/* Length of the code point at text [n], n > 0, or of the maximal ill-formed part (*valid is then
 * false). */
static inline size_t weir_utf8_step(const char *text, size_t n, bool *valid)
{
    const unsigned char lead = (unsigned char)text[0];
    const int length = weir_utf8_length(lead);
    size_t have = 1;
    while (have < (size_t)length && have < n &&
           weir_utf8_continues(lead, (int)have, (unsigned char)text[have]))
        have++;
    *valid = length > 0 && have == (size_t)length;
    return have;
}

/* Length of the code point at text [n], n > 0; 0: ill-formed or truncated. */
static inline size_t weir_utf8_sequence(const char *text, size_t n)
{
    bool valid;
    const size_t length = weir_utf8_step(text, n, &valid);
    return valid ? length : 0;
}

/* Decodes the code point at well-formed `text`; *length is its size. */
static inline int32_t weir_utf8_decode(const char *text, size_t *length)
{
    static const unsigned char mask[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    const unsigned char *const bytes = (const unsigned char *)text;
    const int n = weir_utf8_length(bytes[0]);
    int32_t code = bytes[0] & mask[n];
    for (int i = 1; i < n; i++) code = code << 6 | (bytes[i] & 0x3F);
    *length = (size_t)n;
    return code;
}

/* Decodes the code point at text [n], n > 0. Returns its length; 0: ill-formed or truncated, and
 * *code stays. */
static inline size_t weir_utf8_next(uint32_t *code, const char *text, size_t n)
{
    size_t length = weir_utf8_sequence(text, n);
    if (length > 0) *code = (uint32_t)weir_utf8_decode(text, &length);
    return length;
}

/* Where the last code point of well-formed text [n], n > 0, begins. */
static inline size_t weir_utf8_last(const char *text, size_t n)
{
    size_t last = n - 1;
    while (last > 0 && ((unsigned char)text[last] & 0xC0) == 0x80) last--;
    return last;
}

/* Writes code <= 0x10FFFF, also a surrogate, and returns its length. */
static inline size_t weir_utf8_encode(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00 >> n & 0xFF) | code);
    return n;
}

bool weir_utf8_valid(const char *text, size_t n);

#ifdef __cplusplus
}
#endif
