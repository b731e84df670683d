/* engine/model/blocks/attention.c - grouped-query attention (Ainslie et al. 2023), with the options
 * that published models use: biases, RMS norm on q, k and v, partial RoPE in both pairings and with
 * two bases, a sliding window with heads of another size, the KV rows of an earlier layer, learned
 * sink logits, and Qwen3.5's output gate. */

#include "engine/model/blocks/attention.h"

#include "engine/model/blocks/attend.h"

WEIR_SHARED_EXTENT(weir_attention_heads, shape->n_heads)
bool weir_attention_has_sinks(const void *options)
{
    return ((const weir_attention_options *)options)->sink_logits;
}

static const weir_parameter parameters[] = { WEIR_ATTENTION_PARAMETERS, { 0 } };

static const weir_block_option option_table[] = { WEIR_ATTENTION_OPTIONS, { 0 } };

/* 0: all earlier rows are attended to. */
static int32_t window_of(const weir_shape *shape, const void *options)
{
    return ((const weir_attention_options *)options)->window ? (int32_t)shape->window : 0;
}

static const char *const *more_shapes(const void *options)
{
#define HEADS "n_kv_heads_local", "head_dim_local"
    static const char *const lists[][5] = {
        { NULL },
        { "window" },
        { "rope_theta_local" },
        { "window", "rope_theta_local" },
        { HEADS },
        { "window", HEADS },
        { "rope_theta_local", HEADS },
        { "window", "rope_theta_local", HEADS },
    };
#undef HEADS
    const weir_attention_options *const own = options;
    return lists[own->window + 2 * own->heads.rope_local + 4 * own->heads.local_heads];
}

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    weir_block_kv rows = weir_heads_kv(shape, options);
    rows.geometry.window = window_of(shape, options);
    rows.watched = rows.geometry.window == 0;
    return rows;
}

/* Of the keys of a row that the layer computes. */
static int64_t kv_width(const weir_shape *shape, const void *options)
{
    return ((const weir_attention_options *)options)->heads.shared
               ? 0
               : weir_heads_kv_width(shape, options);
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return n_rows * (weir_heads_q_width(shape, options) + 2 * kv_width(shape, options) +
                     weir_heads_width(shape, options));
}

/* q, k, v = W_q x, W_k x, W_v x; q, k = rope(norm(q)), rope(norm(k)), in KV pages unless shared;
 * out = W_o (softmax(scale q K^T) V * sigmoid(gate)); scale is 1 / sqrt(hd) or attention_scale.
 * With q_gate W_q x is per head [query | gate]. */
static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weir_attention_weights *const w = block_weights;
    const int64_t n = step->n_rows, hd = weir_heads_dim(shape, options);
    const int64_t q_row = weir_heads_q_width(shape, options), kv_row = kv_width(shape, options),
                  o_row = weir_heads_width(shape, options);

    float *const q = step->out.scratch; /* [n, H, hd (| gate)] */
    float *const k = q + n * q_row; /* [n, G, hd]          */
    float *const v = k + n * kv_row; /* [n, G, hd]          */
    float *const out = v + n * kv_row; /* [n, H, hd]          */

    WEIR_TRY(weir_heads_project(shape, options, &w->heads, step, q, k, v));
    WEIR_TRY(weir_heads_rope(shape, options, step, q, k));
    WEIR_TRY(weir_attend(
        step, kv_row > 0 ? k : NULL, v,
        (weir_attention_args){ .out = out,
                               .q = q,
                               .n_heads = shape->n_heads,
                               .n_kv_heads = weir_heads_kv_heads(shape, options),
                               .key_dim = hd,
                               .value_dim = hd,
                               .q_stride = q_row,
                               .q_head_stride = q_row / shape->n_heads,
                               .out_stride = o_row,
                               .window = window_of(shape, options),
                               .scale = weir_heads_scale(shape, options),
                               .sink_logits = w->sink_logits,
                               .softcap = (float)shape->attention_softcap }
    ));
    WEIR_TRY(weir_heads_gate(shape, options, step, out, q));
    return weir_heads_out(&w->heads, step, out);
}

const weir_block weir_block_attention = {
    .name = "attention",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = weir_heads_shapes,
    .weights_bytes = sizeof(weir_attention_weights),
    .options = option_table,
    .options_bytes = sizeof(weir_attention_options),
    .check = weir_heads_check,
    .reject = weir_heads_reject,
    .kv = kv,
    .more_shapes = more_shapes,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
