/* engine/schedule/reclaim_step.h - the ways to free KV memory, in the order in which they are tried
 * (reclaim.h). */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_reclaim_step {
    WEIR_RECLAIM_DEMOTE_CACHED, /* unused cached prefixes move to the lower tier, LRU first */
    WEIR_RECLAIM_CACHED, /* unused cached prefixes and pruned caches are dropped, LRU first */
    WEIR_RECLAIM_SAVED, /* a cached text that is being saved is let go, and dropped */
    WEIR_RECLAIM_PRUNED, /* the LRU pruned cache is dropped */
    WEIR_RECLAIM_DEMOTE_RUNNING, /* the oldest block of the longest sequence moves down */
    WEIR_RECLAIM_CACHED_IN_MEMORY, /* the lower tier is full or fails: prefixes are dropped */
    WEIR_RECLAIM_SHARED, /* the cache's copy of the sequence that is pruned is dropped */
    WEIR_RECLAIM_PREEMPT, /* the youngest sequence gives its pages up and waits */
    WEIR_RECLAIM_TAIL, /* the cache's share of the page that is written next is dropped */
    WEIR_RECLAIM_STEPS
} weir_reclaim_step;

/* What a step has done since opening. */
typedef struct weir_reclaim_count {
    int64_t n; /* times that it freed something */
    int64_t pages; /* that were free, or near the kernels for a demotion, because of it */
} weir_reclaim_count;

#ifdef __cplusplus
}
#endif
