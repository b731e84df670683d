/* engine/kv/prune/pruner.h - applies policies to sequences with blocks on disk: a thread reads what
 * the policy scores, and moves the rows that stay to new pages (docs/decisions/0054).
 *
 *   begin -> (thread: plans) -> end -> move -> (thread: moves rows) -> end
 *
 * One sequence at a time. It must not be computed, truncated or given another policy until then,
 * and nothing else may use its policy run; or else it is stopped first. Its pages are held while
 * the thread works, so blocks may move between tiers, and the sequence may be gone. Host only.
 * Engine thread, between steps. */
#pragma once
#include "engine/kv/prune/apply_policy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_pruner weir_pruner;

/* Bytes on the account activations; 0: no rows can be evicted, or there is no lower tier. */
size_t weir_pruner_bytes(const weir_kv_spec *spec);
/* `store` is borrowed, as is `stream`, which the thread uses alone. */
WEIR_MUST_CHECK weir_status weir_pruner_open(
    weir_pruner **out, weir_kv_store *store, weir_stream *stream, weir_ledger *ledger,
    weir_error *error
);
void weir_pruner_close(weir_pruner *pruner); /* NULL-safe; before the store */
/* Sets what the thread calls each time that `end` may succeed (weir_worker_listen). */
void weir_pruner_listen(weir_pruner *pruner, void (*listener)(void *user), void *user);

/* True from begin or move until `end` has returned true. */
bool weir_pruner_is_busy(const weir_pruner *pruner);
/* NULL: none, or it is stopped and must not be touched any more. */
const weir_kv_sequence *weir_pruner_sequence(const weir_pruner *pruner);
/* True if the thread may use the policy run. */
bool weir_pruner_uses(const weir_pruner *pruner, const weir_policy_sequence *sequence);

/* True if it may begin: it is not busy, and has no sequence. */
bool weir_pruner_is_idle(const weir_pruner *pruner);
/* Requires an idle pruner. Returns false if the policy is not due. */
bool weir_pruner_begin(weir_pruner *pruner, weir_kv_sequence *sequence);
/* Takes what the thread has done. Returns false if it works, or has nothing to do. If status is
 * not OK, it has no sequence any more, whose rows are unchanged. */
bool weir_pruner_end(weir_pruner *pruner, weir_status *status, weir_error *error);
/* After the plan. EFULL: there are no pages for the rows that stay; may be called again. OK: the
 * thread moves them, or all is done: it has no sequence any more. */
WEIR_MUST_CHECK weir_status weir_pruner_move(weir_pruner *pruner, weir_error *error);
/* Pages that `move` needs. */
weir_kv_pages weir_pruner_pages(const weir_pruner *pruner);
/* For tests: new pages that it has. */
int64_t weir_pruner_new_pages(const weir_pruner *pruner);
/* Leaves the sequence as it is, and returns its memory when the thread has seen it. */
void weir_pruner_stop(weir_pruner *pruner);

#ifdef __cplusplus
}
#endif
