/* offload/marshal.c - the memory of marshalling, planned or grown on demand, and one call from
 * begin to end. */
#include "offload/marshal.h"

#include <stdlib.h>

#include "engine/base/checked.h"
#include "kernels/abi/minmax.h"
#include "offload/marshal_internal.h"

#define STEP ((size_t)64 << 10) /* memory grows in whole steps */

weir_status weir_marshal_open(weir_marshaller **out, weir_device *device)
{
    weir_marshaller *const m = calloc(1, sizeof *m);
    if (m == NULL) return WEIR_ENOMEM;
    m->device = device;
    *out = m;
    return WEIR_OK;
}

void weir_marshal_close(weir_marshaller *m)
{
    if (m == NULL) return;
    weir_device_finish(m->device);
    weir_device_free(m->device, m->copies.memory, m->copies.bytes);
    weir_device_free_unified(m->device, m->ring.memory, m->ring.bytes);
    free(m->copy_backs);
    free(m);
}

/* Adds up what the call needs: copies.used, n_copy_backs and *ring. */
static void measure(weir_marshaller *m, weir_op op, const void *args, size_t *ring)
{
    const size_t used = m->ring.used;
    m->is_measuring = true;
    m->ring.used = 0;
    (void)marshal_args(m, op, args);
    m->is_measuring = false;
    *ring = m->ring.used;
    m->ring.used = used;
}

void weir_marshal_plan_reset(weir_marshaller *m)
{
    m->planned_copies = m->planned_ring = m->planned_copy_backs = 0;
}

void weir_marshal_plan(weir_marshaller *m, weir_op op, const void *args)
{
    size_t ring;
    m->is_planning = true;
    measure(m, op, args, &ring);
    m->is_planning = false;
    m->planned_copies = weir_max_size(m->planned_copies, m->copies.used);
    m->planned_ring = weir_max_size(m->planned_ring, ring);
    m->planned_copy_backs = weir_max_size(m->planned_copy_backs, m->n_copy_backs);
}

/* Launches that may be queued before one is waited for. */
enum { QUEUED_CALLS = 8 };

static bool copies_bytes(size_t *out, size_t bytes) { return weir_align_size(out, bytes, STEP); }
static bool ring_bytes(size_t *out, size_t bytes)
{
    return weir_align_size(out, bytes, STEP) && weir_mul_size(out, *out, QUEUED_CALLS);
}

weir_marshal_memory weir_marshal_planned(const weir_marshaller *m)
{
    weir_marshal_memory memory;
    if (!copies_bytes(&memory.device, m->planned_copies)) memory.device = SIZE_MAX / 2;
    if (!ring_bytes(&memory.unified, m->planned_ring)) memory.unified = SIZE_MAX / 2;
    return memory;
}

weir_marshal_memory weir_marshal_held(const weir_marshaller *m)
{
    return (weir_marshal_memory){ .device = m->copies.bytes, .unified = m->ring.bytes };
}

static weir_status grow_copies(weir_marshaller *m, size_t bytes)
{
    if (bytes <= m->copies.bytes) return WEIR_OK;
    if (!copies_bytes(&bytes, bytes)) return WEIR_ENOMEM;
    weir_device_finish(m->device); /* a queued kernel may still read it */
    weir_device_free(m->device, m->copies.memory, m->copies.bytes);
    m->copies = (arena){ .memory = weir_device_alloc(m->device, bytes), .bytes = bytes };
    if (m->copies.memory == NULL) m->copies.bytes = 0;
    return m->copies.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_ring(weir_marshaller *m, size_t bytes)
{
    if (bytes <= m->ring.bytes) return WEIR_OK;
    weir_device_finish(m->device);
    weir_device_free_unified(m->device, m->ring.memory, m->ring.bytes);
    m->ring = (arena){ .memory = weir_device_alloc_unified(m->device, bytes), .bytes = bytes };
    if (m->ring.memory == NULL) m->ring.bytes = 0;
    return m->ring.memory != NULL ? WEIR_OK : WEIR_ENOMEM;
}

static weir_status grow_copy_backs(weir_marshaller *m, size_t n)
{
    if (n <= m->max_copy_backs) return WEIR_OK;
    copy_back *const copy_backs = realloc(m->copy_backs, 2 * n * sizeof *copy_backs);
    if (copy_backs == NULL) return WEIR_ENOMEM;
    m->copy_backs = copy_backs;
    m->max_copy_backs = 2 * n;
    return WEIR_OK;
}

weir_status weir_marshal_reserve(weir_marshaller *m)
{
    WEIR_TRY(grow_copies(m, m->planned_copies));
    WEIR_TRY(grow_ring(m, weir_marshal_planned(m).unified));
    return grow_copy_backs(m, m->planned_copy_backs);
}

weir_status weir_marshal_begin(weir_marshaller *m, weir_op op, const void *args, const void **out)
{
    size_t ring;
    m->is_invalid = false;
    measure(m, op, args, &ring);
    WEIR_TRY(grow_copies(m, m->copies.used));
    if (ring > m->ring.bytes) WEIR_TRY(ring_bytes(&ring, ring) ? grow_ring(m, ring) : WEIR_ENOMEM);
    WEIR_TRY(grow_copy_backs(m, m->n_copy_backs));
    if (m->ring.used + ring > m->ring.bytes) {
        weir_device_finish(m->device);
        m->ring.used = 0;
    }
    *out = marshal_args(m, op, args);
    return m->is_invalid ? WEIR_EINVAL : WEIR_OK;
}

void weir_marshal_end(weir_marshaller *m)
{
    for (size_t i = 0; i < m->n_copy_backs; i++) {
        const copy_back *const back = &m->copy_backs[i];
        weir_device_copy(m->device, back->dst, back->src, back->bytes);
    }
    m->n_copy_backs = 0;
}

void weir_marshal_check(weir_op op, const void *args)
{
    weir_marshaller m = { .is_checking = true };
    (void)marshal_args(&m, op, args);
}
