/* engine/text/utf8.h - well-formed UTF-8 (The Unicode Standard, table 3-7), one byte at a time, and
 * repair of ill-formed text. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/text/tokenizer.h"

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

/* Length of the code point at `text` [n > 0], or of the maximal ill-formed part (*valid is then
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

/* The property White_Space. */
static inline bool weir_utf8_is_space(int32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/* Bytes of white space that well-formed text [n] begins or ends with. */
static inline size_t weir_utf8_spaces_before(const char *text, size_t n)
{
    size_t i = 0, length;
    while (i < n && weir_utf8_is_space(weir_utf8_decode(text + i, &length))) i += length;
    return i;
}
static inline size_t weir_utf8_spaces_behind(const char *text, size_t n)
{
    size_t end = n, length;
    while (end > 0) {
        size_t last = end - 1;
        while (last > 0 && ((unsigned char)text[last] & 0xC0) == 0x80) last--;
        if (!weir_utf8_is_space(weir_utf8_decode(text + last, &length))) break;
        end = last;
    }
    return n - end;
}

bool weir_utf8_valid(const char *text, size_t n);
/* Appends `text` with each maximal ill-formed part replaced by U+FFFD. Adjusts spans [n_spans] to
 * whole parts (begin down, end up). */
WEIR_MUST_CHECK weir_status
weir_utf8_repair(weir_buffer *out, const char *text, size_t n, weir_span *spans, size_t n_spans);

#ifdef __cplusplus
}
#endif
