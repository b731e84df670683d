/* engine/base/array_layout.h - places several arrays in one allocation, each at a multiple of 64
 * bytes. The same calls first measure the allocation (base NULL), then place the arrays in it. */
#pragma once
#include "engine/base/checked.h"

/* The size of a layout that is too large. No machine has as much, and a sum of a few does not
 * overflow. */
#define WEIR_ARRAYS_TOO_LARGE ((size_t)1 << 58)

typedef struct weir_arrays {
    char *base; /* NULL: only measure */
    size_t bytes; /* placed so far, a multiple of 64, at most WEIR_ARRAYS_TOO_LARGE */
} weir_arrays;

/* Places an array [a, b, c] of elements of `size` bytes. Returns NULL if it is empty, if the layout
 * becomes too large, and while measuring. */
static inline void *weir_arrays_place3(
    weir_arrays *arrays, size_t size, int64_t a, int64_t b, int64_t c
)
{
    const size_t at = arrays->bytes;
    size_t n = size;
    if (!weir_mul_size(&n, n, (size_t)a) || !weir_mul_size(&n, n, (size_t)b) ||
        !weir_mul_size(&n, n, (size_t)c) || !weir_align_size(&n, n, 64) ||
        !weir_add_size(&n, n, at) || n > WEIR_ARRAYS_TOO_LARGE) {
        arrays->bytes = WEIR_ARRAYS_TOO_LARGE;
        return NULL;
    }
    arrays->bytes = n;
    return arrays->base != NULL && n > at ? arrays->base + at : NULL;
}

static inline void *weir_arrays_place(weir_arrays *arrays, size_t size, int64_t n)
{
    return weir_arrays_place3(arrays, size, n, 1, 1);
}

/* Places an array of n elements for a pointer, whose type gives the size of an element. */
#define WEIR_ARRAYS_PLACE(arrays, member, n)                                                       \
    ((member) = weir_arrays_place((arrays), sizeof *(member), (int64_t)(n)))
