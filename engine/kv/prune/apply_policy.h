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

#ifdef __cplusplus
}
#endif
