/* engine/model/blocks/mamba2.c - Mamba-2, a selective state space (Dao & Gu 2024, "Transformers are
 * SSMs"). State per sequence: the last (taps - 1) conv inputs and a [head_dim, state] matrix per
 * head; no KV rows; a rewind needs a snapshot. */
#include <float.h>
#include <math.h>

#include "engine/model/blocks/layer_ops.h"
#include "engine/model/blocks/mamba2.h"

static int64_t width(const weir_shape *shape) { return shape->ssm_heads * shape->ssm_head_dim; }
static int64_t shared_width(const weir_shape *shape)
{
    return shape->ssm_groups * shape->ssm_state;
}
static int64_t channels(const weir_shape *shape) { return width(shape) + 2 * shared_width(shape); }

WEIR_SHARED_EXTENT(weir_mamba2_model, shape->d_model)
WEIR_SHARED_EXTENT(weir_mamba2_width, width(shape))
WEIR_SHARED_EXTENT(weir_mamba2_shared, shared_width(shape))
WEIR_SHARED_EXTENT(weir_mamba2_channels, channels(shape))
WEIR_SHARED_EXTENT(weir_mamba2_heads, shape->ssm_heads)
WEIR_SHARED_EXTENT(weir_mamba2_taps, shape->ssm_taps)
WEIR_SHARED_EXTENT(weir_mamba2_groups, shape->ssm_groups)
WEIR_SHARED_EXTENT(weir_mamba2_group_width, width(shape) / shape->ssm_groups)
WEIR_EXTENT(history_elements, (shape->ssm_taps - 1) * channels(shape))

typedef struct mamba_options {
    weir_mamba2_options own;
} mamba_options;

WEIR_MAMBA2_CHOICES(mamba_options, own)

typedef struct weights {
    weir_mamba2 ssm;
} weights;

static const weir_parameter parameters[] = { WEIR_MAMBA2_PARAMETERS(weights, ssm), { 0 } };

static const weir_block_option option_table[] = { WEIR_MAMBA2_OPTIONS(mamba_options, own), { 0 } };

static const char *const shapes[] = { WEIR_MAMBA2_SHAPES, NULL };

const char *weir_mamba2_reject(const weir_shape *shape)
{
    if (shape->ssm_heads % shape->ssm_groups != 0) return "the heads do not divide into the groups";
    if (shape->ssm_dt_max > 0.0 && shape->ssm_dt_max < shape->ssm_dt_min)
        return "the upper limit of time steps is below the lower one";
    return NULL;
}

static const char *reject(const weir_shape *shape, const void *options)
{
    return (void)options, weir_mamba2_reject(shape);
}

static int64_t state_elements(const weir_shape *shape, const void *options)
{
    (void)options;
    const int64_t tiles = (shape->ssm_head_dim + WEIR_SSM_LANES - 1) / WEIR_SSM_LANES;
    return shape->ssm_heads * tiles * shape->ssm_state * WEIR_SSM_LANES;
}

int64_t weir_mamba2_scratch(const weir_shape *shape, int64_t n_rows)
{
    return n_rows * (2 * channels(shape) + 2 * width(shape) + shape->ssm_heads);
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    return (void)options, (void)n_segments, weir_mamba2_scratch(shape, n_rows);
}

typedef struct recurrent_arrays {
    const float *raw; /* [n, C] */
    float *mix; /* [n, C] */
    const float *dt; /* [n, H] */
    float *out; /* [n, W] */
} recurrent_arrays;

static weir_status scan(
    const weir_shape *shape, const weir_mamba2 *w, const weir_step *step,
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
 * a = a_neg, d = softplus(W_dt u + dt_bias). The pass ends
 * with out = W_out (norm(y * silu(W_z u)) * weight), the norm over each group of heads. */
static weir_status run_round(
    const weir_shape *shape, const weir_mamba2 *w, const weir_step *step,
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

/* The projections of a row; raw has those of x, B and C side by side. */
static weir_status project(
    const weir_shape *shape, const weir_mamba2 *w, const weir_step *step, float *raw, float *z,
    float *dt
)
{
    const weir_linear_output whole[] = { { raw, w->xbc, NULL },
                                         { z, w->z, NULL },
                                         { dt, w->dt, NULL } };
    if (w->xbc != NULL) return weir_linear_outputs(step, 3, whole, step->in.x);
    WEIR_TRY(weir_linear_outputs(step, 2, whole + 1, step->in.x));
    float *const b = raw + width(shape), *const c = b + shared_width(shape);
    const int64_t stride = channels(shape);
    return weir_matmul(
        step->stream, &(weir_matmul_args){ .x = step->in.x,
                                           .n_rows = step->n_rows,
                                           .n_in = shape->d_model,
                                           .x_stride = shape->d_model,
                                           .n_outputs = 3,
                                           .outputs = {
                                               { .weight = w->x, .dst = raw, .dst_stride = stride },
                                               { .weight = w->b, .dst = b, .dst_stride = stride },
                                               { .weight = w->c, .dst = c, .dst_stride = stride },
                                           } }
    );
}

/* y = norm(y * silu(z)) * weight, or without a norm y * silu(z). */
static weir_status gate(
    const weir_shape *shape, const weir_mamba2 *w, const weir_step *step, float *y, const float *z
)
{
    const int64_t n = step->n_rows, dim = width(shape);
    if (w->norm == NULL)
        return weir_glu(
            step->stream, &(weir_glu_args){ .dst = y,
                                            .gate = z,
                                            .up = y,
                                            .n_rows = n,
                                            .dim = dim,
                                            .dst_stride = dim,
                                            .gate_stride = dim,
                                            .up_stride = dim,
                                            .kind = WEIR_GLU_SWIGLU }
        );
    return weir_gated_rmsnorm(
        step->stream, &(weir_gated_rmsnorm_args){ .dst = y,
                                                  .src = y,
                                                  .gate = z,
                                                  .weight = w->norm,
                                                  .n_rows = n * shape->ssm_groups,
                                                  .dim = dim / shape->ssm_groups,
                                                  .n_weights = shape->ssm_groups,
                                                  .eps = (float)shape->norm_eps,
                                                  .gate_first = true }
    );
}

weir_status weir_mamba2_forward(
    const weir_shape *shape, const weir_mamba2 *w, const weir_step *step
)
{
    const int64_t n = step->n_rows, c = channels(shape);
    float *const raw = step->out.scratch; /* [n, C] before the convolution */
    float *const mix = raw + n * c; /* [n, C] = x | B | C           */
    float *const z = mix + n * c; /* [n, W]                       */
    float *const y = z + n * width(shape); /* [n, W]                       */
    float *const dt = y + n * width(shape); /* [n, H]                       */

    WEIR_TRY(project(shape, w, step, raw, z, dt));
    for (int64_t i = 0; i < step->in.n_rounds; i++)
        WEIR_TRY(
            run_round(shape, w, step, &step->in.rounds[i], &(recurrent_arrays){ raw, mix, dt, y })
        );
    WEIR_TRY(gate(shape, w, step, y, z));
    return weir_linear(step, step->out.x, w->out, y);
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    (void)options;
    return weir_mamba2_forward(shape, &((const weights *)block_weights)->ssm, step);
}

const weir_state_ops weir_mamba2_state = { .history_elements = history_elements,
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
    .state = &weir_mamba2_state,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
