/* offload/hand_over.h - arguments of a call as a device can read them.
 *
 * Callers hand in arrays of the host and of the device alike. What the device owns stays where it is. Of the rest, structs and lists that the host reads
 * too when it plans a launch go to memory that both reach; all else, tables of pages among it, is copied to the device, and back where the op writes it.
 * So a step, whose arrays are on the device, hands over its segments and tables only, while policies and tests may use memory of the host. */
#pragma once
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_hand_over weir_hand_over;

WEIR_MUST_CHECK weir_status weir_hand_over_open(weir_hand_over **out, weir_device *device);
void                        weir_hand_over_close(weir_hand_over *hand_over); /* NULL-safe */

/* Bytes that such a call takes of a step: tables that are NULL because no page is there yet count as calls will have them, and all other arrays are the
 * device's. What policies keep on the host comes on top, when it is handed over for the first time. */
size_t weir_hand_over_measure(weir_hand_over *hand_over, weir_op op, const void *args);
/* Room for calls of so many bytes, and what it takes. */
WEIR_MUST_CHECK weir_status weir_hand_over_reserve(weir_hand_over *hand_over, size_t bytes);
size_t                      weir_hand_over_room(size_t bytes);

/* The arguments to launch with, until the call is over. ENOMEM: there is no room. */
WEIR_MUST_CHECK weir_status weir_hand_over_begin(weir_hand_over *hand_over, weir_op op, const void *args, const void **out);
/* What the op wrote comes back. */
void weir_hand_over_end(weir_hand_over *hand_over);

#ifdef __cplusplus
}
#endif
