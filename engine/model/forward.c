/* engine/model/forward.c - one step through the layers: pre-norm residual blocks, the same for every architecture.
 *
 *   x = embed(tokens)
 *   per layer:  x += mixer(norm(x));  x += ffn(norm(x))
 *   logits = output(norm(x)) for the rows that ask
 * The additions ride on the next norm, so x is complete only where a norm or an observer looks at it.                     */
#include <stdlib.h>
#include <string.h>

#include "engine/model/model_internal.h"

struct weir_workspace {
    weir_ledger            *ledger;
    void                   *memory;
    size_t                  bytes, scratch_bytes; /* of the memory; of the stream's scratch, charged here */
    weir_workspace_limits   limits;
    float                  *x, *normed, *mixed, *scratch, *gathered, *logits;
    int32_t                *positions;
    weir_kv_segment        *kv;
    weir_recurrent_segment *recurrent;
};

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t scratch_elements(const weir_model *model, int64_t n_rows)
{
    int64_t n = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        n = most(n, l->mixer->scratch_elements(&model->shape, &l->options, n_rows));
        n = most(n, l->ffn->scratch_elements(&model->shape, &l->options, n_rows));
    }
    return n;
}

/* Lays the arrays out from `base` (NULL: only measures). Sizes were checked: rows and widths are bounded by the shape table. */
static size_t lay_out(weir_workspace *w, const weir_model *model, char *base)
{
    const weir_workspace_limits *const limits = &w->limits;
    const size_t                       rows = (size_t)limits->rows, width = (size_t)model->shape.d_model;
    size_t                             at = 0;
#define PLACE(field, count)                                                                                                                \
    do {                                                                                                                                   \
        if (base != NULL) w->field = (void *)(base + at);                                                                                  \
        at = (at + (size_t)(count) * sizeof *w->field + 63) & ~(size_t)63;                                                                 \
    } while (0)
    PLACE(x, rows * width);
    PLACE(normed, rows * width);
    PLACE(mixed, rows * width);
    PLACE(scratch, scratch_elements(model, limits->rows));
    PLACE(gathered, (size_t)limits->logits * width);
    PLACE(logits, (size_t)limits->logits * (size_t)model->shape.n_vocab);
    PLACE(positions, rows);
    PLACE(kv, limits->segments);
    PLACE(recurrent, limits->segments);
#undef PLACE
    return at;
}

size_t weir_workspace_bytes(const weir_model *model, const weir_workspace_limits *limits)
{
    weir_workspace measure = { .limits = *limits };
    return lay_out(&measure, model, NULL) + sizeof measure;
}

void weir_workspace_close(weir_workspace *workspace)
{
    if (workspace == NULL) return;
    weir_ledger_return(workspace->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, workspace->scratch_bytes);
    weir_ledger_free(workspace->ledger, workspace->memory, WEIR_ACCOUNT_ACTIVATIONS, workspace->bytes);
    weir_ledger_free(workspace->ledger, workspace, WEIR_ACCOUNT_ACTIVATIONS, sizeof *workspace);
}

/* The segments as this layer sees them. */
static void fill_segments(const weir_workspace *w, const weir_model *model, const weir_batch *batch, const layer *l)
{
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        const int64_t                   table = l->kv_index * model->shape.n_kv_heads * segment->page_stride;
        w->kv[i] = (weir_kv_segment){ .pages = l->kv_index >= 0 && segment->pages != NULL ? segment->pages + table : NULL,
                                      .page_stride = segment->page_stride,
                                      .first_row = segment->first_row,
                                      .n_rows = segment->n_rows,
                                      .n_past = segment->n_past };
        w->recurrent[i] =
            (weir_recurrent_segment){ .conv_history = segment->recurrent != NULL ? segment->recurrent + l->history_offset : NULL,
                                      .state = segment->recurrent != NULL ? segment->recurrent + l->state_offset : NULL,
                                      .first_row = segment->first_row,
                                      .n_rows = segment->n_rows };
    }
}

/* normed = rmsnorm(x += mixed) over all rows; mixed NULL before the first layer. */
static weir_status add_and_norm(const weir_model *model, weir_workspace *w, const float *mixed, const float *weight, int64_t n_rows)
{
    const int64_t d = model->shape.d_model;
    return weir_rmsnorm(model->stream, &(weir_rmsnorm_args){ .dst = w->normed,
                                                             .src = w->x,
                                                             .weight = weight,
                                                             .add = mixed,
                                                             .n_rows = n_rows,
                                                             .n_groups = 1,
                                                             .dim = d,
                                                             .dst_stride = d,
                                                             .src_stride = d,
                                                             .add_stride = d,
                                                             .dst_group_stride = d,
                                                             .src_group_stride = d,
                                                             .eps = (float)model->shape.norm_eps });
}

static weir_status run_layers(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, n = batch->n_rows;
    const float  *pending = NULL;
    if (batch->observe != NULL) batch->observe(batch->user, -1, w->x);
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        fill_segments(w, model, batch, l);
        const weir_step step = { .stream = model->stream,
                                 .positions = w->positions,
                                 .kv = w->kv,
                                 .recurrent = w->recurrent,
                                 .rope = model->rope,
                                 .n_rows = n,
                                 .n_segments = batch->n_segments,
                                 .normed = w->normed,
                                 .mixed = w->mixed,
                                 .scratch = w->scratch,
                                 .kv_dtype = batch->kv_dtype };
        WEIR_TRY(add_and_norm(model, w, pending, l->mixer_norm, n));
        WEIR_TRY(l->mixer->forward(&model->shape, &l->options, l->mixer_weights, &step));
        WEIR_TRY(add_and_norm(model, w, w->mixed, l->ffn_norm, n));
        WEIR_TRY(l->ffn->forward(&model->shape, &l->options, l->ffn_weights, &step));
        pending = w->mixed;
        if (batch->observe != NULL) {
            WEIR_TRY(weir_add(model->stream,
                              &(weir_add_args){ .dst = w->x, .src = w->mixed, .n_rows = n, .dim = d, .dst_stride = d, .src_stride = d }));
            pending = NULL;
            batch->observe(batch->user, i, w->x);
        }
    }
    if (pending != NULL)
        WEIR_TRY(weir_add(model->stream,
                          &(weir_add_args){ .dst = w->x, .src = w->mixed, .n_rows = n, .dim = d, .dst_stride = d, .src_stride = d }));
    return WEIR_OK;
}

/* Norm and projection of the wanted rows only. */
static weir_status run_output(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, v = model->shape.n_vocab, n = batch->n_logits;
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n; i++) memcpy(w->gathered + i * d, w->x + batch->logit_rows[i] * d, (size_t)d * sizeof(float));
    WEIR_TRY(weir_rmsnorm(model->stream, &(weir_rmsnorm_args){ .dst = w->gathered,
                                                               .src = w->gathered,
                                                               .weight = model->output_norm,
                                                               .n_rows = n,
                                                               .n_groups = 1,
                                                               .dim = d,
                                                               .dst_stride = d,
                                                               .src_stride = d,
                                                               .dst_group_stride = d,
                                                               .src_group_stride = d,
                                                               .eps = (float)model->shape.norm_eps }));
    return weir_matmul(model->stream, &(weir_matmul_args){ .x = w->gathered,
                                                           .n_rows = n,
                                                           .n_in = d,
                                                           .x_stride = d,
                                                           .n_outputs = 1,
                                                           .outputs = { { .weight = model->output, .dst = w->logits, .dst_stride = v } } });
}

static weir_status run(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    for (int32_t i = 0; i < batch->n_segments; i++) {
        const weir_batch_segment *const segment = &batch->segments[i];
        for (int32_t r = 0; r < segment->n_rows; r++) w->positions[segment->first_row + r] = segment->n_past + r;
    }
    WEIR_TRY(weir_embed(model->stream, &(weir_embed_args){ .dst = w->x,
                                                           .table = model->embedding->data,
                                                           .ids = batch->tokens,
                                                           .n_rows = batch->n_rows,
                                                           .dim = model->shape.d_model,
                                                           .n_vocab = model->shape.n_vocab,
                                                           .dtype = model->embedding->dtype }));
    WEIR_TRY(run_layers(model, w, batch));
    return run_output(model, w, batch);
}

weir_status weir_model_forward(const weir_model *model, weir_workspace *workspace, const weir_batch *batch, const float **logits,
                               weir_error *error)
{
    WEIR_ASSERT(batch->n_rows >= 1 && batch->n_rows <= workspace->limits.rows);
    WEIR_ASSERT(batch->n_segments >= 1 && batch->n_segments <= workspace->limits.segments);
    WEIR_ASSERT(batch->n_logits >= 0 && batch->n_logits <= workspace->limits.logits);
    const weir_status status = run(model, workspace, batch);
    if (status != WEIR_OK) return weir_error_set(error, status, "the forward pass failed: %s", weir_status_text(status));
    *logits = workspace->logits;
    return WEIR_OK;
}

/* Segments of `each` rows at full depth, the last one of all that is left. */
static weir_status plan_mixers(const weir_model *model, weir_workspace *w, weir_dtype kv_dtype, int32_t n_segments, int32_t each,
                               int32_t last)
{
    const int32_t n_rows = (n_segments - 1) * each + last;
    for (int32_t s = 0; s < n_segments; s++) {
        const int32_t n = s + 1 < n_segments ? each : last, n_past = w->limits.context > n ? w->limits.context - n : 0;
        w->kv[s] = (weir_kv_segment){ .first_row = s * each, .n_rows = n, .n_past = n_past };
        w->recurrent[s] = (weir_recurrent_segment){ .first_row = s * each, .n_rows = n };
    }
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const layer *const l = &model->layers[i];
        const weir_step    step = { .stream = model->stream,
                                    .positions = w->positions,
                                    .kv = w->kv,
                                    .recurrent = w->recurrent,
                                    .rope = model->rope,
                                    .n_rows = n_rows,
                                    .n_segments = n_segments,
                                    .normed = w->normed,
                                    .mixed = w->mixed,
                                    .scratch = w->scratch,
                                    .kv_dtype = kv_dtype };
        WEIR_TRY(l->mixer->forward(&model->shape, &l->options, l->mixer_weights, &step));
    }
    return WEIR_OK;
}

/* Short pieces let attention split every row, unequal ones leave the most partly filled chunks: both grow with the number of segments,
 * and pieces longer than SHORT are not split. */
static weir_status plan_batches(const weir_model *model, weir_workspace *w, weir_dtype kv_dtype)
{
    enum { SHORT = 64 };
    const int32_t rows = w->limits.rows, n = w->limits.segments < rows ? w->limits.segments : rows;
    for (int32_t each = 1; each <= SHORT && each <= rows; each++) {
        const int32_t segments = each * n <= rows ? n : rows / each;
        WEIR_TRY(plan_mixers(model, w, kv_dtype, segments, each, each));
        WEIR_TRY(plan_mixers(model, w, kv_dtype, segments, each, rows - (segments - 1) * each));
    }
    return WEIR_OK;
}

/* Passes the largest batches with the stream in planning mode. */
static weir_status plan_scratch(size_t *bytes, const weir_model *model, weir_workspace *w, weir_dtype kv_dtype)
{
    const int32_t            rows = w->limits.rows;
    const weir_batch_segment whole = { .n_rows = rows, .n_past = w->limits.context > rows ? w->limits.context - rows : 0 };
    const weir_batch prefill = { .segments = &whole, .n_segments = 1, .n_rows = rows, .n_logits = w->limits.logits, .kv_dtype = kv_dtype };
    weir_stream_set_planning(model->stream, true);
    weir_status status = run_layers(model, w, &prefill);
    if (status == WEIR_OK) status = plan_batches(model, w, kv_dtype);
    if (status == WEIR_OK)
        status = weir_matmul(
            model->stream,
            &(weir_matmul_args){ .x = w->gathered,
                                 .n_rows = w->limits.logits,
                                 .n_in = model->shape.d_model,
                                 .x_stride = model->shape.d_model,
                                 .n_outputs = 1,
                                 .outputs = { { .weight = model->output, .dst = w->logits, .dst_stride = model->shape.n_vocab } } });
    weir_stream_set_planning(model->stream, false);
    *bytes = weir_stream_planned_bytes(model->stream);
    return status;
}

static weir_status no_kernel(weir_status status, weir_error *error)
{
    return weir_error_set(error, status, "no kernel for this model: %s", weir_status_text(status));
}

/* The arrays are laid out in memory that is never touched but for the segments. */
weir_status weir_workspace_scratch(size_t *bytes, const weir_model *model, const weir_workspace_limits *limits, weir_dtype kv_dtype,
                                   weir_error *error)
{
    weir_workspace w = { .limits = *limits };
    void *const    memory = aligned_alloc(64, lay_out(&w, model, NULL));
    if (memory == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory to plan steps of %d rows; lower batch.chunk", (int)limits->rows);
    (void)lay_out(&w, model, memory);
    const weir_status status = plan_scratch(bytes, model, &w, kv_dtype);
    free(memory);
    return status == WEIR_OK ? WEIR_OK : no_kernel(status, error);
}

static weir_status take_scratch(weir_workspace *w, const weir_model *model, weir_dtype kv_dtype, weir_error *error)
{
    size_t      bytes;
    weir_status status = plan_scratch(&bytes, model, w, kv_dtype);
    if (status != WEIR_OK) return no_kernel(status, error);
    WEIR_TRY(weir_ledger_reserve(w->ledger, WEIR_TIER_HOST, WEIR_ACCOUNT_ACTIVATIONS, bytes, error));
    w->scratch_bytes = bytes;
    status = weir_stream_reserve_bytes(model->stream, bytes);
    return status == WEIR_OK ? WEIR_OK : weir_error_set(error, status, "the system has no %zu bytes of scratch; lower batch.chunk", bytes);
}

weir_status weir_workspace_open(weir_workspace **out, const weir_model *model, weir_ledger *ledger, const weir_workspace_limits *limits,
                                weir_dtype kv_dtype, weir_error *error)
{
    WEIR_ASSERT(limits->rows >= 1 && limits->segments >= 1 && limits->logits >= 1);
    void *self = NULL;
    WEIR_TRY(weir_ledger_alloc(ledger, &self, WEIR_ACCOUNT_ACTIVATIONS, sizeof(weir_workspace), error));
    weir_workspace *const w = self;
    *w = (weir_workspace){ .ledger = ledger, .limits = *limits };
    w->bytes = lay_out(w, model, NULL);
    weir_status status = weir_ledger_alloc(ledger, &w->memory, WEIR_ACCOUNT_ACTIVATIONS, w->bytes, error);
    if (status == WEIR_OK) {
        (void)lay_out(w, model, w->memory);
        status = take_scratch(w, model, kv_dtype, error);
    }
    if (status != WEIR_OK) {
        weir_workspace_close(w);
        return status;
    }
    *out = w;
    return WEIR_OK;
}
