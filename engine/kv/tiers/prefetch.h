/* engine/kv/tiers/prefetch.h - reads cold blocks ahead for attention, which uses them once or twice
 * per layer and step and keeps none.
 *
 * A segment (the rows of one sequence in a step) with cold blocks is attended in ranges of
 * splits, each with as many cold blocks as a buffer holds. The order of reads is known when a step
 * begins: the layers that read KV, in order; for each the segments with cold blocks; for each the
 * ranges, ascending. If a layer's attention mass is observed, its segments are read a second time
 * before the next layer.
 *
 * A thread follows this order ahead of the engine thread and fills a ring of buffers, so that
 * reads overlap with the step's computation. With a device the ring is device memory, and a buffer
 * is filled again once the launches that read it have ended.
 *
 * A block that cannot be read is zeros for attention: rows of other sequences are not affected,
 * and the segment is reported as failed. What a step attends to does not move. All but the
 * ring belongs to the engine thread. Allocates nothing after opening. */
#pragma once
#include "engine/kv/tiers/range.h"
#include "engine/kv/tiers/residency.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_kv_prefetch weir_kv_prefetch;

typedef struct weir_kv_prefetch_limits {
    int32_t segments; /* of a step */
    const weir_kv_reader *readers; /* [n_readers], borrowed, must outlive the prefetch */
    int64_t n_readers;
} weir_kv_prefetch_limits;

/* Bytes on the account activations: on the host, and near the kernels. */
size_t weir_kv_prefetch_bytes(const weir_kv_spec *spec, int32_t segments);
size_t weir_kv_prefetch_device_bytes(const weir_kv_spec *spec);
/* Bytes that it reads at a time, if that many are contiguous in the lower tier. */
size_t weir_kv_prefetch_read_bytes(const weir_kv_spec *spec);
WEIR_MUST_CHECK weir_status weir_kv_prefetch_open(
    weir_kv_prefetch **out, const weir_kv_spec *spec, const weir_kv_prefetch_limits *limits,
    weir_ledger *ledger, weir_error *error
);
void weir_kv_prefetch_close(weir_kv_prefetch *prefetch); /* NULL-safe; between steps */

/* While the engine thread waits for a block it calls `run`, which may run steps of sequences
 * without cold blocks, until the block is there; false: there was nothing to run, so it sleeps.
 * Until `run` returns no move of the views' blocks ends. `listener`: what the reading thread calls
 * when blocks are there. Both NULL: it sleeps. Between steps. */
void weir_kv_prefetch_run_others(
    weir_kv_prefetch *prefetch, bool (*run)(void *user), void (*listener)(void *user), void *user
);

/* One segment's rows and table; rows [0, n_past + n_rows) have pages. */
typedef struct weir_kv_view {
    void *const *pages; /* [KV heads of all layers, stride] */
    int64_t stride;
    int32_t n_past, n_rows;
    bool is_reread; /* read twice by each layer that can be observed */
    int32_t n_cold, end_cold; /* blocks in the lower tier, all before end_cold (residency.h) */
} weir_kv_view;

/* [limits.segments], to be filled in by the caller for the next step. */
weir_kv_view *weir_kv_prefetch_views(const weir_kv_prefetch *prefetch);
/* Begins a step over the first n_views of them. Returns false if all blocks are in memory; then
 * there is nothing to end. */
bool weir_kv_prefetch_begin(weir_kv_prefetch *prefetch, weir_kv_store *store, int32_t n_views);
/* Ends the step, even if not all ranges were taken. */
void weir_kv_prefetch_end(weir_kv_prefetch *prefetch);

/* True if the segment has cold blocks in this layer and is read in ranges. */
bool weir_kv_prefetch_is_cold(const weir_kv_prefetch *prefetch, int64_t layer, int32_t segment);
/* Takes the next range, in the order above. Its pages can be read until it is given back, which
 * must be done before the next is taken. */
void weir_kv_prefetch_take(
    weir_kv_prefetch *prefetch, int64_t layer, int32_t segment, weir_kv_range *range
);
void weir_kv_prefetch_give(weir_kv_prefetch *prefetch);
/* True if some of its blocks could not be read in the last step; those are unreadable now
 * (residency.h). `why`: a message, valid until the next step. */
bool weir_kv_prefetch_failed(const weir_kv_prefetch *prefetch, int32_t segment, const char **why);
/* For tests: how often it looked where a block is, since opening: once per step for each block up
 * to the last one in the lower tier. */
int64_t weir_kv_prefetch_lookups(const weir_kv_prefetch *prefetch);

#ifdef __cplusplus
}
#endif
