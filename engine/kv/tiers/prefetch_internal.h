/* engine/kv/tiers/prefetch_internal.h - shared by the thread that reads ahead and the engine's. */
#pragma once
#include "engine/base/worker.h"
#include "engine/kv/tiers/prefetch.h"
#include "engine/kv/tiers/residency_internal.h"
#include "kernels/abi/ops.h"

enum {
    /* Of the ring: one is read by attention, one is being filled, the others are ahead. */
    KV_PREFETCH_BUFFERS = 4,
    KV_SPLIT_BLOCKS = WEIR_ATTENTION_SPLIT / WEIR_PAGE_TOKENS,
};

_Static_assert(
    (int)KV_PREFETCH_BUFFERS <= (int)WEIR_DEVICE_EVENTS, "each buffer has an event of its own"
);

/* A cold block of a segment, and its index in the lower tier. */
typedef struct kv_cold_block {
    int32_t block, place;
} kv_cold_block;

/* Splits [first_split, end_split) of a segment in a layer: blocks [first, end) contain what its
 * rows see of them, n_cold of them cold, from number first_cold of the segment's cold ones on. */
typedef struct kv_prefetch_span {
    int32_t first_split, end_split, first, end, first_cold, n_cold;
    bool is_last;
} kv_prefetch_span;

/* What a buffer was filled for. */
typedef struct kv_staged_for {
    int64_t layer;
    int32_t segment, first_split;
} kv_staged_for;

typedef struct kv_prefetch_sizes {
    /* Of one buffer; of all of them; of the arrays in addition. */
    size_t buffer, near_bytes, bytes;
    int64_t blocks; /* that fit in a buffer */
    int64_t stride; /* of the table: blocks of the window */
} kv_prefetch_sizes;

struct weir_kv_prefetch {
    weir_ledger *ledger;
    weir_kv_spec spec;
    kv_prefetch_sizes sizes;
    weir_device *device; /* NULL: the CPU */
    void *memory; /* owns the arrays */
    /* Buffers: [KV_PREFETCH_BUFFERS, sizes.buffer] of [blocks, KV heads] pages each, in `near`,
     * which is owned. */
    char *near, *buffers;
    void **table; /* [KV heads of a layer, stride] pages of the range taken */
    weir_kv_view *views; /* [max_views] */
    const weir_kv_reader *readers; /* [n_readers] */
    int64_t n_readers;
    kv_cold_block *cold; /* [max_views, stride] of the step's segments, ascending */
    int32_t *n_cold; /* [max_views] */
    bool *failed; /* [max_views] */
    bool *bad; /* [KV_PREFETCH_BUFFERS, blocks] could not be read */
    kv_staged_for staged[KV_PREFETCH_BUFFERS]; /* as filled last */
    /* next_split: of the current segment. */
    int32_t max_views, n_views, next_split;
    kv_prefetch_span taken;
    weir_kv_store *store; /* during a step */
    weir_error why; /* the engine thread's copy of `error` */
    int64_t n_lookups;
    bool (*run_others)(void *user); /* NULL: the engine thread sleeps while it waits */
    void *others;
    int64_t alone_until_ns; /* the others are not run before: the disk waited for them */

    weir_worker worker;
    int64_t filled, emptied; /* (lock) buffers since the step began */
    int64_t full_since_ns; /* (lock) valid while all buffers are filled */
    /* (lock) is_reading: the step's reads are not done; is_stopped: they are no longer needed. */
    bool is_reading, is_stopped;
    weir_error error; /* (lock) the first error of the step */
};

static inline int64_t kv_prefetch_blocks(int64_t rows)
{
    return (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
}
/* The step's cold blocks of a segment. */
static inline const kv_cold_block *kv_cold_of(const weir_kv_prefetch *s, int32_t segment)
{
    return s->cold + segment * s->sizes.stride;
}

/* prefetch_reader.c: the order of reading, the same for both threads: as many splits from this one
 * on as have cold blocks for one buffer, at least one. */
kv_prefetch_span kv_prefetch_next(
    const weir_kv_prefetch *s, int64_t layer, int32_t segment, int32_t first_split
);
/* The thread. */
void *kv_prefetch_read(void *user);
