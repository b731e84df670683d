/* engine/schedule/reclaim_step.h - the ways to free KV memory, in the order in which reclaim.h
 * tries them. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_reclaim_step {
    WEIR_RECLAIM_DEMOTE_CACHED, /* unused cached prefixes move to the lower tier, LRU first */
    WEIR_RECLAIM_CACHED, /* unused cached prefixes and pruned caches are dropped, LRU first */
    WEIR_RECLAIM_SAVED, /* a save is stopped and its cached sequence dropped */
    WEIR_RECLAIM_PRUNED, /* the LRU pruned cache is dropped */
    WEIR_RECLAIM_DEMOTE_RUNNING, /* the oldest block of the longest sequence moves down */
    /* The lower tier is full or fails: cached prefixes in memory are dropped. */
    WEIR_RECLAIM_CACHED_IN_MEMORY,
    WEIR_RECLAIM_SHARED, /* the cached copy of the sequence that is pruned is dropped */
    WEIR_RECLAIM_PREEMPT, /* the youngest sequence frees its pages and waits */
    WEIR_RECLAIM_TAIL, /* the cached copy of the page that is written next is dropped */
    WEIR_RECLAIM_STEPS
} weir_reclaim_step;

/* What a step has freed since the service opened. */
typedef struct weir_reclaim_count {
    int64_t n; /* times that it freed something */
    /* Pages freed; for a demotion, those that began to move away from the kernels, also ahead of
     * need. */
    int64_t pages;
} weir_reclaim_count;

#ifdef __cplusplus
}
#endif
