/* offload/marshal.h - makes the arguments of a call accessible to a device.
 *
 * Callers may pass host and device arrays. Device memory is used in place. Structs, lists and page
 * tables, which the host also reads when it plans a launch, are copied to unified memory; other
 * host arrays are copied to the device, and back if the op writes them.
 * A step's arrays are device memory, so only its segments and tables are copied; policies and tests
 * may use host memory. kernels/abi/marshal.h says how an op lists its pointers. */
#pragma once
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

WEIR_MUST_CHECK weir_status weir_marshal_open(weir_marshaller **out, weir_device *device);
void weir_marshal_close(weir_marshaller *marshaller); /* NULL-safe */

/* Computes worst-case sizes before allocation. NULL tables and lists count with the size that calls
 * will have; arrays of a step count as device memory, those of policies (masses, read rows,
 * products) as host memory. */
typedef struct weir_marshal_memory {
    size_t device; /* bytes of device memory */
    size_t unified; /* bytes of host memory that the device reads too */
} weir_marshal_memory;
void weir_marshal_plan_reset(weir_marshaller *marshaller);
void weir_marshal_plan(weir_marshaller *marshaller, weir_op op, const void *args);
/* The maximum over the calls planned since the reset. */
weir_marshal_memory weir_marshal_planned(const weir_marshaller *marshaller);
weir_marshal_memory weir_marshal_held(const weir_marshaller *marshaller);
/* Allocates what was planned. */
WEIR_MUST_CHECK weir_status weir_marshal_reserve(weir_marshaller *marshaller);

/* *out: the arguments to launch with, valid until the call is over. Returns ENOMEM if the call
 * needs more than was planned and memory ran out; EINVAL if an array that the op needs on the
 * device is host memory, or the op has no device form. */
WEIR_MUST_CHECK weir_status
weir_marshal_begin(weir_marshaller *marshaller, weir_op op, const void *args, const void **out);
/* Copies back what the op wrote. */
void weir_marshal_end(weir_marshaller *marshaller);

/* With AddressSanitizer: ends the program, with its report, if an array that marshalling would copy
 * is not there as a whole, or the first byte of another array or of a page is not. Kernels
 * themselves are instrumented in .ci/nightly only (docs/decisions/0101). Without it: nothing. */
void weir_marshal_check(weir_op op, const void *args);

#ifdef __cplusplus
}
#endif
