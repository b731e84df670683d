/* engine/model/mtp.c - the draft head, multi-token prediction (Gloeckle et al. 2024, DeepSeek-V3
 * 2.2): from the hidden state h at a position, after the last norm of the model, and the embedding
 * e of the next token,
 *   x = W [norm(e), norm(h)], x += attention(norm(x)), x += ffn(norm(x)), g = norm(x),
 * and output g are the logits of the token after that one. The next draft reads g as h, or x
 * ([mtp] next_hidden). The model computes what it drafts before it counts, so its bits are free. */
#include <string.h>

#include "engine/model/workspace.h"

const weir_kv_pair weir_mtp_formats[1] = { { WEIR_MTP_FORMAT, WEIR_MTP_FORMAT } };

const float *weir_workspace_hidden(const weir_workspace *workspace) { return workspace->hidden; }

static weir_status norm(
    const weir_model *model, float *dst, int64_t stride, float *src, const float *weight, int64_t n
)
{
    weir_rmsnorm_args args = weir_norm_args(model, dst, src, weight, n);
    args.dst_stride = stride;
    return weir_rmsnorm(model->stream, &args);
}

static weir_status embed(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    return weir_embed(
        model->stream, &(weir_embed_args){ .dst = w->x,
                                           .table = model->embedding->data,
                                           .ids = batch->tokens,
                                           .n_rows = batch->n_rows,
                                           .dim = model->shape.d_model,
                                           .n_vocab = model->shape.n_vocab,
                                           .dtype = model->embedding->dtype }
    );
}

/* x = W [norm(e), norm(h)]; e is in x, h in `in`. */
static weir_status join(const weir_model *model, weir_workspace *w, int64_t n)
{
    const weir_mtp_head *const head = &model->mtp;
    const int64_t d = model->shape.d_model;
    WEIR_TRY(norm(model, w->joined, 2 * d, w->x, head->embed_norm, n));
    WEIR_TRY(norm(model, w->joined + d, 2 * d, w->in, head->hidden_norm, n));
    const weir_matmul_output x = { .weight = head->proj, .dst = w->x, .dst_stride = d };
    return weir_matmul(
        model->stream, &(weir_matmul_args){ .x = w->joined,
                                            .n_rows = n,
                                            .n_in = 2 * d,
                                            .x_stride = 2 * d,
                                            .n_outputs = 1,
                                            .outputs = { x } }
    );
}

weir_status weir_run_mtp(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const float *pending = NULL;
    const int64_t d = model->shape.d_model, n = batch->n_logits;
    if (batch->tokens != NULL) WEIR_TRY(embed(model, w, batch));
    WEIR_TRY(join(model, w, batch->n_rows));
    WEIR_TRY(weir_run_layer(model, w, batch, &model->layers[model->shape.n_layers], &pending));
    if (pending != NULL) WEIR_TRY(weir_add_pending(model, w, batch->n_rows));
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n && batch->logit_rows != NULL; i++)
        memcpy(
            w->gathered + i * d, w->x + batch->logit_rows[i] * d, (size_t)d * sizeof *w->gathered
        );
    if (model->mtp.reads_stream)
        weir_stream_copy(
            model->stream, w->joined, w->gathered, (size_t)(n * d) * sizeof *w->gathered
        );
    WEIR_TRY(norm(model, w->gathered, d, w->gathered, model->mtp.norm, n));
    return weir_project_logits(model, w, n);
}

static void fill_rows(const weir_model *model, weir_workspace *w, const weir_mtp_batch *batch)
{
    const int64_t d = model->shape.d_model;
    for (int32_t i = 0; i < batch->n_segments; i++) w->is_prompt[i] = true;
    for (int64_t r = 0; r < batch->n_rows; r++) {
        w->positions[r] = batch->positions[r];
        memcpy(w->in + r * d, batch->hidden[r], (size_t)d * sizeof *w->in);
    }
}

weir_status weir_model_draft(
    const weir_model *model, weir_workspace *workspace, const weir_mtp_batch *batch,
    const float **logits, const float **hidden, weir_error *error
)
{
    weir_workspace *const w = workspace;
    const weir_batch rows = { .tokens = batch->tokens,
                              .segments = batch->segments,
                              .logit_rows = batch->logit_rows,
                              .n_rows = batch->n_rows,
                              .n_segments = batch->n_segments,
                              .n_logits = batch->n_logits,
                              .formats = weir_mtp_formats };
    WEIR_ASSERT(model->mtp.is_there && weir_stream_device(model->stream) == NULL);
    WEIR_ASSERT(batch->n_rows >= 1 && batch->n_rows <= w->limits.rows);
    WEIR_ASSERT(batch->n_segments >= 1 && batch->n_segments <= w->limits.segments);
    WEIR_ASSERT(batch->n_logits >= 0 && batch->n_logits <= w->limits.logits);
    fill_rows(model, w, batch);
    weir_status status = weir_run_mtp(model, w, &rows);
    if (status == WEIR_OK) status = weir_stream_finish(model->stream);
    if (status != WEIR_OK)
        return weir_error_set(error, status, "the draft head failed: %s", weir_status_text(status));
    *logits = w->logits;
    *hidden = model->mtp.reads_stream ? w->joined : w->gathered;
    return WEIR_OK;
}
