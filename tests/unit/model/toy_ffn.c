/* tests/unit/model/toy_ffn.c - a feed-forward block with one matrix of five dimensions:
 * down(silu(up x) * (up x)). */
#include "engine/model/blocks/layer_ops.h"
#include "tests/unit/model/toy_blocks.h"

typedef struct weights {
    const weir_weight *up, *down; /* [2, 2, 2, F/8, D] [D, F] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, shape->d_ffn)
WEIR_EXTENT(eighth, shape->d_ffn / 8)
WEIR_EXTENT(two, 2)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("toy.up", weights, up, two, two, two, eighth, model) },
    { WEIR_MATRIX("toy.down", weights, down, model, inner) },
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
    const int64_t n = step->n_rows, f = shape->d_ffn;
    float *const up = step->out.scratch; /* [n, F] */
    (void)options;
    WEIR_TRY(weir_linear(step, up, w->up, step->in.x));
    WEIR_TRY(weir_glu(
        step->stream, &(weir_glu_args){ .dst = up,
                                        .gate = up,
                                        .up = up,
                                        .n_rows = n,
                                        .dim = f,
                                        .dst_stride = f,
                                        .gate_stride = f,
                                        .up_stride = f }
    ));
    return weir_linear(step, step->out.x, w->down, up);
}

const weir_block toy_ffn = {
    .name = "toy_ffn",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .scratch_elements = scratch_elements,
    .forward = forward,
};
