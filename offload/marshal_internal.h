/* offload/marshal_internal.h - internal state of marshalling one call. */
#pragma once
#include "offload/marshal.h"

typedef struct arena {
    char *memory;
    size_t bytes, used;
} arena;

typedef struct copy_back {
    void *dst;
    const void *src;
    size_t bytes;
} copy_back;

struct weir_marshaller {
    weir_device *device;
    arena copies; /* device memory for the call's host arrays */
    /* Unified memory for lists and tables; queued launches may still read it. */
    arena ring;
    copy_back *copy_backs; /* [max_copy_backs] */
    size_t n_copy_backs, max_copy_backs;
    bool is_measuring; /* only adds up bytes */
    /* With is_measuring: absent arrays count with their worst-case size. */
    bool is_planning;
    bool is_checking; /* nothing is placed: arrays are looked at */
    bool is_invalid; /* the op cannot be launched with these arguments */
    size_t planned_copies, planned_ring, planned_copy_backs;
    union {
#define WEIR_OP(NAME, name, where, launches) weir_##name##_args name;
#include "kernels/abi/ops.inc"
    } args; /* of the call */
};

/* marshal_arrays.c: visits all pointers of the call. Returns the arguments to launch with; while
 * measuring, adds up what they need and returns NULL pointers. */
const void *marshal_args(weir_marshaller *m, weir_op op, const void *args);
