/* engine/kv/pool/sequence.h - one sequence: token ids, KV rows, recurrent and conv state, which are
 * saved, forked or rewound together.
 *
 * Slots are opened once. A slot is empty, or holds a sequence of `n_tokens` tokens of which
 * `n_computed` were computed: their rows are in its memory, except those that were evicted
 * (evict.h). */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/kv/prune/policy_run.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_kv_sequence {
    int32_t *tokens; /* [max_rows + 1]; owned, charged to the ledger */
    /* n_computed includes evicted rows: it is the position of the next row. */
    int32_t n_tokens, n_computed;
    weir_kv_table table;
    float *recurrent; /* recurrent_bytes near the kernels; charged to the ledger */
    size_t recurrent_bytes;
    bool recurrent_dirty;
    weir_kv_store *store;
    weir_ledger *ledger;
    weir_policy_sequence *policy_run; /* borrowed; NULL: keeps every row */
};

/* Bytes on the account tokens for a sequence of `rows` rows. */
size_t weir_kv_sequence_token_bytes(int64_t rows);
/* Returns EFULL, with the ledger's sums, if it does not fit in memory.host. */
WEIR_MUST_CHECK weir_status weir_kv_sequence_open(
    weir_kv_sequence *sequence, weir_kv_store *store, weir_ledger *ledger, size_t recurrent_bytes,
    weir_error *error
);
void weir_kv_sequence_close(weir_kv_sequence *sequence);
/* Drops everything computed but keeps the tokens (a preempted sequence is computed again, with the
 * same bits). */
void weir_kv_sequence_reset(weir_kv_sequence *sequence);
/* Drops the tokens and the policy, too. */
void weir_kv_sequence_clear(weir_kv_sequence *sequence);
/* Bytes of its pages, shared ones included, and of unsealed rows: its share of the account kv. */
size_t weir_kv_sequence_kv_bytes(const weir_kv_sequence *sequence);
/* Bytes that it uses now: pages, shared ones included, unsealed rows, state, ids and table. */
size_t weir_kv_sequence_bytes(const weir_kv_sequence *sequence);
/* dst (clear) continues src: shared pages, copied state; also the policy's state, if dst has the
 * same policy. EFULL: there is no memory for its table; dst has the tokens, nothing is computed. */
WEIR_MUST_CHECK weir_status
weir_kv_sequence_fork(weir_kv_sequence *dst, const weir_kv_sequence *src);

#ifdef __cplusplus
}
#endif
