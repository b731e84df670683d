/* engine/kv/prune/apply_policy.h - after a step, the sequence drops the rows that its policy lets go. */
#pragma once
#include "engine/kv/pool/sequence.h"
#include "engine/kv/prune/evict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Asked for pages that others hold; true: it is worth another try. */
typedef struct weir_reclaim_hook {
    bool (*make)(void *user, const weir_kv_sequence *sequence, weir_kv_pages pages);
    void *user;
} weir_reclaim_hook;
/* Drops the rows that have to go after a committed step. EFULL: shared pages cannot be copied; EIO:
 * pages cannot be read from the disk: the rows are then as they were, or as weir_kv_evict says. */
WEIR_MUST_CHECK weir_status weir_apply_policy(
    weir_kv_sequence *sequence, weir_kv_evictor *evictor, const weir_reclaim_hook *room,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
