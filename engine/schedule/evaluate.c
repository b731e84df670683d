#include "engine/schedule/evaluate.h"

#include <string.h>

/* Rows of the next step: up to the next multiple of the chunk from position 0, so that chunk
 * boundaries do not depend on the caller. */
static int32_t next_rows(
    const weir_runner *runner, const weir_evaluation *evaluation, int32_t position, int32_t end
)
{
    const weir_runner_limits *const limits = weir_runner_limits_of(runner);
    if (position >= evaluation->decode_from) return 1;
    int32_t chunk = evaluation->chunk > 0 && evaluation->chunk < limits->rows ? evaluation->chunk
                                                                              : limits->rows;
    if (evaluation->visit != NULL && chunk > limits->logits) chunk = limits->logits;
    const int32_t block = weir_runner_block_rows(runner);
    chunk = chunk < block ? block : chunk / block * block;
    int32_t last = (position / chunk + 1) * chunk;
    if (last > end) last = end;
    if (last > evaluation->decode_from) last = evaluation->decode_from;
    return last - position;
}

weir_status weir_evaluate(
    weir_runner *runner, weir_kv_sequence *sequence, weir_evaluation *evaluation, weir_error *error
)
{
    const int64_t window = weir_kv_store_spec(sequence->store)->max_rows;
    if (evaluation->n_tokens < 1 || sequence->n_tokens + (int64_t)evaluation->n_tokens > window)
        return weir_error_set(
            error, WEIR_EFULL,
            "%d tokens after %d do not fit in the window of %lld (model.context)",
            (int)evaluation->n_tokens, (int)sequence->n_tokens, (long long)window
        );
    memcpy(
        sequence->tokens + sequence->n_tokens, evaluation->tokens,
        (size_t)evaluation->n_tokens * sizeof(int32_t)
    );
    sequence->n_tokens += evaluation->n_tokens;
    while (sequence->n_computed < sequence->n_tokens) {
        const int32_t first = sequence->n_computed;
        if (evaluation->stopped != NULL && *evaluation->stopped != 0)
            return weir_error_set(
                error, WEIR_ECANCELED, "stopped after %d of %d tokens", (int)first,
                (int)sequence->n_tokens
            );
        weir_batch_item item = { .sequence = sequence,
                                 .n_rows = next_rows(runner, evaluation, first, sequence->n_tokens),
                                 .is_prompt = first < evaluation->decode_from };
        const bool is_last = first + item.n_rows == sequence->n_tokens;
        item.wanted = evaluation->visit != NULL ? WEIR_LOGITS_ALL
                      : is_last                 ? WEIR_LOGITS_LAST
                                                : WEIR_LOGITS_NONE;
        if (evaluation->before != NULL) evaluation->before(evaluation->user, first, item.n_rows);
        const float *logits;
        WEIR_TRY(weir_runner_step(runner, &item, 1, &logits, error));
        WEIR_TRY(weir_runner_evict(runner, sequence, error));
        weir_runner_move(runner, &item, 1, 0);
        if (evaluation->visit != NULL)
            evaluation->visit(evaluation->user, first, item.n_rows, logits);
        if (is_last)
            evaluation->last = logits + (item.wanted == WEIR_LOGITS_ALL ? item.n_rows - 1 : 0) *
                                            weir_runner_n_vocab(runner);
    }
    return WEIR_OK;
}
