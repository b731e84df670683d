/* tests/unit/schedule/simulator/audit.h - what must hold of a service between two iterations,
 * whatever came before: pages, tables, cached sequences, bytes. */
#pragma once
#include "engine/kv/prefix/prefix.h"
#include "engine/schedule/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A choice that has a slot. */
typedef struct sim_choice {
    void *user; /* of its request */
    int64_t serial;
    int32_t index, priority;
    int32_t n_tokens, n_computed, n_answer;
    int64_t n_pages;
    bool is_waiting, is_stalled, is_reading, is_again;
    bool is_unforked; /* it waits to fork rows */
    bool is_held; /* it is what others fork, or waits with them */
    bool is_decoding; /* its next row is of the answer, and has not been computed before */
    bool is_pruning; /* stalls while the policy of a choice of its request is applied */
    bool lacks_rows; /* the rows that its policy keeps wait for memory */
    bool is_last_cold; /* the block that its next row goes to is on disk, or moves */
    bool is_returning; /* in the last plan: that block was on disk, and none read it */
    bool needs_page; /* its next row does: a new one, or a copy of a shared one */
    bool asks_memory; /* was planned when there was not enough for all */
    bool lacks_memory; /* it was planned, and left out for that */
    bool is_cold; /* some of its blocks are on disk */
    bool is_in_step; /* its request has an item of the one that runs */
    int32_t step_rows; /* in the last step */
    bool begins_block; /* while that runs: those rows do */
    bool is_piece; /* those are of a prompt */
    bool goes_first; /* as a long prompt, in that step: others may not fit in it */
    int32_t leader; /* its place in the list; -1: none */
} sim_choice;
/* Fills in the choices in order (preempt.c), at most one for each slot. Returns how many. */
int32_t sim_choices(const weir_service *service, sim_choice *out);

/* True if blocks or recurrent states move, a thread drops rows, or more sequences may be preempted
 * in the next iteration, so that memory or pages may become free. */
bool sim_moves(const weir_service *service);

/* True if a thread drops rows, or has, and the service has not seen it. */
bool sim_prunes(const weir_service *service);

/* True if c holds the tokens [n_tokens] of its sequence. */
bool sim_has_tokens(
    const weir_service *service, const sim_choice *c, const int32_t *tokens, int32_t n_tokens
);

/* What does not change while a service is open. */
typedef struct sim_fixed {
    size_t host_bytes; /* charged, without those of requests */
    int64_t n_cold_states; /* weir_prefix_limits.n_cold; each takes 4096 bytes of disk */
} sim_fixed;
size_t sim_host_bytes(const weir_service *service);

/* NULL, or what is wrong; valid until the next call. Checks that
 *   each page has as many holders as tables, the prefix cache, moves and the pruner hold it
 *   a page is free, or held by one of them
 *   each table has pages for its rows; a free slot has none
 *   invariants of the store and of the prefix cache
 *   the ledger's totals are the sums of its accounts; memory is what was charged at the beginning,
 *   disk is what the blocks and states there take
 *   the files hold no more than memory.disk on disk, freed blocks and states included */
const char *sim_audit(const weir_service *service, const sim_fixed *fixed);

#ifdef __cplusplus
}
#endif
