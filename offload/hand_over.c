/* offload/hand_over.c - the room that hand-overs take, planned or as they come, and one of them
 * from its beginning to its end. */
#include "offload/hand_over.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "offload/hand_over_internal.h"

#define STEP ((size_t)64 << 10) /* growth in whole steps */

weir_status weir_hand_over_open(weir_hand_over **out, weir_device *device)
{
    weir_hand_over *const h = calloc(1, sizeof *h);
    if (h == NULL) return WEIR_ENOMEM;
    h->device = device;
    *out = h;
    return WEIR_OK;
}

void weir_hand_over_close(weir_hand_over *hand_over)
{
    if (hand_over == NULL) return;
    weir_device_finish(hand_over->device);
    weir_device_free(hand_over->device, hand_over->near.memory, hand_over->near.bytes);
    weir_device_free_reachable(hand_over->device, hand_over->ring.memory, hand_over->ring.bytes);
    free(hand_over->backs);
    free(hand_over);
}

/* Adds up what the call takes. */
static void measure(weir_hand_over *h, weir_op op, const void *args, size_t *ring)
{
    const size_t used = h->ring.used;
    h->measures = true;
    h->ring.used = 0;
    (void)hand_over_walk(h, op, args);
    h->measures = false;
    *ring = h->ring.used;
    h->ring.used = used;
}

void weir_hand_over_forget(weir_hand_over *hand_over)
{
    hand_over->planned_near = hand_over->planned_ring = hand_over->planned_backs = 0;
}

static size_t greater(size_t a, size_t b) { return a > b ? a : b; }

void weir_hand_over_plan(weir_hand_over *hand_over, weir_op op, const void *args)
{
    size_t ring;
    hand_over->plans = true;
    measure(hand_over, op, args, &ring);
    hand_over->plans = false;
    hand_over->planned_near = greater(hand_over->planned_near, hand_over->near.used);
    hand_over->planned_ring = greater(hand_over->planned_ring, ring);
    hand_over->planned_backs = greater(hand_over->planned_backs, hand_over->n_backs);
}

/* Launches that may be under way before one has to be waited for. */
enum { CALLS = 8 };

static bool near_bytes(size_t *out, size_t bytes) { return weir_align_size(out, bytes, STEP); }
static bool ring_bytes(size_t *out, size_t bytes)
{
    return weir_align_size(out, bytes, STEP) && weir_mul_size(out, *out, CALLS);
}

weir_hand_over_room weir_hand_over_planned(const weir_hand_over *hand_over)
{
    weir_hand_over_room room;
    if (!near_bytes(&room.near, hand_over->planned_near)) room.near = SIZE_MAX / 2;
    if (!ring_bytes(&room.reachable, hand_over->planned_ring)) room.reachable = SIZE_MAX / 2;
    return room;
}

weir_hand_over_room weir_hand_over_held(const weir_hand_over *hand_over)
{
    return (weir_hand_over_room){ .near = hand_over->near.bytes,
                                  .reachable = hand_over->ring.bytes };
}

static weir_status grow_near(weir_hand_over *h, size_t bytes)
{
    if (bytes <= h->near.bytes) return WEIR_OK;
    if (!near_bytes(&bytes, bytes)) return WEIR_ENOMEM;
    weir_device_finish(h->device); /* a queued kernel may still read it */
    weir_device_free(h->device, h->near.memory, h->near.bytes);
    h->near = (arena){ .memory = weir_device_alloc(h->device, bytes), .bytes = bytes };
    if (h->near.memory == NULL) h->near.bytes = 0;
    return h->near.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_ring(weir_hand_over *h, size_t bytes)
{
    if (bytes <= h->ring.bytes) return WEIR_OK;
    weir_device_finish(h->device);
    weir_device_free_reachable(h->device, h->ring.memory, h->ring.bytes);
    h->ring = (arena){ .memory = weir_device_alloc_reachable(h->device, bytes), .bytes = bytes };
    if (h->ring.memory == NULL) h->ring.bytes = 0;
    return h->ring.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_backs(weir_hand_over *h, size_t n)
{
    if (n <= h->most_backs) return WEIR_OK;
    way_back *const backs = realloc(h->backs, 2 * n * sizeof *backs);
    if (backs == NULL) return WEIR_ENOMEM;
    h->backs = backs;
    h->most_backs = 2 * n;
    return WEIR_OK;
}

weir_status weir_hand_over_reserve(weir_hand_over *hand_over)
{
    WEIR_TRY(grow_near(hand_over, hand_over->planned_near));
    WEIR_TRY(grow_ring(hand_over, weir_hand_over_planned(hand_over).reachable));
    return grow_backs(hand_over, hand_over->planned_backs);
}

weir_status weir_hand_over_begin(weir_hand_over *hand_over, weir_op op, const void *args,
                                 const void **out)
{
    size_t ring;
    hand_over->is_wrong = false;
    measure(hand_over, op, args, &ring);
    WEIR_TRY(grow_near(hand_over, hand_over->near.used));
    if (ring > hand_over->ring.bytes)
        WEIR_TRY(ring_bytes(&ring, ring) ? grow_ring(hand_over, ring) : WEIR_ENOMEM);
    WEIR_TRY(grow_backs(hand_over, hand_over->n_backs));
    if (hand_over->ring.used + ring > hand_over->ring.bytes) {
        weir_device_finish(hand_over->device);
        hand_over->ring.used = 0;
    }
    *out = hand_over_walk(hand_over, op, args);
    return hand_over->is_wrong ? WEIR_EINVAL : WEIR_OK;
}

void weir_hand_over_end(weir_hand_over *hand_over)
{
    for (size_t i = 0; i < hand_over->n_backs; i++) {
        const way_back *const back = &hand_over->backs[i];
        weir_device_copy(hand_over->device, back->dst, back->src, back->bytes);
    }
    hand_over->n_backs = 0;
}
