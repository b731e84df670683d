/* engine/model/noise.c - KV rows of noise, to measure depths without computing them. */
#include "engine/model/noise.h"

#include "engine/base/memory.h"
#include "engine/model/workspace.h"

/* Fills rows [n_rows, width] of keys (side 0) or values (side 1). */
static void fill_rows(
    float *rows, const weir_workspace *w, const weir_batch *batch, int64_t kv_layer, int64_t side,
    int64_t width
)
{
    for (int64_t r = 0; r < batch->n_rows; r++) {
        const uint64_t row =
            (uint64_t)((kv_layer * 2 + side) * w->limits.context + w->positions[r]);
        for (int64_t i = 0; i < width; i++)
            rows[r * width + i] = weir_noise_at(row * (uint64_t)width + (uint64_t)i, 1.0f);
    }
}

/* Elements of the keys and values of a row, in the layer with the most. */
static int64_t most_row_elements(const weir_model *model)
{
    int64_t most = 0;
    for (int64_t i = 0; i < model->shape.n_layers; i++) {
        const weir_kv_geometry *const g = &model->layers[i].kv.geometry;
        const int64_t n = g->n_heads * (g->key_dim + weir_kv_stored_value_dim(g));
        if (n > most) most = n;
    }
    return most;
}

/* The host fills `rows`, the workspace's scratch is near the kernel: the same memory if there is no
 * device. */
static weir_status write_noise(
    const weir_model *model, weir_workspace *w, const weir_batch *batch, const layer *l, float *rows
)
{
    const weir_kv_geometry *const g = &l->kv.geometry;
    const int64_t value_dim = weir_kv_stored_value_dim(g), k_width = g->n_heads * g->key_dim,
                  v_width = g->n_heads * value_dim;
    float *const k = w->scratch, *const v = k + batch->n_rows * k_width;
    const weir_kv_pair format = weir_layer_format(batch->formats, l);
    fill_rows(rows, w, batch, l->kv_index, 0, k_width);
    fill_rows(rows + batch->n_rows * k_width, w, batch, l->kv_index, 1, v_width);
    if (rows != w->scratch)
        weir_stream_copy(
            model->stream, w->scratch, rows,
            (size_t)(batch->n_rows * (k_width + v_width)) * sizeof *rows
        );
    return weir_kv_write(
        model->stream, &(weir_kv_write_args){ .k = k,
                                              .v = value_dim > 0 ? v : NULL,
                                              .segments = w->kv,
                                              .n_segments = weir_fill_segments(w, model, batch, l),
                                              .n_kv_heads = g->n_heads,
                                              .key_dim = g->key_dim,
                                              .value_dim = value_dim,
                                              .k_stride = k_width,
                                              .v_stride = v_width,
                                              .k_format = format.k,
                                              .v_format = format.v,
                                              .sinks = batch->sinks }
    );
}

weir_status weir_model_fill_noise(
    const weir_model *model, weir_workspace *workspace, const weir_batch *batch, weir_error *error
)
{
    weir_workspace *const w = workspace;
    WEIR_ASSERT(
        batch->n_rows >= 1 && batch->n_rows <= w->limits.rows &&
        batch->n_segments <= w->limits.segments
    );
    weir_fill_positions(w, model, batch);
    /* Then the scratch is not host memory. */
    const bool is_apart = weir_stream_device(model->stream) != NULL;
    const size_t bytes = (size_t)(batch->n_rows * most_row_elements(model)) * sizeof(float);
    float *const rows = is_apart ? weir_memory_take(bytes) : w->scratch;
    weir_status status = rows != NULL ? WEIR_OK : WEIR_ENOMEM;
    for (int64_t i = 0; i < model->shape.n_layers && status == WEIR_OK; i++)
        if (model->layers[i].kv_index >= 0 && !model->layers[i].kv.is_shared)
            status = write_noise(model, w, batch, &model->layers[i], rows);
    if (is_apart) weir_memory_give(rows);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status, "noise cannot be written: %s", weir_status_text(status)
                 );
}
