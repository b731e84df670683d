/* engine/schedule/reclaim.h - frees KV memory when it is short.
 *
 * The caller says what it needs and who it is. The steps of reclaim_step.h are tried in order until
 * the need is met or no step can free more. A table in reclaim.c says which steps a caller may use.
 * Three things can be short: free pages of the pool, memory for page tables, which only sequences
 * have, and, with a lower tier, blocks of memory near the kernels. Engine thread, between steps. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/schedule/reclaim_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Holders of pages, other than the sequences of a step, that can free them. */
typedef struct weir_kv_holders {
    weir_prefix *prefix; /* NULL: nothing is cached */
    /* Returns sequence number i, or NULL past the last. May be NULL: no others. */
    weir_kv_sequence *(*running)(void *user, int32_t i);
    void *user; /* for the functions */
    /* Releases what sequences that have ended still hold. False (or NULL): there is none. */
    bool (*release_ended)(void *user);
    /* Releases what is being saved. False (or NULL): there is nothing to release. */
    bool (*release)(void *user);
    /* Preempts the youngest sequence that is younger than `after`, or the youngest of all if it is
     * NULL. False (or NULL): there is none. */
    bool (*preempt)(void *user, const weir_kv_sequence *after);
    /* A thread drops rows of a sequence: pages will be freed when it has ended. NULL: none does. */
    bool (*prunes)(void *user);
    weir_reclaim_count *counts; /* [WEIR_RECLAIM_STEPS]; NULL: not counted */
} weir_kv_holders;

typedef enum weir_reclaim_caller {
    WEIR_RECLAIM_FOR_STEP, /* before a step: pages for its rows */
    WEIR_RECLAIM_FOR_STEP_FULL, /* the step failed for lack of pages */
    WEIR_RECLAIM_FOR_MEMORY, /* blocks of memory near the kernels */
    WEIR_RECLAIM_FOR_POLICY, /* pruning a sequence failed for lack of pages */
    WEIR_RECLAIM_FOR_POLICY_FULL, /* the same, and no cached prefix could be dropped */
    WEIR_RECLAIM_FOR_SESSION, /* pages for a sequence that is read from a file */
    WEIR_RECLAIM_FOR_SESSION_FULL, /* reading it failed for lack of pages */
    WEIR_RECLAIM_CALLERS
} weir_reclaim_caller;

struct weir_batch_item;

/* A need that may be asked for several times until it is met; zero: it is new. The caller gives it
 * up by making it zero. */
typedef struct weir_reclaim_need {
    bool waits; /* out: something will be freed when a move has ended */
    int64_t n_failed; /* demotions that had failed before it was asked for */
} weir_reclaim_need;

typedef struct weir_reclaim_request {
    weir_reclaim_caller caller;
    weir_kv_store *store;
    const struct weir_batch_item *items; /* [n_items] of the step */
    int32_t n_items;
    const weir_kv_sequence *sequence; /* the sequence that is pruned, or NULL */
    weir_kv_pages pages; /* wanted, with memory for tables; MEMORY uses `blocks` instead */
    int64_t blocks; /* wanted, past the sinks */
    int32_t hot; /* blocks at the end of a sequence that stay in memory */
    weir_reclaim_need *need; /* NULL: weir_reclaim waits for moves itself */
} weir_reclaim_request;

/* Returns OK if what STEP, MEMORY or SESSION needs is free; for the other callers, if something was
 * freed, so that a retry may succeed. EFULL: nothing more can be freed now; for MEMORY the error
 * says why. If need->waits, steps that cost more were left out: ask again when a move has ended.
 * Without a need, moves are waited for: not for callers with others to run. With one, no move is
 * ended. */
WEIR_MUST_CHECK weir_status weir_reclaim(
    const weir_kv_holders *holders, const weir_reclaim_request *request, weir_error *error
);

#ifdef __cplusplus
}
#endif
