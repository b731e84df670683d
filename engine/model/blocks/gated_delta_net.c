/* engine/model/blocks/gated_delta_net.c - the linear-attention mixer of Qwen3-Next and Qwen3.5
 * (Yang et al. 2024, "Gated Delta Networks"). State per sequence: the last (taps - 1) conv inputs
 * and a [k_dim, v_dim] matrix per V head; no KV rows; a rewind needs a snapshot
 * (docs/models/qwen35.md). */
#include "engine/model/blocks/layer_ops.h"

typedef struct weights {
    const weir_weight *qkv, *z, *a, *b, *out; /* [C, D] [Hv*dv, D] [Hv, D] [Hv, D] [D, Hv*dv] */
    const weir_weight *q, *k, *v; /* split_qkv: [Hk*dk, D] [Hk*dk, D] [Hv*dv, D] */
    const float *conv, *a_neg, *dt_bias, *norm; /* [C, taps] [Hv] [Hv] [dv]                     */
} weights;

static int64_t qk_width(const weir_shape *shape) { return shape->gdn_k_heads * shape->gdn_k_dim; }
static int64_t v_width(const weir_shape *shape) { return shape->gdn_v_heads * shape->gdn_v_dim; }
static int64_t qkv_width(const weir_shape *shape) { return 2 * qk_width(shape) + v_width(shape); }

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(qkv, qkv_width(shape))
WEIR_EXTENT(qk, qk_width(shape))
WEIR_EXTENT(inner, v_width(shape))
WEIR_EXTENT(v_heads, shape->gdn_v_heads)
WEIR_EXTENT(v_head, shape->gdn_v_dim)
WEIR_EXTENT(taps, shape->gdn_taps)

typedef struct delta_options {
    bool split_qkv; /* W_qkv is three matrices */
    bool tiled_heads; /* V head p reads K head p % Hk (GGUF order), else p / (Hv / Hk) */
} delta_options;

static bool is_split(const void *options) { return ((const delta_options *)options)->split_qkv; }
static bool is_fused(const void *options) { return !is_split(options); }

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("gdn.qkv", weights, qkv, qkv, model), .wanted = is_fused },
    { WEIR_MATRIX("gdn.q", weights, q, qk, model), .wanted = is_split },
    { WEIR_MATRIX("gdn.k", weights, k, qk, model), .wanted = is_split },
    { WEIR_MATRIX("gdn.v", weights, v, inner, model), .wanted = is_split },
    { WEIR_MATRIX("gdn.z", weights, z, inner, model) },
    { WEIR_MATRIX("gdn.a", weights, a, v_heads, model) },
    { WEIR_MATRIX("gdn.b", weights, b, v_heads, model) },
    { WEIR_MATRIX("gdn.out", weights, out, model, inner) },
    { WEIR_VECTOR("gdn.conv", weights, conv, qkv, taps) },
    { WEIR_VECTOR("gdn.a_neg", weights, a_neg, v_heads) },
    { WEIR_VECTOR("gdn.dt_bias", weights, dt_bias, v_heads) },
    { WEIR_VECTOR("gdn.norm", weights, norm, v_head) },
    { 0 }
};

static const weir_block_option option_table[] = {
    WEIR_FLAG_OPTION(delta_options, split_qkv, "split_qkv", false),
    WEIR_FLAG_OPTION(delta_options, tiled_heads, "tiled_heads", false),
    { 0 }
};

static const char *const shapes[] = { "gdn_k_heads", "gdn_v_heads", "gdn_k_dim",
                                      "gdn_v_dim",   "gdn_taps",    NULL };

static const char *reject(const weir_shape *shape, const void *options)
{
    (void)options;
    return shape->gdn_v_heads % shape->gdn_k_heads != 0
               ? "the V heads do not divide into the K heads"
               : NULL;
}

static int64_t history_elements(const weir_shape *shape, const void *options)
{
    (void)options;
    return (shape->gdn_taps - 1) * qkv_width(shape);
}

static int64_t state_elements(const weir_shape *shape, const void *options)
{
    (void)options;
    const int64_t tiles = (shape->gdn_v_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    return shape->gdn_v_heads * tiles * shape->gdn_k_dim * WEIR_DELTA_LANES;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return n_rows * (2 * qkv_width(shape) + 2 * v_width(shape) + 2 * shape->gdn_v_heads);
}

typedef struct recurrent_arrays {
    const float *raw; /* [n, C] */
    float *mix; /* [n, C] */
    const float *a, *b;
    float *out;
} recurrent_arrays;

/* q, k, v = split(silu(conv(W_qkv x))); S <- exp(g) S + beta k (v - S^T k)^T; o = S^T q, with
 * g = a_neg * softplus(W_a x + dt), beta = sigmoid(W_b x). `forward` ends with
 * out = W_out (rmsnorm(o) * weight * silu(W_z x)). */
static weir_status run_round(
    const weir_shape *shape, const void *options, const weights *w, const weir_step *step,
    const weir_recurrent_round *round, const recurrent_arrays *x
)
{
    WEIR_TRY(weir_conv1d(
        step->stream, &(weir_conv1d_args){ .dst = x->mix,
                                           .src = x->raw,
                                           .taps = w->conv,
                                           .segments = round->segments,
                                           .n_segments = step->n_segments,
                                           .n_channels = qkv_width(shape),
                                           .n_taps = shape->gdn_taps }
    ));
    WEIR_TRY(weir_gated_delta_rule(
        step->stream, &(weir_gated_delta_rule_args
                      ){ .out = x->out,
                         .q = x->mix,
                         .k = x->mix + qk_width(shape),
                         .v = x->mix + 2 * qk_width(shape),
                         .a = x->a,
                         .b = x->b,
                         .a_neg = w->a_neg,
                         .dt_bias = w->dt_bias,
                         .segments = round->segments,
                         .n_segments = step->n_segments,
                         .n_k_heads = shape->gdn_k_heads,
                         .n_v_heads = shape->gdn_v_heads,
                         .key_dim = shape->gdn_k_dim,
                         .value_dim = shape->gdn_v_dim,
                         .qkv_stride = qkv_width(shape),
                         .ab_stride = shape->gdn_v_heads,
                         .tiled_heads = ((const delta_options *)options)->tiled_heads }
    ));
    weir_copy_states(step, round);
    return WEIR_OK;
}

typedef struct projections {
    float *raw, *z, *a, *b; /* [n, C] [n, Hv*dv] [n, Hv] [n, Hv] */
} projections;

static weir_status project(
    const weir_shape *shape, const void *options, const weights *w, const weir_step *step,
    const projections *to
)
{
    const weir_linear_output all[] = { { to->raw, w->qkv, NULL },
                                       { to->z, w->z, NULL },
                                       { to->a, w->a, NULL },
                                       { to->b, w->b, NULL } };
    if (!is_split(options)) return weir_linear_outputs(step, 4, all, step->in.x);
    const int64_t d = shape->d_model, channels = qkv_width(shape), k = qk_width(shape);
    WEIR_TRY(weir_linear_outputs(step, 3, all + 1, step->in.x));
    return weir_matmul(
        step->stream,
        &(weir_matmul_args
        ){ .x = step->in.x,
           .n_rows = step->n_rows,
           .n_in = d,
           .x_stride = d,
           .n_outputs = 3,
           .outputs = { { .weight = w->q, .dst = to->raw, .dst_stride = channels },
                        { .weight = w->k, .dst = to->raw + k, .dst_stride = channels },
                        { .weight = w->v, .dst = to->raw + 2 * k, .dst_stride = channels } } }
    );
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, heads = shape->gdn_v_heads;
    const int64_t channels = qkv_width(shape), width = v_width(shape);

    float *const raw = step->out.scratch; /* [n, C] before the convolution */
    float *const mix = raw + n * channels; /* [n, C] = q | k | v            */
    float *const z = mix + n * channels; /* [n, Hv*dv]                    */
    float *const o = z + n * width; /* [n, Hv*dv]                    */
    float *const a = o + n * width; /* [n, Hv]                       */
    float *const b = a + n * heads; /* [n, Hv]                       */

    WEIR_TRY(project(shape, options, w, step, &(projections){ raw, z, a, b }));
    for (int64_t i = 0; i < step->in.n_rounds; i++)
        WEIR_TRY(run_round(
            shape, options, w, step, &step->in.rounds[i], &(recurrent_arrays){ raw, mix, a, b, o }
        ));
    WEIR_TRY(weir_gated_rmsnorm(
        step->stream, &(weir_gated_rmsnorm_args){ .dst = o,
                                                  .src = o,
                                                  .gate = z,
                                                  .weight = w->norm,
                                                  .n_rows = n * heads,
                                                  .dim = shape->gdn_v_dim,
                                                  .n_weights = 1,
                                                  .eps = (float)shape->norm_eps }
    ));
    return weir_linear(step, step->out.x, w->out, o);
}

static const weir_state_ops state_ops = { .history_elements = history_elements,
                                          .elements = state_elements };

const weir_block weir_block_gated_delta_net = {
    .name = "gated_delta_net",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(delta_options),
    .reject = reject,
    .state = &state_ops,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
