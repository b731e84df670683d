/* engine/schedule/reclaim.h - what happens when KV memory is short.
 *
 * Whoever is short says what it wants and who it is; the steps of reclaim_step.h are tried in
 * order, each until the wish is met or the step has nothing left to free. Which steps a caller may
 * take is a table in reclaim.c. Two things can be short: free pages of the pool, and with a lower
 * tier blocks of memory near the kernels. Engine thread, between steps. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/schedule/reclaim_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What holds pages besides the sequences of a step, and can be asked to give them up. */
typedef struct weir_kv_holders {
    weir_prefix *prefix; /* NULL: nothing is cached */
    /* Sequence number i, NULL past the last; NULL: there are no others */
    weir_kv_sequence *(*running)(void *user, int32_t i);
    void *user; /* of the functions */
    bool (*release)(void *user); /* lets go of what is being saved; NULL or false: nothing is */
    /* Preempts the youngest sequence, `behind` a given one or of all that run; NULL or false: there
     * is none. */
    bool (*preempt)(void *user, const weir_kv_sequence *behind);
    weir_reclaim_count *counts; /* [WEIR_RECLAIM_STEPS]; NULL: nothing is counted */
} weir_kv_holders;

typedef enum weir_reclaim_caller {
    WEIR_RECLAIM_FOR_STEP, /* before a step: pages for its rows */
    WEIR_RECLAIM_FOR_STEP_FULL, /* a step was refused them */
    WEIR_RECLAIM_FOR_MEMORY, /* blocks near the kernels */
    WEIR_RECLAIM_FOR_POLICY, /* pages that pruning a sequence takes were refused */
    WEIR_RECLAIM_FOR_POLICY_FULL, /* and nothing that is cached could be dropped for them */
    WEIR_RECLAIM_FOR_SESSION, /* pages for a text that is read from a file */
    WEIR_RECLAIM_FOR_SESSION_FULL, /* which were refused */
    WEIR_RECLAIM_CALLERS
} weir_reclaim_caller;

struct weir_work;

typedef struct weir_reclaim_request {
    weir_reclaim_caller caller;
    weir_kv_store *store;
    const struct weir_work *works; /* [n_works] of the step */
    int32_t n_works;
    const weir_kv_sequence *sequence; /* that is pruned; NULL: none */
    weir_kv_pages pages; /* wanted; MEMORY looks at the blocks instead */
    int64_t blocks; /* past the sinks */
    int32_t hot; /* blocks at the end of a sequence that stay in memory */
} weir_reclaim_request;

/* OK: what STEP, MEMORY and SESSION want is free; for the others something was freed, so trying
 * again may succeed. EFULL: nothing is left to free, and for MEMORY the error says why. */
WEIR_MUST_CHECK weir_status weir_reclaim(
    const weir_kv_holders *holders, const weir_reclaim_request *request, weir_error *error
);

#ifdef __cplusplus
}
#endif
