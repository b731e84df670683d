/* kernels/abi/marshal.h - how an op lists the pointers of its args, so that a device can access
 * them.
 *
 * Each op has weir_<op>_marshal(marshaller, args) next to its contract. `args` is a copy: the
 * function replaces every pointer in it by one that the device can use. It runs twice per call,
 * once to add up the bytes and once to place them, and must visit the same pointers in the same
 * order both times; lists are NULL the first time. offload/marshal.c implements these functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_marshaller weir_marshaller;

/* How the op uses an array. OUT arrays are copied to the device too: an op may leave parts of them
 * unchanged. */
typedef enum weir_marshal_use {
    WEIR_MARSHAL_IN,
    WEIR_MARSHAL_OUT,
    WEIR_MARSHAL_IN_OUT,
} weir_marshal_use;

/* True while planning: arrays that do not exist yet count with their worst-case size. */
bool weir_marshal_is_planning(const weir_marshaller *m);

/* The op has no device form: the call fails with EINVAL. */
void weir_marshal_refuse(weir_marshaller *m);
/* An array that must be device memory, or NULL; otherwise the call fails with EINVAL. */
void weir_marshal_require(weir_marshaller *m, const void *array);

/* An array that is device memory in steps; host memory is copied, and copied back if written. */
void *weir_marshal_array(weir_marshaller *m, const void *array, size_t bytes, weir_marshal_use use);
/* The same for f32 [rows, stride], of which [rows, width] is used. */
float *weir_marshal_rows(
    weir_marshaller *m, const float *array, int64_t rows, int64_t stride, int64_t width,
    weir_marshal_use use
);
/* The same for rows that policies hold in host memory. Planned with stride == width, as rows are
 * contiguous at full depth. */
float *weir_marshal_host_rows(
    weir_marshaller *m, const float *array, int64_t rows, int64_t stride, int64_t width,
    weir_marshal_use use
);

/* A list that the host also reads to plan a launch: copied to unified memory. Returns NULL while
 * the bytes are added up, and for an empty list. */
void *weir_marshal_list(weir_marshaller *m, const void *array, size_t bytes);

/* Entries [first, end) of a page table that the op uses. */
typedef struct weir_marshal_range {
    int64_t first, end;
} weir_marshal_range;
/* Page tables of n_heads heads, `stride` entries apart. The copy holds range.end entries per head;
 * entries in the range are resolved to device memory (offload/device.h), or NULL if no page is
 * mapped: the op does not use those. */
void *const *weir_marshal_pages(
    weir_marshaller *m, void *const *pages, int64_t n_heads, int64_t stride,
    weir_marshal_range range
);

#ifdef __cplusplus
}
#endif
