/* engine/base/utf8.c - validation with a fast path for ASCII. */
#include "engine/base/utf8.h"

#include <string.h>

static size_t ascii_run(const char *text, size_t n)
{
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        if ((word & 0x8080808080808080ULL) != 0) break;
    }
    while (i < n && (unsigned char)text[i] < 0x80) i++;
    return i;
}

bool weir_utf8_valid(const char *text, size_t n)
{
    bool valid = true;
    for (size_t i = ascii_run(text, n); i < n && valid; i += ascii_run(text + i, n - i))
        i += weir_utf8_step(text + i, n - i, &valid);
    return valid;
}
