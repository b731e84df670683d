/* engine/model/forward.c - one step through the layers: pre-norm residual blocks, the same for
 * every architecture.
 *
 *   x = embed(tokens)
 *   per layer:  x += mixer(norm(x));  x += ffn(norm(x))
 *   logits = output(norm(x)) for the rows that need them
 * Each addition is fused with the next norm, so x is complete only where a norm or an observer
 * reads it. */
#include "engine/model/workspace.h"

/* normed = rmsnorm(x += mixed) over all rows; mixed NULL before the first layer. */
static weir_status add_and_norm(
    const weir_model *model, weir_workspace *w, const float *mixed, const float *weight,
    int64_t n_rows
)
{
    const int64_t d = model->shape.d_model;
    return weir_rmsnorm(
        model->stream, &(weir_rmsnorm_args){ .dst = w->normed,
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
                                             .eps = (float)model->shape.norm_eps }
    );
}

/* Returns NULL if nothing is observed. */
static const weir_attention_watch *const *fill_watches(
    const weir_workspace *w, const weir_batch *batch
)
{
    bool any = false;
    for (int32_t i = 0; i < batch->n_segments; i++) any = any || batch->segments[i].watch != NULL;
    for (int32_t i = 0; any && i < batch->n_segments; i++) w->watches[i] = batch->segments[i].watch;
    return any ? w->watches : NULL;
}

/* Passes the current residual stream to the observer. */
static void show_rows(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch, int64_t layer
)
{
    if (batch->observe == NULL) return;
    if (w->shown_rows != w->x)
        weir_stream_copy(
            model->stream, w->shown_rows, w->x,
            (size_t)(batch->n_rows * model->shape.d_model) * sizeof(float)
        );
    batch->observe(batch->user, layer, w->shown_rows);
}

weir_step weir_step_of(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch, const layer *l
)
{
    return (weir_step){ .stream = model->stream,
                        .positions = w->near_positions,
                        .rope = model->near_rope,
                        .n_rows = batch->n_rows,
                        .n_segments = batch->n_segments,
                        .is_prompt = w->is_prompt,
                        .normed = w->normed,
                        .mixed = w->mixed,
                        .scratch = w->scratch,
                        .kv = w->kv,
                        .kv_owner = w->kv_owner,
                        .kv_format = weir_layer_format(batch->formats, l),
                        .kv_layer = l->kv_index,
                        .sinks = batch->sinks,
                        .source = batch->source,
                        .warm = w->warm,
                        .partials = w->partials,
                        .rounds = w->rounds,
                        .lse = w->lse,
                        .mass = w->mass,
                        .shown_queries = w->shown_queries };
}

/* x += mixed */
static weir_status add(const weir_model *model, const weir_workspace *w, int64_t n_rows)
{
    const int64_t d = model->shape.d_model;
    return weir_add(
        model->stream, &(weir_add_args){ .dst = w->x,
                                         .src = w->mixed,
                                         .n_rows = n_rows,
                                         .dim = d,
                                         .dst_stride = d,
                                         .src_stride = d }
    );
}

static weir_status run_layer(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l,
    const float *pending
)
{
    const int64_t n = batch->n_rows;
    weir_step step = weir_step_of(model, w, batch, l);
    step.n_kv = weir_fill_segments(w, model, batch, l);
    step.n_rounds = weir_fill_rounds(w, batch, l);
    step.watches = l->kv.watched ? fill_watches(w, batch) : NULL;
    WEIR_TRY(add_and_norm(model, w, pending, l->mixer_norm, n));
    WEIR_TRY(l->mixer.block->forward(&model->shape, l->mixer.options, l->mixer_weights, &step));
    WEIR_TRY(add_and_norm(model, w, w->mixed, l->ffn_norm, n));
    return l->ffn.block->forward(&model->shape, l->ffn.options, l->ffn_weights, &step);
}

weir_status weir_run_layers(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const float *pending = NULL;
    show_rows(model, w, batch, -1);
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        WEIR_TRY(run_layer(model, w, batch, &model->layers[i], pending));
        pending = w->mixed;
        if (batch->observe == NULL) continue;
        WEIR_TRY(add(model, w, batch->n_rows));
        pending = NULL;
        show_rows(model, w, batch, i);
    }
    return pending != NULL ? add(model, w, batch->n_rows) : WEIR_OK;
}

/* Norm and projection of the requested rows only. */
static weir_status run_output(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, v = model->shape.n_vocab, n = batch->n_logits;
    if (n == 0) return WEIR_OK;
    for (int64_t i = 0; i < n; i++)
        weir_stream_copy(
            model->stream, w->gathered + i * d, w->x + batch->logit_rows[i] * d,
            (size_t)d * sizeof(float)
        );
    WEIR_TRY(weir_rmsnorm(
        model->stream, &(weir_rmsnorm_args){ .dst = w->gathered,
                                             .src = w->gathered,
                                             .weight = model->output_norm,
                                             .n_rows = n,
                                             .n_groups = 1,
                                             .dim = d,
                                             .dst_stride = d,
                                             .src_stride = d,
                                             .dst_group_stride = d,
                                             .src_group_stride = d,
                                             .eps = (float)model->shape.norm_eps }
    ));
    return weir_matmul(
        model->stream,
        &(weir_matmul_args
        ){ .x = w->gathered,
           .n_rows = n,
           .n_in = d,
           .x_stride = d,
           .n_outputs = 1,
           .outputs = { { .weight = model->output, .dst = w->logits, .dst_stride = v } } }
    );
}

static weir_status run(const weir_model *model, weir_workspace *w, const weir_batch *batch)
{
    const int64_t d = model->shape.d_model, v = model->shape.n_vocab;
    weir_fill_positions(w, model, batch);
    WEIR_TRY(weir_embed(
        model->stream, &(weir_embed_args){ .dst = w->shown_rows,
                                           .table = model->embedding->data,
                                           .ids = batch->tokens,
                                           .n_rows = batch->n_rows,
                                           .dim = d,
                                           .n_vocab = v,
                                           .dtype = model->embedding->dtype }
    ));
    if (w->x != w->shown_rows)
        weir_stream_copy(
            model->stream, w->x, w->shown_rows, (size_t)(batch->n_rows * d) * sizeof(float)
        );
    WEIR_TRY(weir_run_layers(model, w, batch));
    WEIR_TRY(run_output(model, w, batch));
    if (w->logits != w->shown_logits)
        weir_stream_copy(
            model->stream, w->shown_logits, w->logits, (size_t)(batch->n_logits * v) * sizeof(float)
        );
    return weir_stream_finish(model->stream);
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
    const weir_status status = run(model, workspace, batch);
    if (status != WEIR_OK)
        return weir_error_set(
            error, status, "the forward pass failed: %s", weir_status_text(status)
        );
    *logits = workspace->shown_logits;
    return WEIR_OK;
}
