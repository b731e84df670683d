/* engine/formats/printable.h - bytes of a file shown in an error text: printable ASCII, cut. Texts reach terminals and JSON answers. */
#pragma once
#include <stddef.h>

/* out [size], size > 4: bytes outside printable ASCII become '?', a longer text ends in "...". Returns out. */
static inline const char *weir_printable(char *out, size_t size, const char *bytes, size_t n)
{
    const size_t shown = n < size ? n : size - 4;
    for (size_t i = 0; i < shown; i++) out[i] = (char)(bytes[i] >= 0x20 && bytes[i] < 0x7F ? bytes[i] : '?');
    size_t end = shown;
    while (shown < n && end < shown + 3) out[end++] = '.';
    out[end] = '\0';
    return out;
}
