/* engine/base/checked.h - arithmetic on numbers that come from files, sockets and options. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a op b; false (out untouched by contract of the callers) when the result does not fit. */
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

/* Rounds up to a multiple of `alignment`, a power of two. */
static inline bool weir_align_size(size_t *out, size_t n, size_t alignment)
{
    if (!weir_add_size(out, n, alignment - 1)) return false;
    *out &= ~(alignment - 1);
    return true;
}
