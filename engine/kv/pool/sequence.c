#include "engine/kv/pool/sequence.h"

#include <string.h>

#include "engine/kv/pool/store_internal.h"

size_t weir_kv_sequence_token_bytes(int64_t rows) { return ((size_t)rows + 1) * sizeof(int32_t); }

static size_t own_token_bytes(const weir_kv_sequence *sequence)
{
    return weir_kv_sequence_token_bytes(weir_kv_store_spec(sequence->store)->max_rows);
}

weir_status weir_kv_sequence_open(
    weir_kv_sequence *sequence, weir_kv_store *store, weir_ledger *ledger, size_t recurrent_bytes,
    weir_error *error
)
{
    *sequence = (weir_kv_sequence){ .store = store, .ledger = ledger };
    weir_status status = weir_ledger_alloc(
        ledger, (void **)&sequence->tokens, WEIR_ACCOUNT_TOKENS, own_token_bytes(sequence), error
    );
    if (status == WEIR_OK) status = weir_kv_table_open(&sequence->table, store, error);
    if (status == WEIR_OK && recurrent_bytes > 0)
        status = weir_ledger_alloc_device(
            ledger, (void **)&sequence->recurrent, WEIR_ACCOUNT_RECURRENT, recurrent_bytes, error
        );
    if (status == WEIR_OK)
        sequence->recurrent_bytes = recurrent_bytes;
    else
        weir_kv_sequence_close(sequence);
    return status;
}

void weir_kv_sequence_close(weir_kv_sequence *sequence)
{
    if (sequence->store == NULL) return;
    weir_kv_table_close(&sequence->table, sequence->store);
    if (sequence->recurrent != NULL)
        weir_ledger_free_device(
            sequence->ledger, sequence->recurrent, WEIR_ACCOUNT_RECURRENT, sequence->recurrent_bytes
        );
    weir_ledger_free(
        sequence->ledger, sequence->tokens, WEIR_ACCOUNT_TOKENS, own_token_bytes(sequence)
    );
    *sequence = (weir_kv_sequence){ 0 };
}

void weir_kv_sequence_reset(weir_kv_sequence *sequence)
{
    weir_kv_truncate(&sequence->table, sequence->store, 0);
    if (sequence->recurrent_dirty && sequence->recurrent != NULL)
        weir_ledger_clear(sequence->ledger, sequence->recurrent, sequence->recurrent_bytes);
    sequence->recurrent_dirty = false;
    sequence->n_computed = 0;
    if (sequence->policy_run != NULL) weir_policy_run_restart(sequence->policy_run);
}

void weir_kv_sequence_clear(weir_kv_sequence *sequence)
{
    sequence->policy_run = NULL;
    weir_kv_sequence_reset(sequence);
    sequence->n_tokens = 0;
}

size_t weir_kv_sequence_kv_bytes(const weir_kv_sequence *sequence)
{
    return weir_kv_table_held_bytes(&sequence->table, sequence->store) +
           sequence->store->sizes.unsealed_rows;
}

size_t weir_kv_sequence_bytes(const weir_kv_sequence *sequence)
{
    return weir_kv_sequence_kv_bytes(sequence) + sequence->recurrent_bytes +
           own_token_bytes(sequence) + sequence->store->sizes.table_metadata +
           weir_kv_window_table_bytes(&sequence->store->spec.windows) +
           (size_t)sequence->table.n_units * WEIR_KV_TABLE_UNIT;
}

weir_status weir_kv_sequence_fork(weir_kv_sequence *dst, const weir_kv_sequence *src)
{
    WEIR_ASSERT(dst->n_computed == 0);
    memcpy(dst->tokens, src->tokens, (size_t)src->n_tokens * sizeof *dst->tokens);
    dst->n_tokens = src->n_tokens;
    WEIR_TRY(weir_kv_share(&dst->table, &src->table, dst->store));
    dst->n_computed = src->n_computed;
    if (src->recurrent_bytes > 0)
        weir_ledger_copy(dst->ledger, dst->recurrent, src->recurrent, src->recurrent_bytes);
    dst->recurrent_dirty = src->recurrent_dirty;
    if (dst->policy_run != NULL && src->policy_run != NULL)
        weir_policy_run_fork(dst->policy_run, src->policy_run);
    return WEIR_OK;
}
