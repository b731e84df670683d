/* engine/model/blocks/relu2.c - the feed-forward block of Nemotron-H: down(relu(up x)^2), without a
 * gate (So et al. 2021, Primer). */
#include "engine/model/blocks/layer_ops.h"

typedef struct weights {
    const weir_weight *up, *down; /* [F, D] [D, F] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, shape->d_ffn)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("ffn.up", weights, up, inner, model) },
    { WEIR_MATRIX("ffn.down", weights, down, model, inner) },
    { 0 }
};

static const char *const shapes[] = { "d_ffn", NULL };

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return n_rows * shape->d_ffn;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t f = shape->d_ffn;
    float *const up = step->out.scratch; /* [n, F] */
    (void)options;

    WEIR_TRY(weir_linear(step, up, w->up, step->in.x));
    WEIR_TRY(weir_glu(
        step->stream, &(weir_glu_args){ .dst = up,
                                        .gate = up,
                                        .n_rows = step->n_rows,
                                        .dim = f,
                                        .dst_stride = f,
                                        .gate_stride = f,
                                        .up_stride = f,
                                        .kind = WEIR_GLU_RELU2 }
    ));
    return weir_linear(step, step->out.x, w->down, up);
}

const weir_block weir_block_relu2 = {
    .name = "relu2",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .scratch_elements = scratch_elements,
    .forward = forward,
};
