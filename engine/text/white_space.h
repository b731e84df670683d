/* engine/text/white_space.h - white space as Unicode has it. */
#pragma once
#include "engine/base/utf8.h"

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
        const size_t last = weir_utf8_last(text, end);
        if (!weir_utf8_is_space(weir_utf8_decode(text + last, &length))) break;
        end = last;
    }
    return n - end;
}
