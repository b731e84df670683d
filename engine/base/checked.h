/* engine/base/checked.h - arithmetic on numbers that come from files, sockets and options. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Computes *out = a op b. Returns false if the result overflows; *out is then undefined. */
static inline bool weir_mul_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool weir_add_size(size_t *out, size_t a, size_t b)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool weir_mul_i64(int64_t *out, int64_t a, int64_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool weir_add_i64(int64_t *out, int64_t a, int64_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds n up to a multiple of `alignment`, a power of two. Returns false on overflow. */
static inline bool weir_align_size(size_t *out, size_t n, size_t alignment)
{
    if (!weir_add_size(out, n, alignment - 1)) return false;
    *out &= ~(alignment - 1);
    return true;
}
