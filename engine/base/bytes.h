/* engine/base/bytes.h - fields of records on disk. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool weir_bytes_are_zero(const unsigned char *at, size_t n)
{
    size_t i = 0;
    while (i < n && at[i] == 0) i++;
    return i == n;
}

/* Copies a string stored in a field of `size` bytes and padded with zeros. Returns false if it has
 * no terminator or other bytes follow the terminator. `out` has room for `size` bytes. */
static inline bool weir_bytes_text(char *out, const unsigned char *at, size_t size)
{
    memcpy(out, at, size);
    const size_t n = strnlen(out, size);
    return n < size && weir_bytes_are_zero(at + n, size - n);
}
