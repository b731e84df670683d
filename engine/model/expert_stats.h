/* engine/model/expert_stats.h - counts of a cache of experts. */
#pragma once
#include <stdint.h>

/* All 0: the model has no experts, or all are in memory. Experts are those of all layers. */
typedef struct weir_expert_stats {
    int64_t n_experts, n_slots, slot_bytes; /* in the model; in memory; bytes of one */
    int64_t hits, misses; /* experts that steps needed and that were in memory, or were not */
    int64_t bytes_read, errors;
    int64_t wait_ns; /* of the engine thread, for experts */
} weir_expert_stats;
