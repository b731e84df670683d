/* engine/formats/printable.h - validates UTF-8 of a file and makes it printable for error
 * messages. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Copies to out [size], size > 4. Bytes outside printable ASCII become '?'; longer input ends in
 * "...", because messages reach terminals and JSON answers. Returns out. */
static inline const char *weir_printable(char *out, size_t size, const char *bytes, size_t n)
{
    const size_t shown = n < size ? n : size - 4;
    for (size_t i = 0; i < shown; i++)
        out[i] = (char)(bytes[i] >= 0x20 && bytes[i] < 0x7F ? bytes[i] : '?');
    size_t end = shown;
    while (shown < n && end < shown + 3) out[end++] = '.';
    out[end] = '\0';
    return out;
}

/* Length of the UTF-8 sequence at `bytes` (1 to 4); 0 if it is malformed, overlong, a surrogate or
 * past U+10FFFF. */
static inline size_t weir_utf8_step(const unsigned char *bytes, size_t n)
{
    const unsigned char lead = bytes[0];
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((bytes[i] & 0xC0) != 0x80) return 0;
    if (lead == 0xE0 && bytes[1] < 0xA0) return 0;
    if (lead == 0xED && bytes[1] > 0x9F) return 0;
    if (lead == 0xF0 && bytes[1] < 0x90) return 0;
    if (lead == 0xF4 && bytes[1] > 0x8F) return 0;
    return length;
}

enum { WEIR_NAME_BYTES = 1024 };

/* True for a valid name of a tensor or key: 1 to WEIR_NAME_BYTES bytes of UTF-8 without NUL, so
 * that it can be a C string. */
static inline bool weir_name_valid(const char *name, size_t n)
{
    if (n == 0 || n > WEIR_NAME_BYTES) return false;
    const unsigned char *const bytes = (const unsigned char *)name;
    for (size_t i = 0, step; i < n; i += step) {
        step = weir_utf8_step(bytes + i, n - i);
        if (step == 0 || bytes[i] == '\0') return false;
    }
    return true;
}
