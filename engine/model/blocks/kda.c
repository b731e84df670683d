/* engine/model/blocks/kda.c - Kimi Delta Attention (Kimi Team 2025, "Kimi Linear"): the gated delta
 * rule with a decay for each channel of the key (docs/models/kimi-linear.md). State per sequence:
 * the last (taps - 1) conv inputs and a [k_dim, v_dim] matrix per head; no KV rows; a rewind needs
 * a snapshot. */
#include "engine/base/array_layout.h"
#include "engine/model/blocks/layer_ops.h"

/* H heads with keys of K and values of V dims; C = H*(2K + V) channels; R = V, the rank of the
 * decay's and the gate's matrices. */
typedef struct weights {
    const weir_weight *q, *k, *v, *out; /* [H*K, D] [H*K, D] [H*V, D] [D, H*V] */
    const weir_weight *f_a, *f_b, *b; /* [R, D] [H*K, R] [H, D] */
    const weir_weight *g_a, *g_b; /* [R, D] [H*V, R] */
    const float *conv; /* [C, taps] q's channels, then those of conv_k and conv_v */
    const float *conv_k, *conv_v; /* [H*K, taps] [H*V, taps] */
    const float *a_neg, *dt_bias, *norm; /* [H] [H*K] [V] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(heads, shape->gdn_v_heads)
WEIR_EXTENT(keys, shape->gdn_k_heads * shape->gdn_k_dim)
WEIR_EXTENT(values, shape->gdn_v_heads * shape->gdn_v_dim)
WEIR_EXTENT(value, shape->gdn_v_dim)
WEIR_EXTENT(rank, shape->gdn_v_dim)
WEIR_EXTENT(taps, shape->gdn_taps)
WEIR_EXTENT(one, 1)
WEIR_EXTENT(channels, 2 * keys(shape, options) + values(shape, options))
WEIR_EXTENT(history_elements, (shape->gdn_taps - 1) * channels(shape, options))

/* Taps are [channels, 1, taps] in files. */
static const weir_parameter parameters[] = {
    { WEIR_MATRIX("kda.q", weights, q, keys, model) },
    { WEIR_MATRIX("kda.k", weights, k, keys, model) },
    { WEIR_MATRIX("kda.v", weights, v, values, model) },
    { WEIR_VECTOR("kda.conv_q", weights, conv, keys, one, taps) },
    { WEIR_VECTOR("kda.conv_k", weights, conv_k, keys, one, taps), .is_joined = true },
    { WEIR_VECTOR("kda.conv_v", weights, conv_v, values, one, taps), .is_joined = true },
    { WEIR_MATRIX("kda.f_a", weights, f_a, rank, model) },
    { WEIR_MATRIX("kda.f_b", weights, f_b, keys, rank) },
    { WEIR_MATRIX("kda.b", weights, b, heads, model) },
    { WEIR_MATRIX("kda.g_a", weights, g_a, rank, model) },
    { WEIR_MATRIX("kda.g_b", weights, g_b, values, rank) },
    { WEIR_VECTOR("kda.a_neg", weights, a_neg, heads) },
    { WEIR_VECTOR("kda.dt_bias", weights, dt_bias, keys) },
    { WEIR_VECTOR("kda.norm", weights, norm, value) },
    { WEIR_MATRIX("kda.out", weights, out, model, values) },
    { 0 }
};

static const char *const shapes[] = { "gdn_k_heads", "gdn_v_heads", "gdn_k_dim",
                                      "gdn_v_dim",   "gdn_taps",    NULL };

static const char *reject(const weir_shape *shape, const void *options)
{
    (void)options;
    return shape->gdn_v_heads != shape->gdn_k_heads ? "a head has a key and a value of its own"
                                                    : NULL;
}

static int64_t state_elements(const weir_shape *shape, const void *options)
{
    (void)options;
    const int64_t tiles = (shape->gdn_v_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES;
    return shape->gdn_v_heads * tiles * shape->gdn_k_dim * WEIR_DELTA_LANES;
}

/* Rows of a step. */
typedef struct memory {
    float *raw, *mix; /* [n, C] q | k | v before the convolution, and after it */
    float *decay; /* [n, H*K] before softplus */
    float *gate, *out; /* [n, H*V] */
    float *f, *g; /* [n, R] */
    float *b; /* [n, H] */
    int64_t n_elements;
} memory;

static memory memory_of(const weir_shape *shape, float *scratch, int64_t n)
{
    weir_arrays arrays = { .base = (char *)scratch };
    memory m = { 0 };
    WEIR_ARRAYS_PLACE(&arrays, m.raw, n * channels(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.mix, n * channels(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.decay, n * keys(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.gate, n * values(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.out, n * values(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.f, n * rank(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.g, n * rank(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.b, n * heads(shape, NULL));
    m.n_elements = (int64_t)(arrays.bytes / sizeof(float));
    return m;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)options, (void)n_segments;
    return memory_of(shape, NULL, n_rows).n_elements;
}

static weir_status project(
    const weir_shape *shape, const weights *w, const weir_step *step, const memory *m
)
{
    const int64_t d = shape->d_model, c = channels(shape, NULL), k = keys(shape, NULL);
    const weir_linear_output narrow[] = { { m->b, w->b, NULL },
                                          { m->f, w->f_a, NULL },
                                          { m->g, w->g_a, NULL } };
    WEIR_TRY(weir_matmul(
        step->stream, &(weir_matmul_args
                      ){ .x = step->in.x,
                         .n_rows = step->n_rows,
                         .n_in = d,
                         .x_stride = d,
                         .n_outputs = 3,
                         .outputs = { { .weight = w->q, .dst = m->raw, .dst_stride = c },
                                      { .weight = w->k, .dst = m->raw + k, .dst_stride = c },
                                      { .weight = w->v, .dst = m->raw + 2 * k, .dst_stride = c } } }
    ));
    WEIR_TRY(weir_linear_outputs(step, 3, narrow, step->in.x));
    WEIR_TRY(weir_linear(step, m->decay, w->f_b, m->f));
    return weir_linear(step, m->gate, w->g_b, m->g);
}

static weir_status run_round(
    const weir_shape *shape, const weights *w, const weir_step *step,
    const weir_recurrent_round *round, const memory *m
)
{
    WEIR_TRY(weir_conv1d(
        step->stream, &(weir_conv1d_args){ .dst = m->mix,
                                           .src = m->raw,
                                           .taps = w->conv,
                                           .segments = round->segments,
                                           .n_segments = step->n_segments,
                                           .n_channels = channels(shape, NULL),
                                           .n_taps = shape->gdn_taps }
    ));
    WEIR_TRY(weir_gated_delta_rule(
        step->stream, &(weir_gated_delta_rule_args){ .out = m->out,
                                                     .q = m->mix,
                                                     .k = m->mix + keys(shape, NULL),
                                                     .v = m->mix + 2 * keys(shape, NULL),
                                                     .a = m->decay,
                                                     .b = m->b,
                                                     .a_neg = w->a_neg,
                                                     .dt_bias = w->dt_bias,
                                                     .segments = round->segments,
                                                     .n_segments = step->n_segments,
                                                     .n_k_heads = shape->gdn_k_heads,
                                                     .n_v_heads = shape->gdn_v_heads,
                                                     .key_dim = shape->gdn_k_dim,
                                                     .value_dim = shape->gdn_v_dim,
                                                     .qkv_stride = channels(shape, NULL),
                                                     .ab_stride = shape->gdn_v_heads,
                                                     .channel_decay = true }
    ));
    weir_copy_states(step, round);
    return WEIR_OK;
}

/* q, k, v = silu(conv(W_q x)), ..; S <- diag(exp g) S, S <- S + beta k (v - S^T k)^T; o = S^T q,
 * with g = a_neg softplus(W_fb W_fa x + dt_bias), beta = sigmoid(W_b x);
 * out = W_out (rmsnorm(o) weight sigmoid(W_gb W_ga x)). */
static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    (void)options;
    const weights *const w = block_weights;
    const memory m = memory_of(shape, step->out.scratch, step->n_rows);
    const int64_t n_heads = shape->gdn_v_heads, dim = shape->gdn_v_dim, width = n_heads * dim;
    WEIR_TRY(project(shape, w, step, &m));
    for (int64_t i = 0; i < step->in.n_rounds; i++)
        WEIR_TRY(run_round(shape, w, step, &step->in.rounds[i], &m));
    WEIR_TRY(weir_norm_heads(
        step, (weir_head_rows){ m.out, n_heads, dim, dim }, w->norm, shape->norm_eps
    ));
    WEIR_TRY(weir_sigmoid_gate(
        step->stream, &(weir_sigmoid_gate_args){ .x = m.out,
                                                 .gate = m.gate,
                                                 .n_rows = step->n_rows,
                                                 .n_heads = n_heads,
                                                 .dim = dim,
                                                 .x_stride = width,
                                                 .x_head_stride = dim,
                                                 .gate_stride = width,
                                                 .gate_head_stride = dim }
    ));
    return weir_linear(step, step->out.x, w->out, m.out);
}

static const weir_state_ops state_ops = { .history_elements = history_elements,
                                          .elements = state_elements };

const weir_block weir_block_kda = {
    .name = "kda",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .reject = reject,
    .state = &state_ops,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
