/* engine/model/blocks/short_conv.c - gated short convolution (Liquid AI 2025, LFM2): B, C, u =
 * split(W_in x), y = W_out (C * conv(B * u)). State per sequence: the last (taps - 1) values of B *
 * u; no KV rows; a rewind needs a snapshot. */
#include "engine/model/blocks/layer_ops.h"

typedef struct weights {
    const weir_weight *in, *out; /* [3 D, D] [D, D] */
    const float *conv; /* [D, taps] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, 3 * shape->d_model)
WEIR_EXTENT(taps, shape->conv_taps)
WEIR_EXTENT(history_elements, (shape->conv_taps - 1) * shape->d_model)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("conv.in", weights, in, inner, model) },
    { WEIR_MATRIX("conv.out", weights, out, model, model) },
    { WEIR_VECTOR("conv.taps", weights, conv, model, taps) },
    { 0 }
};

static const char *const shapes[] = { "conv_taps", NULL };

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return n_rows * 5 * shape->d_model;
}

/* Computes dst [n, D] = gate * up, gate in rows of 3 D. */
static weir_status multiply(
    const weir_step *step, float *dst, const float *gate, const float *up, int64_t up_stride,
    int64_t dim
)
{
    return weir_glu(
        step->stream, &(weir_glu_args){ .dst = dst,
                                        .gate = gate,
                                        .up = up,
                                        .n_rows = step->n_rows,
                                        .dim = dim,
                                        .dst_stride = dim,
                                        .gate_stride = 3 * dim,
                                        .up_stride = up_stride,
                                        .kind = WEIR_GLU_BILINEAR }
    );
}

static weir_status run_round(
    const weir_shape *shape, const weights *w, const weir_step *step,
    const weir_recurrent_round *round, float *dst, const float *src
)
{
    WEIR_TRY(weir_conv1d(
        step->stream, &(weir_conv1d_args){ .dst = dst,
                                           .src = src,
                                           .taps = w->conv,
                                           .segments = round->segments,
                                           .n_segments = step->n_segments,
                                           .n_channels = shape->d_model,
                                           .n_taps = shape->conv_taps,
                                           .is_linear = true }
    ));
    weir_copy_states(step, round);
    return WEIR_OK;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    (void)options;
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, d = shape->d_model;
    float *const parts = step->out.scratch; /* [n, 3 D] = B | C | u */
    float *const raw = parts + n * 3 * d; /* [n, D] = B * u */
    float *const mix = raw + n * d; /* [n, D] */

    WEIR_TRY(weir_linear(step, parts, w->in, step->in.x));
    WEIR_TRY(multiply(step, raw, parts, parts + 2 * d, 3 * d, d));
    for (int64_t i = 0; i < step->in.n_rounds; i++)
        WEIR_TRY(run_round(shape, w, step, &step->in.rounds[i], mix, raw));
    WEIR_TRY(multiply(step, mix, parts + d, mix, d, d));
    return weir_linear(step, step->out.x, w->out, mix);
}

static const weir_state_ops state_ops = { .history_elements = history_elements };

const weir_block weir_block_short_conv = {
    .name = "short_conv",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .state = &state_ops,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
