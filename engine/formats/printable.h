/* engine/formats/printable.h - names of tensors and keys, and text of a file that is printed in
 * error messages. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "engine/base/utf8.h"

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

enum { WEIR_NAME_BYTES = 1024 };

/* True for a valid name of a tensor or key: 1 to WEIR_NAME_BYTES bytes of UTF-8 without NUL, so
 * that it can be a C string. */
static inline bool weir_name_valid(const char *name, size_t n)
{
    return n > 0 && n <= WEIR_NAME_BYTES && memchr(name, 0, n) == NULL && weir_utf8_valid(name, n);
}
