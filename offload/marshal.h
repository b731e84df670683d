/* offload/marshal.h - gives a call's arguments to a device.
 *
 * Callers pass arrays of the host and of the device alike. Device memory is used where it is.
 * Structs, lists and page tables, which the host also reads when it plans a launch, are copied to
 * unified memory; other host arrays are copied to the device, and back if the op writes them.
 * A step's arrays are device memory, so only its segments and tables are copied; policies and tests
 * may use host memory. kernels/abi/marshal.h says how an op lists its pointers. */
#pragma once
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

WEIR_MUST_CHECK weir_status weir_marshal_open(weir_marshaller **out, weir_device *device);
void weir_marshal_close(weir_marshaller *marshaller); /* NULL-safe */

/* Worst-case sizes, computed before allocation. Tables and lists that are NULL count as calls will
 * have them; arrays of a step count as device memory, those of policies (masses, read rows,
 * products) as host memory. */
typedef struct weir_marshal_memory {
    size_t device; /* bytes of the device */
    size_t unified; /* bytes of the host that the device reads too */
} weir_marshal_memory;
void weir_marshal_plan_reset(weir_marshaller *marshaller);
void weir_marshal_plan(weir_marshaller *marshaller, weir_op op, const void *args);
/* Of the largest calls planned since the reset. */
weir_marshal_memory weir_marshal_planned(const weir_marshaller *marshaller);
weir_marshal_memory weir_marshal_held(const weir_marshaller *marshaller);
WEIR_MUST_CHECK weir_status weir_marshal_reserve(weir_marshaller *marshaller); /* as planned */

/* *out: the arguments to launch with, valid until the call is over. ENOMEM: more than was planned,
 * and no memory is left; EINVAL: an array that the op needs on the device is host memory, or the op
 * has no device form. */
WEIR_MUST_CHECK weir_status
weir_marshal_begin(weir_marshaller *marshaller, weir_op op, const void *args, const void **out);
/* Copies back what the op wrote. */
void weir_marshal_end(weir_marshaller *marshaller);

#ifdef __cplusplus
}
#endif
