/* engine/model/blocks/mamba2.c - Mamba-2, a selective state space (Dao & Gu 2024, "Transformers are
 * SSMs"). State per sequence: the last (taps - 1) conv inputs and a [head_dim, state] matrix per
 * head; no KV rows; a rewind needs a snapshot. */
#include <float.h>
#include <math.h>

#include "engine/model/blocks/layer_ops.h"

typedef struct weights {
    const weir_weight *z, *xbc, *dt, *out; /* [W, D] [C, D] [H, D] [D, W] */
    const float *conv, *conv_bias; /* [C, taps] [C], NULL: none */
    const float *a_neg, *dt_bias, *skip, *norm; /* [H] [H] [H] [W] */
} weights;

/* W: all heads; C: x, and B and C of all groups. */
static int64_t width(const weir_shape *shape) { return shape->ssm_heads * shape->ssm_head_dim; }
static int64_t shared_width(const weir_shape *shape)
{
    return shape->ssm_groups * shape->ssm_state;
}
static int64_t channels(const weir_shape *shape) { return width(shape) + 2 * shared_width(shape); }

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(inner, width(shape))
WEIR_EXTENT(xbc, channels(shape))
WEIR_EXTENT(heads, shape->ssm_heads)
WEIR_EXTENT(taps, shape->ssm_taps)
WEIR_EXTENT(groups, shape->ssm_groups)
WEIR_EXTENT(group_width, width(shape) / shape->ssm_groups)
WEIR_EXTENT(history_elements, (shape->ssm_taps - 1) * channels(shape))

typedef struct mamba_options {
    bool norm_by_group; /* the file has the norm's weight as [groups, W / groups] */
} mamba_options;

static bool has_groups(const void *options)
{
    return ((const mamba_options *)options)->norm_by_group;
}
static bool has_one(const void *options) { return !has_groups(options); }

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("ssm.z", weights, z, inner, model) },
    { WEIR_MATRIX("ssm.xbc", weights, xbc, xbc, model) },
    { WEIR_MATRIX("ssm.dt", weights, dt, heads, model) },
    { WEIR_MATRIX("ssm.out", weights, out, model, inner) },
    { WEIR_VECTOR("ssm.conv", weights, conv, xbc, taps) },
    { WEIR_VECTOR("ssm.conv_bias", weights, conv_bias, xbc), .optional = true },
    { WEIR_VECTOR("ssm.a_neg", weights, a_neg, heads) },
    { WEIR_VECTOR("ssm.dt_bias", weights, dt_bias, heads) },
    { WEIR_VECTOR("ssm.d", weights, skip, heads) },
    { WEIR_VECTOR("ssm.norm", weights, norm, inner), .wanted = has_one },
    { WEIR_VECTOR("ssm.norm", weights, norm, groups, group_width), .wanted = has_groups },
    { 0 }
};

static const weir_block_option option_table[] = {
    WEIR_FLAG_OPTION(mamba_options, norm_by_group, "norm_by_group", false),
    { 0 },
};

static const char *const shapes[] = { "ssm_heads", "ssm_groups", "ssm_head_dim",
                                      "ssm_state", "ssm_taps",   NULL };

static const char *reject(const weir_shape *shape, const void *options)
{
    (void)options;
    if (shape->ssm_heads % shape->ssm_groups != 0) return "the heads do not divide into the groups";
    if (shape->ssm_dt_max > 0.0 && shape->ssm_dt_max < shape->ssm_dt_min)
        return "the upper limit of time steps is below the lower one";
    return NULL;
}

static int64_t state_elements(const weir_shape *shape, const void *options)
{
    (void)options;
    const int64_t tiles = (shape->ssm_head_dim + WEIR_SSM_LANES - 1) / WEIR_SSM_LANES;
    return shape->ssm_heads * tiles * shape->ssm_state * WEIR_SSM_LANES;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return n_rows * (2 * channels(shape) + 2 * width(shape) + shape->ssm_heads);
}

typedef struct recurrent_arrays {
    const float *raw; /* [n, C] */
    float *mix; /* [n, C] */
    const float *dt; /* [n, H] */
    float *out; /* [n, W] */
} recurrent_arrays;

static weir_status scan(
    const weir_shape *shape, const weights *w, const weir_step *step,
    const weir_recurrent_segment *segments, const recurrent_arrays *x
)
{
    const bool has_limit = shape->ssm_dt_max > 0.0 && shape->ssm_dt_max < (double)FLT_MAX;
    return weir_ssm_scan(
        step->stream,
        &(weir_ssm_scan_args){ .out = x->out,
                               .x = x->mix,
                               .b = x->mix + width(shape),
                               .c = x->mix + width(shape) + shared_width(shape),
                               .dt = x->dt,
                               .a_neg = w->a_neg,
                               .dt_bias = w->dt_bias,
                               .skip = w->skip,
                               .segments = segments,
                               .n_segments = step->n_segments,
                               .n_heads = shape->ssm_heads,
                               .n_groups = shape->ssm_groups,
                               .head_dim = shape->ssm_head_dim,
                               .n_state = shape->ssm_state,
                               .xbc_stride = channels(shape),
                               .dt_stride = shape->ssm_heads,
                               .dt_min = (float)shape->ssm_dt_min,
                               .dt_max = has_limit ? (float)shape->ssm_dt_max : INFINITY }
    );
}

/* x, B, C = split(silu(conv(W_xbc u) + bias)); S <- exp(a d) S + d x B^T, y = S C + D x, with
 * a = a_neg, d = softplus(W_dt u + dt_bias). `forward` ends with
 * out = W_out (norm(y * silu(W_z u)) * weight), the norm over each group of heads. */
static weir_status run_round(
    const weir_shape *shape, const weights *w, const weir_step *step,
    const weir_recurrent_round *round, const recurrent_arrays *x
)
{
    WEIR_TRY(weir_conv1d(
        step->stream, &(weir_conv1d_args){ .dst = x->mix,
                                           .src = x->raw,
                                           .taps = w->conv,
                                           .bias = w->conv_bias,
                                           .segments = round->segments,
                                           .n_segments = step->n_segments,
                                           .n_channels = channels(shape),
                                           .n_taps = shape->ssm_taps }
    ));
    WEIR_TRY(scan(shape, w, step, round->segments, x));
    weir_copy_states(step, round);
    return WEIR_OK;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    (void)options;
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, c = channels(shape);
    float *const raw = step->out.scratch; /* [n, C] before the convolution */
    float *const mix = raw + n * c; /* [n, C] = x | B | C           */
    float *const z = mix + n * c; /* [n, W]                       */
    float *const y = z + n * width(shape); /* [n, W]                       */
    float *const dt = y + n * width(shape); /* [n, H]                       */

    WEIR_TRY(weir_linear_outputs(
        step, 3,
        (const weir_linear_output[]
        ){ { raw, w->xbc, NULL }, { z, w->z, NULL }, { dt, w->dt, NULL } },
        step->in.x
    ));
    for (int64_t i = 0; i < step->in.n_rounds; i++)
        WEIR_TRY(
            run_round(shape, w, step, &step->in.rounds[i], &(recurrent_arrays){ raw, mix, dt, y })
        );
    WEIR_TRY(weir_gated_rmsnorm(
        step->stream, &(weir_gated_rmsnorm_args){ .dst = y,
                                                  .src = y,
                                                  .gate = z,
                                                  .weight = w->norm,
                                                  .n_rows = n * shape->ssm_groups,
                                                  .dim = width(shape) / shape->ssm_groups,
                                                  .n_weights = shape->ssm_groups,
                                                  .eps = (float)shape->norm_eps,
                                                  .gate_first = true }
    ));
    return weir_linear(step, step->out.x, w->out, y);
}

static const weir_state_ops state_ops = { .history_elements = history_elements,
                                          .elements = state_elements };

const weir_block weir_block_mamba2 = {
    .name = "mamba2",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(mamba_options),
    .reject = reject,
    .state = &state_ops,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
