#include "engine/schedule/runner.h"

#include <stdlib.h>
#include <string.h>

struct weir_runner {
    const weir_model   *model;
    weir_workspace     *workspace;
    weir_ledger        *ledger;
    void               *memory; /* of the three arrays */
    weir_runner_limits  limits;
    const weir_kv_pair *formats; /* [kv_layers] borrowed */
    int32_t            *tokens;     /* [limits.rows] */
    int32_t            *logit_rows; /* [limits.logits] */
    weir_batch_segment *segments;   /* [limits.works] */
    void (*observe)(void *user, int64_t layer, const float *hidden);
    void *user;
};

size_t weir_runner_bytes(const weir_runner_limits *limits)
{
    return (size_t)limits->works * sizeof(weir_batch_segment) + ((size_t)limits->rows + (size_t)limits->logits) * sizeof(int32_t);
}

weir_status weir_runner_open(weir_runner **out, const weir_model *model, weir_ledger *ledger, const weir_kv_spec *spec,
                             const weir_runner_limits *limits, weir_error *error)
{
    weir_runner *const runner = calloc(1, sizeof *runner);
    if (runner == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the runner");
    *runner = (weir_runner){ .model = model, .ledger = ledger, .limits = *limits, .formats = spec->formats };
    weir_status status = weir_ledger_alloc(ledger, &runner->memory, WEIR_ACCOUNT_TOKENS, weir_runner_bytes(limits), error);
    if (status == WEIR_OK) {
        runner->segments = runner->memory; /* widest first */
        runner->tokens = (int32_t *)(runner->segments + limits->works);
        runner->logit_rows = runner->tokens + limits->rows;
    }
    const weir_workspace_limits space = { .rows = limits->rows,
                                          .segments = limits->works,
                                          .logits = limits->logits,
                                          .context = (int32_t)spec->max_rows,
                                          .formats = spec->formats };
    if (status == WEIR_OK) status = weir_workspace_open(&runner->workspace, model, ledger, &space, error);
    if (status != WEIR_OK) {
        weir_runner_close(runner);
        return status;
    }
    *out = runner;
    return WEIR_OK;
}

void weir_runner_close(weir_runner *runner)
{
    if (runner == NULL) return;
    weir_workspace_close(runner->workspace);
    weir_ledger_free(runner->ledger, runner->memory, WEIR_ACCOUNT_TOKENS, weir_runner_bytes(&runner->limits));
    free(runner);
}

const weir_runner_limits *weir_runner_limits_of(const weir_runner *runner) { return &runner->limits; }

int64_t weir_runner_n_vocab(const weir_runner *runner) { return weir_model_shape(runner->model)->n_vocab; }

void weir_runner_observe(weir_runner *runner, void (*observe)(void *user, int64_t layer, const float *hidden), void *user)
{
    runner->observe = observe;
    runner->user = user;
}

/* Backs all rows with pages. */
static weir_status reserve_rows(const weir_work *works, int32_t n_works)
{
    for (int32_t i = 0; i < n_works; i++) {
        weir_sequence *const sequence = works[i].sequence;
        if (weir_kv_reserve(&sequence->table, sequence->store, sequence->n_computed + works[i].n_rows) != WEIR_OK) return WEIR_EFULL;
    }
    return WEIR_OK;
}

static weir_batch build_batch(weir_runner *runner, weir_work *works, int32_t n_works)
{
    weir_batch batch = { .tokens = runner->tokens,
                         .segments = runner->segments,
                         .logit_rows = runner->logit_rows,
                         .n_segments = n_works,
                         .formats = runner->formats,
                         .observe = runner->observe,
                         .user = runner->user };
    for (int32_t i = 0; i < n_works; i++) {
        weir_work *const     work = &works[i];
        weir_sequence *const sequence = work->sequence;
        WEIR_ASSERT(work->n_rows >= 1 && sequence->n_computed + work->n_rows <= sequence->n_tokens);
        WEIR_ASSERT(batch.n_rows + work->n_rows <= runner->limits.rows);
        memcpy(runner->tokens + batch.n_rows, sequence->tokens + sequence->n_computed, (size_t)work->n_rows * sizeof(int32_t));
        runner->segments[i] = (weir_batch_segment){ .first_row = batch.n_rows,
                                                    .n_rows = work->n_rows,
                                                    .n_past = sequence->n_computed,
                                                    .pages = (void *const *)sequence->table.pages,
                                                    .page_stride = sequence->table.capacity,
                                                    .open = (void *const *)sequence->table.open,
                                                    .recurrent = sequence->recurrent,
                                                    .snapshots = work->snapshots,
                                                    .n_snapshots = work->n_snapshots };
        sequence->recurrent_dirty = true;
        const int32_t wanted = work->wanted == WEIR_LOGITS_ALL ? work->n_rows : work->wanted == WEIR_LOGITS_LAST ? 1 : 0;
        work->first_logit = wanted > 0 ? batch.n_logits : -1;
        WEIR_ASSERT(batch.n_logits + wanted <= runner->limits.logits);
        for (int32_t r = work->n_rows - wanted; r < work->n_rows; r++) runner->logit_rows[batch.n_logits++] = batch.n_rows + r;
        batch.n_rows += work->n_rows;
    }
    return batch;
}

weir_status weir_runner_step(weir_runner *runner, weir_work *works, int32_t n_works, const float **logits, weir_error *error)
{
    WEIR_ASSERT(n_works >= 1 && n_works <= runner->limits.works);
    WEIR_TRY(reserve_rows(works, n_works));
    const weir_batch batch = build_batch(runner, works, n_works);
    WEIR_TRY(weir_model_forward(runner->model, runner->workspace, &batch, logits, error));
    for (int32_t i = 0; i < n_works; i++) {
        weir_sequence *const sequence = works[i].sequence;
        sequence->n_computed += works[i].n_rows;
        weir_kv_commit(&sequence->table, sequence->n_computed);
    }
    return WEIR_OK;
}
