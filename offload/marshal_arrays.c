/* offload/marshal_arrays.c - measures or places one array of a call, and visits all arrays of an op
 * (kernels/abi/marshal.h).
 *
 * Lists that the host reads too are in a ring: a queued launch may still read its list while the
 * next one is prepared. Other copies are ordered with the launches. */
#include <string.h>

#include "engine/base/checked.h"
#include "offload/marshal_internal.h"

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
/* Reads the first byte that may not be used, which the sanitizer reports. */
static void check(const void *array, size_t bytes)
{
    const volatile char *const bad =
        array != NULL ? __asan_region_is_poisoned((void *)(uintptr_t)array, bytes) : NULL;
    if (bad != NULL) (void)*bad;
}
#else
static void check(const void *array, size_t bytes) { (void)array, (void)bytes; }
#endif

static void *place(arena *a, bool is_measuring, size_t bytes)
{
    size_t rounded;
    WEIR_ASSERT(weir_align_size(&rounded, bytes, 64) && weir_add_size(&a->used, a->used, rounded));
    if (is_measuring) return NULL;
    WEIR_ASSERT(a->used <= a->bytes);
    return a->memory + a->used - rounded;
}

static void *copy_in(weir_marshaller *m, const void *array, size_t bytes, weir_marshal_use use)
{
    void *const copy = place(&m->copies, m->is_measuring, bytes);
    if (use != WEIR_MARSHAL_IN) {
        m->n_copy_backs++;
        if (!m->is_measuring)
            m->copy_backs[m->n_copy_backs - 1] =
                (copy_back){ (void *)(uintptr_t)array, copy, bytes };
    }
    if (!m->is_measuring) weir_device_copy(m->device, copy, array, bytes);
    return copy;
}

static bool is_on_device(const weir_marshaller *m, const void *array, size_t bytes)
{
    return array == NULL || bytes == 0 || (!m->is_planning && weir_device_owns(m->device, array));
}

bool weir_marshal_is_planning(const weir_marshaller *m) { return m->is_planning; }

void weir_marshal_refuse(weir_marshaller *m) { m->is_invalid = true; }

void weir_marshal_require(weir_marshaller *m, const void *array)
{
    if (m->is_checking)
        check(array, 1);
    else if (array != NULL && !m->is_measuring && !weir_device_owns(m->device, array))
        m->is_invalid = true;
}

void *weir_marshal_array(weir_marshaller *m, const void *array, size_t bytes, weir_marshal_use use)
{
    if (m->is_checking) check(array, bytes);
    return m->is_planning || m->is_checking || is_on_device(m, array, bytes)
               ? (void *)(uintptr_t)array
               : copy_in(m, array, bytes, use);
}

static size_t floats(int64_t rows, int64_t stride, int64_t width)
{
    return rows > 0 ? (size_t)((rows - 1) * stride + width) * sizeof(float) : 0;
}

float *weir_marshal_rows(
    weir_marshaller *m, const float *array, int64_t rows, int64_t stride, int64_t width,
    weir_marshal_use use
)
{
    return weir_marshal_array(m, array, floats(rows, stride, width), use);
}

float *weir_marshal_host_rows(
    weir_marshaller *m, const float *array, int64_t rows, int64_t stride, int64_t width,
    weir_marshal_use use
)
{
    const size_t bytes = floats(rows, m->is_planning ? width : stride, width);
    if (m->is_checking) return weir_marshal_array(m, array, bytes, use);
    return is_on_device(m, array, bytes) ? (float *)(uintptr_t)array
                                         : copy_in(m, array, bytes, use);
}

void *weir_marshal_list(weir_marshaller *m, const void *array, size_t bytes)
{
    if ((array == NULL && !m->is_planning) || bytes == 0) return NULL;
    if (m->is_checking) {
        check(array, bytes);
        return NULL;
    }
    void *const copy = place(&m->ring, m->is_measuring, bytes);
    if (!m->is_measuring) memcpy(copy, array, bytes);
    return copy;
}

void *const *weir_marshal_pages(
    weir_marshaller *m, void *const *pages, int64_t n_heads, int64_t stride,
    weir_marshal_range range
)
{
    if ((pages == NULL && !m->is_planning) || range.end <= 0) return NULL;
    for (int64_t i = 0; m->is_checking && i < n_heads; i++)
        for (int64_t page = range.first; page < range.end; page++)
            check(pages[i * stride + page], 1);
    if (m->is_checking) return NULL;
    const int64_t n = n_heads * range.end;
    void **const copy = place(&m->ring, m->is_measuring, (size_t)n * sizeof *copy);
    for (int64_t i = 0; !m->is_measuring && i < n_heads; i++)
        for (int64_t page = range.first; page < range.end; page++)
            copy[i * range.end + page] = weir_device_resolve(m->device, pages[i * stride + page]);
    return copy;
}

const void *marshal_args(weir_marshaller *m, weir_op op, const void *args)
{
    m->copies.used = m->n_copy_backs = 0;
    switch (op) {
#define WEIR_OP(NAME, name, where, launches)                                                       \
    case WEIR_OP_##NAME:                                                                           \
        m->args.name = *(const weir_##name##_args *)args;                                          \
        weir_##name##_marshal(m, &m->args.name);                                                   \
        return &m->args.name;
#include "kernels/abi/ops.inc"
    case WEIR_OP_COUNT: break;
    }
    WEIR_ASSERT(op < WEIR_OP_COUNT);
    return NULL;
}
