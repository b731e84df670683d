/* engine/model/forward.c - one step: x = embed(tokens); per layer x += mixer(norm(x)), then
 * x += ffn(norm(x)), or one of the two, then its per-layer embedding and scale, if the model has
 * them; logits = output(norm(x)) for the rows that need them. An addition is fused with the norm
 * after it, so x is complete only where it is read. Scales of rows, blocks and logits cost a
 * product per embedded element: docs/decisions/0056. */
#include <string.h>

#include "engine/model/expert_cache.h"
#include "engine/model/workspace.h"

weir_rmsnorm_args weir_norm_args(
    const weir_model *model, float *dst, float *src, const float *weight, int64_t n_rows
)
{
    const int64_t d = model->shape.d_model;
    return (weir_rmsnorm_args){ .dst = dst,
                                .src = src,
                                .weight = weight,
                                .n_rows = n_rows,
                                .n_groups = 1,
                                .dim = d,
                                .dst_stride = d,
                                .src_stride = d,
                                .dst_group_stride = d,
                                .src_group_stride = d,
                                .eps = (float)model->shape.norm_eps };
}

/* Computes dst = rmsnorm(src += add) over n rows; add may be NULL. */
static weir_status norm(
    const weir_model *model, float *dst, float *src, const float *add, const float *weight,
    float eps, int64_t n
)
{
    weir_rmsnorm_args args = weir_norm_args(model, dst, src, weight, n);
    args.add = add;
    args.add_stride = model->shape.d_model;
    args.eps = eps;
    return weir_rmsnorm(model->stream, &args);
}

/* Multiplies rows that the host can read. */
static void scale_rows(float *x, int64_t n_elements, float scale)
{
    for (int64_t i = 0; i < n_elements; i++) x[i] *= scale;
}

/* Passes the residual stream to the batch's observer. */
static void show_rows(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch, int64_t layer
)
{
    const int64_t n = batch->n_rows * model->shape.d_model;
    const bool is_apart = w->shown_rows != w->x, is_scaled = model->residual_scale != 1.0f;
    if (batch->observe == NULL) return;
    /* Between layers `in` is free. */
    float *const shown = is_apart || !is_scaled ? w->shown_rows : w->in;
    if (shown != w->x) weir_stream_copy(model->stream, shown, w->x, (size_t)n * sizeof(float));
    if (is_scaled) scale_rows(shown, n, model->residual_scale);
    batch->observe(batch->user, layer, shown);
}

weir_status weir_add_pending(const weir_model *model, const weir_workspace *w, int64_t n_rows)
{
    const int64_t d = model->shape.d_model;
    return weir_add(
        model->stream, &(weir_add_args){ .dst = w->x,
                                         .src = w->out,
                                         .n_rows = n_rows,
                                         .dim = d,
                                         .dst_stride = d,
                                         .src_stride = d }
    );
}

/* Adds `pending` (may be NULL: nothing) to the residual stream. *in becomes what a block reads: the
 * stream after its norm, or the stream itself. */
static weir_status enter(
    const weir_model *model, weir_workspace *w, const float *pending, const float *weight,
    int64_t n, const float **in
)
{
    *in = weight != NULL ? w->in : w->x;
    if (weight != NULL) return norm(model, w->in, w->x, pending, weight, model->stream_eps, n);
    return pending != NULL ? weir_add_pending(model, w, n) : WEIR_OK;
}

/* Applies the norm of a block's output, if it has one. */
static weir_status leave(const weir_model *model, weir_workspace *w, const float *weight, int64_t n)
{
    const float eps = (float)model->shape.norm_eps;
    return weight != NULL ? norm(model, w->out, w->out, NULL, weight, eps, n) : WEIR_OK;
}

/* A block of a layer, with its norms. */
typedef struct layer_part {
    const weir_block_use *use;
    const void *weights;
    const float *norm, *norm_after;
} layer_part;

/* Runs a block, if the layer has it; *pending becomes its output. */
static weir_status run_part(
    const weir_model *model, weir_workspace *w, const layer_part *part, weir_step *step,
    const float **pending
)
{
    const weir_block *const block = part->use->block;
    if (block->forward == NULL) return WEIR_OK;
    WEIR_TRY(enter(model, w, *pending, part->norm, step->n_rows, &step->in.x));
    WEIR_TRY(block->forward(&model->shape, part->use->options, part->weights, step));
    *pending = w->out;
    return leave(model, w, part->norm_after, step->n_rows);
}

/* Multiplies the residual stream by the scale of a layer, after adding `pending`. */
static weir_status scale_stream(
    const weir_model *model, weir_workspace *w, const float *scale, int64_t n, const float **pending
)
{
    const int64_t d = model->shape.d_model;
    if (*pending != NULL) WEIR_TRY(weir_add_pending(model, w, n));
    *pending = NULL;
    return weir_glu(
        model->stream, &(weir_glu_args){ .dst = w->x,
                                         .gate = w->x,
                                         .up = scale,
                                         .n_rows = n,
                                         .dim = d,
                                         .dst_stride = d,
                                         .gate_stride = d,
                                         .kind = WEIR_GLU_BILINEAR }
    );
}

weir_status weir_run_layer(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l,
    const float **pending
)
{
    const layer_part mixer = { &l->mixer, l->mixer_weights, l->mixer_norm, l->mixer_norm_after },
                     ffn = { &l->ffn, l->ffn_weights, l->ffn_norm, l->ffn_norm_after },
                     input = { &l->input, l->input_weights, NULL, l->input_norm_after };
    weir_fill_layer(w, model, batch, l);
    weir_step step = weir_step_of(model, w, batch, l);
    WEIR_TRY(run_part(model, w, &mixer, &step, pending));
    WEIR_TRY(run_part(model, w, &ffn, &step, pending));
    if (l->input.block != NULL) WEIR_TRY(run_part(model, w, &input, &step, pending));
    return l->scale != NULL ? scale_stream(model, w, l->scale, step.n_rows, pending) : WEIR_OK;
}

weir_status weir_run_layers(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const float *pending = NULL;
    show_rows(model, w, batch, -1);
    WEIR_TRY(weir_fill_layer_inputs(model, w, batch));
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        WEIR_TRY(weir_run_layer(model, w, batch, &model->layers[i], &pending));
        if (batch->observe == NULL) continue;
        if (pending != NULL) WEIR_TRY(weir_add_pending(model, w, batch->n_rows));
        pending = NULL;
        show_rows(model, w, batch, i);
    }
    return pending != NULL ? weir_add_pending(model, w, batch->n_rows) : WEIR_OK;
}

weir_status weir_project_logits(const weir_model *model, const weir_workspace *w, int64_t n)
{
    const weir_matmul_output logits = { .weight = model->output,
                                        .dst = w->logits,
                                        .dst_stride = model->shape.n_vocab };
    const weir_shape *const shape = &model->shape;
    WEIR_TRY(weir_matmul(
        model->stream, &(weir_matmul_args){ .x = w->gathered,
                                            .n_rows = n,
                                            .n_in = shape->d_model,
                                            .x_stride = shape->d_model,
                                            .n_outputs = 1,
                                            .outputs = { logits } }
    ));
    if (shape->logit_softcap == 0.0) return WEIR_OK;
    return weir_softcap(
        model->stream, &(weir_softcap_args){ .x = w->logits,
                                             .n_rows = n,
                                             .dim = shape->n_vocab,
                                             .stride = shape->n_vocab,
                                             .cap = (float)shape->logit_softcap }
    );
}

/* Shows the rows after the last norm, as those of a layer after the last. */
static weir_status show_normed(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch
)
{
    const int64_t n = batch->n_rows;
    float *const shown = w->shown_rows != w->x ? w->shown_rows : w->in;
    if (batch->observe == NULL) return WEIR_OK;
    WEIR_TRY(norm(model, w->in, w->x, NULL, model->output_norm, model->stream_eps, n));
    if (shown != w->in)
        weir_stream_copy(
            model->stream, shown, w->in, (size_t)(n * model->shape.d_model) * sizeof(float)
        );
    batch->observe(batch->user, model->shape.n_layers, shown);
    return WEIR_OK;
}

/* Norm and projection of the requested rows only. */
static weir_status run_output(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, n = batch->n_logits;
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n; i++)
        weir_stream_queue_copy(
            model->stream, w->gathered + i * d, w->x + batch->logit_rows[i] * d,
            (size_t)d * sizeof(float)
        );
    WEIR_TRY(norm(model, w->gathered, w->gathered, NULL, model->output_norm, model->stream_eps, n));
    return weir_project_logits(model, w, n);
}

static weir_status embed(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model;
    WEIR_TRY(weir_embed(
        model->stream, &(weir_embed_args){ .dst = w->shown_rows,
                                           .table = model->embedding->data,
                                           .ids = batch->tokens,
                                           .n_rows = batch->n_rows,
                                           .dim = d,
                                           .n_vocab = model->shape.n_vocab,
                                           .dtype = model->embedding->dtype }
    ));
    if (model->stream_scale != 1.0f && !weir_stream_is_planning(model->stream))
        scale_rows(w->shown_rows, batch->n_rows * d, model->stream_scale);
    if (w->x != w->shown_rows)
        weir_stream_queue_copy(
            model->stream, w->x, w->shown_rows, (size_t)(batch->n_rows * d) * sizeof(float)
        );
    return WEIR_OK;
}

static weir_status run(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t v = model->shape.n_vocab;
    weir_fill_positions(w, model, batch);
    WEIR_TRY(embed(model, w, batch));
    WEIR_TRY(weir_run_layers(model, w, batch));
    WEIR_TRY(show_normed(model, w, batch));
    if (model->mtp.is_there)
        WEIR_TRY(
            norm(model, w->hidden, w->x, NULL, model->output_norm, model->stream_eps, batch->n_rows)
        );
    WEIR_TRY(run_output(model, w, batch));
    if (w->logits != w->shown_logits)
        weir_stream_copy(
            model->stream, w->shown_logits, w->logits, (size_t)(batch->n_logits * v) * sizeof(float)
        );
    return weir_stream_finish(model->stream);
}

/* Tells which segments have rows that were lost. */
static void tell_lost(const weir_workspace *w, const weir_batch *batch)
{
    for (const weir_batch_segment *s = batch->segments; s < batch->segments + batch->n_segments;
         s++) {
        const bool *const rows = w->lost_rows + s->first_row;
        if (memchr(rows, true, (size_t)s->n_rows * sizeof *rows) != NULL) *s->lost = true;
    }
}

weir_status weir_model_forward(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch,
    const float **logits, weir_error *error
)
{
    WEIR_ASSERT(batch->n_rows >= 1 && batch->n_rows <= workspace->limits.rows);
    WEIR_ASSERT(batch->n_segments >= 1 && batch->n_segments <= workspace->limits.segments);
    WEIR_ASSERT(batch->n_logits >= 0 && batch->n_logits <= workspace->limits.logits);
    WEIR_ASSERT(batch->source == NULL || workspace->limits.has_cold);
    workspace->may_lose = workspace->lost_rows != NULL && batch->segments[0].lost != NULL;
    workspace->problem = (weir_error){ 0 };
    if (workspace->may_lose)
        memset(workspace->lost_rows, 0, (size_t)batch->n_rows * sizeof *workspace->lost_rows);
    const weir_status status = run(model, workspace, batch);
    if (workspace->may_lose && status == WEIR_OK) tell_lost(workspace, batch);
    weir_error problem;
    if (status != WEIR_OK && model->experts != NULL &&
        weir_expert_cache_problem(model->experts, &problem))
        return weir_error_set(error, status, "%s", problem.text);
    if (status != WEIR_OK)
        return weir_error_set(
            error, status, "the forward pass failed: %s", weir_status_text(status)
        );
    *logits = workspace->shown_logits;
    return WEIR_OK;
}
