/* offload/hand_over.h - arguments of a call as a device can read them.
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

typedef struct weir_hand_over weir_hand_over;

WEIR_MUST_CHECK weir_status weir_hand_over_open(weir_hand_over **out, weir_device *device);
void                        weir_hand_over_close(weir_hand_over *hand_over); /* NULL-safe */

/* What calls take, found before there is anything to hand over: tables and lists that are NULL
 * count as calls will have them, arrays of a step are the device's, those that policies look at
 * (masses, rows that are read, products) the host's. Calls like these then find their room. */
typedef struct weir_hand_over_room {
    size_t near, reachable; /* bytes of the device; of the host, where both reach them */
} weir_hand_over_room;
void weir_hand_over_forget(weir_hand_over *hand_over);
void weir_hand_over_plan(weir_hand_over *hand_over, weir_op op, const void *args);
weir_hand_over_room
weir_hand_over_planned(const weir_hand_over *hand_over); /* of the largest calls since it forgot */
weir_hand_over_room weir_hand_over_held(const weir_hand_over *hand_over);
WEIR_MUST_CHECK weir_status
weir_hand_over_reserve(weir_hand_over *hand_over); /* what was planned */

/* The arguments to launch with, until the call is over. ENOMEM: it was not planned, and there is no
 * room. */
WEIR_MUST_CHECK weir_status weir_hand_over_begin(weir_hand_over *hand_over, weir_op op,
                                                 const void *args, const void **out);
/* What the op wrote comes back. */
void weir_hand_over_end(weir_hand_over *hand_over);

#ifdef __cplusplus
}
#endif
