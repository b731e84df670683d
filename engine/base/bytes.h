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

/* A text that ends within its field of `size` bytes, with zeros behind it; false if it does not.
 * `out` holds `size`. */
static inline bool weir_bytes_text(char *out, const unsigned char *at, size_t size)
{
    memcpy(out, at, size);
    const size_t n = strnlen(out, size);
    return n < size && weir_bytes_are_zero(at + n, size - n);
}
