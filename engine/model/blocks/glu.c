/* engine/model/blocks/glu.c - the gated feed-forward blocks (Shazeer 2020, "GLU variants"):
 * swiglu, down(silu(gate x) * (up x)), and geglu, down(gelu(gate x) * (up x)). */
#include "engine/model/blocks/layer_ops.h"

typedef struct glu_options {
    bool wide; /* its width is d_ffn_wide */
} glu_options;

static const weir_block_option option_table[] = {
    WEIR_FLAG_OPTION(glu_options, wide, "wide", false), { 0 }
};

typedef struct weights {
    const weir_weight *gate, *up, *down; /* [F, D] [F, D] [D, F] */
} weights;

WEIR_EXTENT(model, shape->d_model)
static int64_t inner(const weir_shape *shape, const void *options)
{
    return ((const glu_options *)options)->wide ? shape->d_ffn_wide : shape->d_ffn;
}

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("ffn.gate", weights, gate, inner, model) },
    { WEIR_MATRIX("ffn.up", weights, up, inner, model) },
    { WEIR_MATRIX("ffn.down", weights, down, model, inner) },
    { 0 }
};

static const char *const shapes[] = { "d_ffn", NULL };
static const char *const *more_shapes(const void *options)
{
    static const char *const none[] = { NULL }, *const wide[] = { "d_ffn_wide", NULL };
    return ((const glu_options *)options)->wide ? wide : none;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return n_rows * 2 * inner(shape, options);
}

static weir_status forward(
    const weir_shape *shape, const void *options, const weights *w, const weir_step *step,
    weir_glu_kind kind
)
{
    const int64_t n = step->n_rows, f = inner(shape, options);
    float *const gate = step->out.scratch; /* [n, F] */
    float *const up = gate + n * f; /* [n, F] */

    WEIR_TRY(weir_linear_outputs(
        step, 2, (const weir_linear_output[]){ { gate, w->gate, NULL }, { up, w->up, NULL } },
        step->in.x
    ));
    WEIR_TRY(weir_glu(
        step->stream, &(weir_glu_args){ .dst = gate,
                                        .gate = gate,
                                        .up = up,
                                        .n_rows = n,
                                        .dim = f,
                                        .dst_stride = f,
                                        .gate_stride = f,
                                        .up_stride = f,
                                        .kind = kind }
    ));
    return weir_linear(step, step->out.x, w->down, gate);
}

static weir_status forward_swiglu(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    return forward(shape, options, block_weights, step, WEIR_GLU_SWIGLU);
}

static weir_status forward_geglu(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    return forward(shape, options, block_weights, step, WEIR_GLU_GEGLU);
}

#define GLU_BLOCK(text, run)                                                                       \
    { .name = text,                                                                                \
      .kind = WEIR_BLOCK_FFN,                                                                      \
      .parameters = parameters,                                                                    \
      .shapes = shapes,                                                                            \
      .weights_bytes = sizeof(weights),                                                            \
      .options = option_table,                                                                     \
      .options_bytes = sizeof(glu_options),                                                        \
      .more_shapes = more_shapes,                                                                  \
      .scratch_elements = scratch_elements,                                                        \
      .forward = run }
const weir_block weir_block_swiglu = GLU_BLOCK("swiglu", forward_swiglu);
const weir_block weir_block_geglu = GLU_BLOCK("geglu", forward_geglu);
