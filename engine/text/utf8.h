/* engine/text/utf8.h - the shape of well-formed UTF-8 (The Unicode Standard, table 3-7), one byte
 * at a time; repair of what is not. */
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

/* Bytes of the code point that `lead` begins; 0: no code point begins so. */
static inline int weir_utf8_length(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

/* Whether `byte` may stand at position `at` (1 to 3) after `lead`. The second byte alone shuts out
 * overlong forms, surrogates and what is past U+10FFFF. */
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

/* Length of the code point at `text` [n > 0], or of the maximal ill-formed part there (*valid
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

/* The code point at well-formed `text`; *length its bytes. */
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

bool weir_utf8_valid(const char *text, size_t n);
/* Appends `text` with each maximal ill-formed part as U+FFFD; spans [n_spans] are moved along
 * (begin down, end up, to whole parts). */
WEIR_MUST_CHECK weir_status
weir_utf8_repair(weir_buffer *out, const char *text, size_t n, weir_span *spans, size_t n_spans);

#ifdef __cplusplus
}
#endif
