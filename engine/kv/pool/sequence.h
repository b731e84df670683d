/* engine/kv/pool/sequence.h - one timeline: token ids, KV rows, recurrent and conv state. Saved, forked
 * or rewound all together or not at all.
 *
 * Slots are opened once; a slot is empty, or holds a sequence of `n_tokens` tokens of which
 * `n_computed` were computed: their rows are in its memory, but for those that were evicted
 * (evict.h). */
#pragma once
#include "engine/kv/pool/store.h"
#include "engine/kv/prune/policy_run.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_kv_sequence {
    int32_t *tokens; /* [max_rows + 1]; owned, on the ledger */
    /* n_computed counts the text's rows, evicted ones too: the next row's position */
    int32_t n_tokens, n_computed;
    weir_kv_table table;
    float *recurrent; /* recurrent_bytes near the kernels; charged to the ledger */
    size_t recurrent_bytes;
    bool recurrent_dirty;
    weir_kv_store *store;
    weir_ledger *ledger;
    weir_policy_sequence *policy_run; /* borrowed; NULL: every row stays */
};

/* What the account tokens holds for a sequence of `rows` rows. */
size_t weir_kv_sequence_token_bytes(int64_t rows);
/* EFULL with the arithmetic when memory.host has no room. */
WEIR_MUST_CHECK weir_status weir_kv_sequence_open(
    weir_kv_sequence *sequence, weir_kv_store *store, weir_ledger *ledger, size_t recurrent_bytes,
    weir_error *error
);
void weir_kv_sequence_close(weir_kv_sequence *sequence);
/* Forgets everything computed; the tokens stay (a preempted sequence is computed again, with the
 * same bits). */
void weir_kv_sequence_reset(weir_kv_sequence *sequence);
/* Tokens too, and it keeps every row from now on */
void weir_kv_sequence_clear(weir_kv_sequence *sequence);
/* Its pages, those that it shares too, and open rows: what of it is on the account kv. */
size_t weir_kv_sequence_kv_bytes(const weir_kv_sequence *sequence);
/* What it takes now: its pages, those that it shares too, open rows, state, ids and table. */
size_t weir_kv_sequence_bytes(const weir_kv_sequence *sequence);
/* dst (clear) continues src: shared pages, copied state; also that of a policy, if dst has the same
 * one. */
void weir_kv_sequence_fork(weir_kv_sequence *dst, const weir_kv_sequence *src);

#ifdef __cplusplus
}
#endif
