/* engine/kv/prune/apply_policy.h - after a step, drops the rows of a sequence that its policy does
 * not keep. */
#pragma once
#include "engine/kv/pool/sequence.h"
#include "engine/kv/prune/evict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Frees pages that others hold. Returns true if retrying may succeed. */
typedef struct weir_reclaim_hook {
    bool (*reclaim)(void *user, const weir_kv_sequence *sequence, weir_kv_pages pages);
    void *user;
} weir_reclaim_hook;
/* Drops rows after a committed step. Returns EFULL if shared pages cannot be copied, EIO if pages
 * cannot be read from disk: the rows are then unchanged, or as weir_kv_evict says. */
WEIR_MUST_CHECK weir_status weir_apply_policy(
    weir_kv_sequence *sequence, weir_kv_evictor *evictor, const weir_reclaim_hook *hook,
    weir_error *error
);

/* The same in parts. Between begin and end, which change the sequence's policy only, nothing else
 * may use the policy run, whose sequences share its memory. Does not move once it has begun. */
typedef struct weir_application {
    weir_policy_sequence *own;
    const weir_kv_table *table; /* that rows are read from, by: */
    weir_kv_evictor *evictor;
    weir_error *error;
    int32_t n_computed;
    weir_policy_rows rows;
    weir_policy_budget budget;
    weir_policy_plan plan;
    weir_kv_keep keep; /* for weir_kv_evict, once it is planned */
} weir_application;
/* True if the policy was applied after the last step already. */
bool weir_policy_is_applied(const weir_kv_sequence *sequence);
/* Returns false if the policy is not due, and therefore applied. */
bool weir_application_begin(weir_application *application, const weir_kv_sequence *sequence);
/* Finds the rows that stay: reads the table, which may be a copy of the sequence's. May be called
 * by a thread. Returns what reading returned; then, too, it may begin again. */
WEIR_MUST_CHECK weir_status weir_application_plan(
    weir_application *application, weir_kv_evictor *evictor, const weir_kv_table *table,
    weir_error *error
);
/* The rows of `keep` were evicted. */
void weir_application_end(weir_application *application);

#ifdef __cplusplus
}
#endif
