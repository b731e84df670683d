/* engine/model/blocks/layer_input.c - adds what a layer makes of its own embedding of each token
 * (Gemma 3n and 4, per-layer embeddings): W_proj (gelu(W_gate x) * p), x the residual stream, p the
 * layer's row (layer_inputs.c). */
#include "engine/model/blocks/layer_ops.h"

typedef struct weights {
    const weir_weight *gate, *proj; /* [P, D] [D, P] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, shape->d_layer_input)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("input.gate", weights, gate, inner, model) },
    { WEIR_MATRIX("input.proj", weights, proj, model, inner) },
    { 0 }
};

static const char *const shapes[] = { "d_layer_input", NULL };

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return n_rows * shape->d_layer_input;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t p = shape->d_layer_input;
    float *const gate = step->out.scratch; /* [n, P] */
    (void)options;
    WEIR_TRY(weir_linear(step, gate, w->gate, step->in.x));
    WEIR_TRY(weir_glu(
        step->stream, &(weir_glu_args){ .dst = gate,
                                        .gate = gate,
                                        .up = step->in.layer_input,
                                        .n_rows = step->n_rows,
                                        .dim = p,
                                        .dst_stride = p,
                                        .gate_stride = p,
                                        .up_stride = step->in.layer_input_stride,
                                        .kind = WEIR_GLU_GEGLU }
    ));
    return weir_linear(step, step->out.x, w->proj, gate);
}

const weir_block weir_block_layer_input = {
    .name = "layer_input",
    .kind = WEIR_BLOCK_LAYER_INPUT,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .host_only = "rows of per-layer embeddings are read on the host only",
    .scratch_elements = scratch_elements,
    .is_alike = true,
    .forward = forward,
};
