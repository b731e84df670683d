/* engine/model/layer_inputs.c - per-layer embeddings (Gemma 3n and 4): each layer has a row of P
 * elements for each token,
 *   p = (N(W x / sqrt(D)) + sqrt(P) e) / sqrt(2),
 * x the token's embedded row, e its row in a table that is read from the mapped file as that of the
 * embedding is (docs/decisions/0004). blocks/layer_input.c adds it to the residual stream. */
#include <math.h>

#include "engine/model/workspace.h"

/* Reads rows of the table and scales them, on the host. */
static weir_status look_up(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch
)
{
    const int64_t row = weir_model_layer_input_row(model);
    const float scale = sqrtf((float)model->shape.d_layer_input / 2.0f);
    WEIR_TRY(weir_embed(
        model->stream, &(weir_embed_args){ .dst = w->layer_inputs,
                                           .table = model->layer_embedding->data,
                                           .ids = batch->tokens,
                                           .n_rows = batch->n_rows,
                                           .dim = row,
                                           .n_vocab = model->shape.n_vocab,
                                           .dtype = model->layer_embedding->dtype }
    ));
    if (weir_stream_is_planning(model->stream)) return WEIR_OK;
    for (int64_t i = 0; i < batch->n_rows * row; i++) w->layer_inputs[i] *= scale;
    return WEIR_OK;
}

/* N(W x / sqrt(D)) / sqrt(2): the norm's weight has the second root, and a norm of x / s is that of
 * x with eps times s^2. */
static weir_status project(const weir_model *model, const weir_workspace *w, int64_t n)
{
    const weir_shape *const shape = &model->shape;
    const int64_t row = weir_model_layer_input_row(model), p = shape->d_layer_input;
    const weir_matmul_output out = { .weight = model->layer_projection,
                                     .dst = w->scratch,
                                     .dst_stride = row };
    WEIR_TRY(weir_matmul(
        model->stream, &(weir_matmul_args){ .x = w->x,
                                            .n_rows = n,
                                            .n_in = shape->d_model,
                                            .x_stride = shape->d_model,
                                            .n_outputs = 1,
                                            .outputs = { out } }
    ));
    return weir_rmsnorm(
        model->stream,
        &(weir_rmsnorm_args){ .dst = w->scratch,
                              .src = w->scratch,
                              .weight = model->layer_projection_norm,
                              .n_rows = n,
                              .n_groups = shape->n_layers,
                              .dim = p,
                              .dst_stride = row,
                              .src_stride = row,
                              .dst_group_stride = p,
                              .src_group_stride = p,
                              .eps = (float)(shape->norm_eps * (double)shape->d_model) }
    );
}

weir_status weir_fill_layer_inputs(
    const weir_model *model, const weir_workspace *w, const weir_batch *batch
)
{
    const int64_t row = weir_model_layer_input_row(model), n = batch->n_rows;
    if (row == 0) return WEIR_OK;
    WEIR_TRY(look_up(model, w, batch));
    WEIR_TRY(project(model, w, n));
    return weir_add(
        model->stream, &(weir_add_args){ .dst = w->layer_inputs,
                                         .src = w->scratch,
                                         .n_rows = n,
                                         .dim = row,
                                         .dst_stride = row,
                                         .src_stride = row }
    );
}
