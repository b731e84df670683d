/* offload/marshal.c - the room that hand-overs take, planned or as they come, and one of them
 * from its beginning to its end. */
#include "offload/marshal.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "offload/marshal_internal.h"

#define STEP ((size_t)64 << 10) /* growth in whole steps */

weir_status weir_marshal_open(weir_marshaller **out, weir_device *device)
{
    weir_marshaller *const h = calloc(1, sizeof *h);
    if (h == NULL) return WEIR_ENOMEM;
    h->device = device;
    *out = h;
    return WEIR_OK;
}

void weir_marshal_close(weir_marshaller *marshaller)
{
    if (marshaller == NULL) return;
    weir_device_finish(marshaller->device);
    weir_device_free(marshaller->device, marshaller->near.memory, marshaller->near.bytes);
    weir_device_free_unified(marshaller->device, marshaller->ring.memory, marshaller->ring.bytes);
    free(marshaller->backs);
    free(marshaller);
}

/* Adds up what the call takes. */
static void measure(weir_marshaller *h, weir_op op, const void *args, size_t *ring)
{
    const size_t used = h->ring.used;
    h->measures = true;
    h->ring.used = 0;
    (void)marshal_args(h, op, args);
    h->measures = false;
    *ring = h->ring.used;
    h->ring.used = used;
}

void weir_marshal_plan_reset(weir_marshaller *marshaller)
{
    marshaller->planned_near = marshaller->planned_ring = marshaller->planned_backs = 0;
}

static size_t greater(size_t a, size_t b) { return a > b ? a : b; }

void weir_marshal_plan(weir_marshaller *marshaller, weir_op op, const void *args)
{
    size_t ring;
    marshaller->plans = true;
    measure(marshaller, op, args, &ring);
    marshaller->plans = false;
    marshaller->planned_near = greater(marshaller->planned_near, marshaller->near.used);
    marshaller->planned_ring = greater(marshaller->planned_ring, ring);
    marshaller->planned_backs = greater(marshaller->planned_backs, marshaller->n_backs);
}

/* Launches that may be under way before one has to be waited for. */
enum { CALLS = 8 };

static bool near_bytes(size_t *out, size_t bytes) { return weir_align_size(out, bytes, STEP); }
static bool ring_bytes(size_t *out, size_t bytes)
{
    return weir_align_size(out, bytes, STEP) && weir_mul_size(out, *out, CALLS);
}

weir_marshal_memory weir_marshal_planned(const weir_marshaller *marshaller)
{
    weir_marshal_memory memory;
    if (!near_bytes(&memory.device, marshaller->planned_near)) memory.device = SIZE_MAX / 2;
    if (!ring_bytes(&memory.unified, marshaller->planned_ring)) memory.unified = SIZE_MAX / 2;
    return memory;
}

weir_marshal_memory weir_marshal_held(const weir_marshaller *marshaller)
{
    return (weir_marshal_memory){ .device = marshaller->near.bytes,
                                  .unified = marshaller->ring.bytes };
}

static weir_status grow_near(weir_marshaller *h, size_t bytes)
{
    if (bytes <= h->near.bytes) return WEIR_OK;
    if (!near_bytes(&bytes, bytes)) return WEIR_ENOMEM;
    weir_device_finish(h->device); /* a queued kernel may still read it */
    weir_device_free(h->device, h->near.memory, h->near.bytes);
    h->near = (arena){ .memory = weir_device_alloc(h->device, bytes), .bytes = bytes };
    if (h->near.memory == NULL) h->near.bytes = 0;
    return h->near.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_ring(weir_marshaller *h, size_t bytes)
{
    if (bytes <= h->ring.bytes) return WEIR_OK;
    weir_device_finish(h->device);
    weir_device_free_unified(h->device, h->ring.memory, h->ring.bytes);
    h->ring = (arena){ .memory = weir_device_alloc_unified(h->device, bytes), .bytes = bytes };
    if (h->ring.memory == NULL) h->ring.bytes = 0;
    return h->ring.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_backs(weir_marshaller *h, size_t n)
{
    if (n <= h->most_backs) return WEIR_OK;
    way_back *const backs = realloc(h->backs, 2 * n * sizeof *backs);
    if (backs == NULL) return WEIR_ENOMEM;
    h->backs = backs;
    h->most_backs = 2 * n;
    return WEIR_OK;
}

weir_status weir_marshal_reserve(weir_marshaller *marshaller)
{
    WEIR_TRY(grow_near(marshaller, marshaller->planned_near));
    WEIR_TRY(grow_ring(marshaller, weir_marshal_planned(marshaller).unified));
    return grow_backs(marshaller, marshaller->planned_backs);
}

weir_status weir_marshal_begin(weir_marshaller *marshaller, weir_op op, const void *args,
                               const void **out)
{
    size_t ring;
    marshaller->is_wrong = false;
    measure(marshaller, op, args, &ring);
    WEIR_TRY(grow_near(marshaller, marshaller->near.used));
    if (ring > marshaller->ring.bytes)
        WEIR_TRY(ring_bytes(&ring, ring) ? grow_ring(marshaller, ring) : WEIR_ENOMEM);
    WEIR_TRY(grow_backs(marshaller, marshaller->n_backs));
    if (marshaller->ring.used + ring > marshaller->ring.bytes) {
        weir_device_finish(marshaller->device);
        marshaller->ring.used = 0;
    }
    *out = marshal_args(marshaller, op, args);
    return marshaller->is_wrong ? WEIR_EINVAL : WEIR_OK;
}

void weir_marshal_end(weir_marshaller *marshaller)
{
    for (size_t i = 0; i < marshaller->n_backs; i++) {
        const way_back *const back = &marshaller->backs[i];
        weir_device_copy(marshaller->device, back->dst, back->src, back->bytes);
    }
    marshaller->n_backs = 0;
}
