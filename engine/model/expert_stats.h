/* engine/model/expert_stats.h - counts of a cache of experts. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Since the start, of a layer or of all. */
typedef struct weir_expert_counts {
    /* Experts that steps needed: in memory or being read ahead; read when they were needed. */
    int64_t hits, misses;
    /* Read ahead; of these, needed before they were evicted (also hits); dropped unused, or not
     * read for an error. */
    int64_t prefetched, prefetch_used, prefetch_unused;
    int64_t bytes_read;
    int64_t pinned; /* now */
} weir_expert_counts;

static inline void weir_expert_counts_add(weir_expert_counts *all, const weir_expert_counts *layer)
{
    all->hits += layer->hits;
    all->misses += layer->misses;
    all->prefetched += layer->prefetched;
    all->prefetch_used += layer->prefetch_used;
    all->prefetch_unused += layer->prefetch_unused;
    all->bytes_read += layer->bytes_read;
    all->pinned += layer->pinned;
}

/* All 0: the model has no experts, or all are in memory. Experts are those of all layers. */
typedef struct weir_expert_stats {
    int64_t n_experts, n_entries, entry_bytes; /* in the model; in memory; bytes of one */
    weir_expert_counts all;
    int64_t errors;
    int64_t waits, wait_ns; /* of the engine thread, for experts */
    bool is_direct; /* reads go past the page cache */
} weir_expert_stats;
