/* tests/fault/calls.h - fails the n-th allocation or the n-th file call of a thread, and counts
 * what the thread leaves behind. calls.c must be a source of the test, not a library. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fault_calls {
    FAULT_NOTHING, /* calls are counted only */
    /* Malloc and its kin, also below libraries and operator new; new memory maps */
    FAULT_ALLOCATIONS,
    FAULT_FILES, /* open, read, write, fsync, rename, stat, mmap, close, readdir ... */
    FAULT_CHARGES /* of fault_tracker */
} fault_calls;

typedef enum fault_way {
    FAULT_ONCE, /* the n-th call fails */
    FAULT_FROM_THERE, /* and all after it */
    FAULT_INTERRUPT, /* the n-th read, write or fallocate is interrupted by a signal */
    FAULT_SHORTEN /* reads and writes from the n-th on move half of their bytes */
} fault_way;

typedef struct fault_plan {
    fault_calls calls;
    fault_way way;
    int64_t nth; /* from 0; -1: none */
} fault_plan;

typedef struct fault_report {
    int64_t n_allocations, n_files, n_charges; /* calls that were made */
    bool was_hit;
    const char *call; /* the first that failed */
    /* More than before. Blocks are 0 with AddressSanitizer, which finds leaks itself. */
    int64_t n_blocks, n_mappings, n_descriptors;
} fault_report;

/* Of the running thread. */
void fault_start(const fault_plan *plan);
fault_report fault_stop(void);
/* File calls of all other threads, of which one at a time makes any. */
void fault_start_elsewhere(const fault_plan *plan);
fault_report fault_stop_elsewhere(void);

/* Pays for whatever is asked unless the plan of the running thread refuses it. */
weir_memory_tracker *fault_tracker(void);

#ifdef __cplusplus
}
#endif
