/* offload/marshal.h - arguments of a call as a device can read them.
 *
 * Callers hand in arrays of the host and of the device alike. What the device owns stays where it
 * is. Of the rest, structs, lists and tables of pages, which the host reads too when it plans a
 * launch, go to memory that both reach; all else is copied to the device, and back where the op
 * writes it. So a step, whose arrays are on the device, hands over its segments and tables only,
 * while policies and tests may use memory of the host. */
#pragma once
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_marshaller weir_marshaller;

WEIR_MUST_CHECK weir_status weir_marshal_open(weir_marshaller **out, weir_device *device);
void                        weir_marshal_close(weir_marshaller *marshaller); /* NULL-safe */

/* What calls take, found before there is anything to hand over: tables and lists that are NULL
 * count as calls will have them, arrays of a step are the device's, those that policies look at
 * (masses, rows that are read, products) the host's. Calls like these then find their room. */
typedef struct weir_marshal_memory {
    size_t device, unified; /* bytes of the device; of the host, where both reach them */
} weir_marshal_memory;
void weir_marshal_plan_reset(weir_marshaller *marshaller);
void weir_marshal_plan(weir_marshaller *marshaller, weir_op op, const void *args);
weir_marshal_memory
weir_marshal_planned(const weir_marshaller *marshaller); /* of the largest calls since it forgot */
weir_marshal_memory weir_marshal_held(const weir_marshaller *marshaller);
WEIR_MUST_CHECK weir_status
weir_marshal_reserve(weir_marshaller *marshaller); /* what was planned */

/* The arguments to launch with, until the call is over. ENOMEM: it was not planned, and there is no
 * room. */
WEIR_MUST_CHECK weir_status weir_marshal_begin(weir_marshaller *marshaller, weir_op op,
                                               const void *args, const void **out);
/* What the op wrote comes back. */
void weir_marshal_end(weir_marshaller *marshaller);

#ifdef __cplusplus
}
#endif
