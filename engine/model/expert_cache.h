/* engine/model/expert_cache.h - the experts of a mixture in limited memory.
 *
 * An entry holds the matrices of one expert of one layer, packed as other weights are. Experts that
 * are in no entry are read from the model file by threads, over the least recently used ones. Those
 * used in most steps are pinned: never evicted. Which experts are in memory has no effect on the
 * bits of an answer: an expert's rows are multiplied by themselves. The engine thread calls all
 * functions except the last two. */
#pragma once
#include "engine/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_expert_cache weir_expert_cache;

/* Begins to use experts [n] of a layer, all different, ascending: reorders them so that those in
 * memory come first, and begins to read the others. Ends reading ahead. */
void weir_expert_cache_begin(weir_expert_cache *cache, int64_t layer, int32_t *experts, int32_t n);
/* The next *n experts, at least one, are in memory until they are given back; waits for the first.
 * EIO, EFORMAT: it cannot be read. */
WEIR_MUST_CHECK weir_status weir_expert_cache_take(weir_expert_cache *cache, int32_t *n);
void weir_expert_cache_give(weir_expert_cache *cache);
/* After a take that failed: goes on without this expert. */
void weir_expert_cache_skip(weir_expert_cache *cache);
/* Ends it, also if not all were taken. */
void weir_expert_cache_end(weir_expert_cache *cache);
/* Reads experts [n] of another layer ahead, all different, the likeliest first, after what the step
 * needs: over the least recently used ones that neither it nor this list has. */
void weir_expert_cache_prefetch(
    weir_expert_cache *cache, int64_t layer, const int32_t *experts, int32_t n
);
/* Why the first take failed since it was last told. False: none did. */
bool weir_expert_cache_problem(weir_expert_cache *cache, weir_error *out);

/* Any thread. */
void weir_expert_cache_stats(weir_expert_cache *cache, weir_expert_stats *out);
/* False: the layer has no experts. */
bool weir_expert_cache_counts(weir_expert_cache *cache, int64_t layer, weir_expert_counts *out);

#ifdef __cplusplus
}
#endif
