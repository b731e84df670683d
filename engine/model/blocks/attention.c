/* engine/model/blocks/attention.c - grouped-query attention (Ainslie et al. 2023), with the options
 * that published models use: biases, RMS norm on q and k, partial RoPE in both pairings, a sliding
 * window, and Qwen3.5's output gate. */
#include <math.h>

#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/heads.h"

typedef struct weights {
    weir_heads heads;
} weights;

static const weir_slot slots[] = { WEIR_HEADS_SLOTS(weights, heads), { 0 } };

typedef struct attention_options {
    weir_heads_options heads;
    bool window; /* the shape's sliding window applies */
} attention_options;

static const weir_block_option option_table[] = {
    WEIR_HEADS_OPTIONS(attention_options, heads),
    WEIR_FLAG_OPTION(attention_options, window, "window", false),
    { 0 }
};

/* 0: all earlier rows are attended to. */
static int32_t window_of(const weir_shape *shape, const void *options)
{
    return ((const attention_options *)options)->window ? (int32_t)shape->window : 0;
}

static const char *const *more_shapes(const void *options)
{
    static const char *const window[] = { "window", NULL };
    return window + !((const attention_options *)options)->window;
}

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    weir_block_kv rows = weir_heads_kv(shape, options);
    rows.geometry.window = window_of(shape, options);
    rows.watched = rows.geometry.window == 0;
    return rows;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return n_rows * (weir_heads_q_width(shape, options) + 2 * weir_heads_kv_width(shape, options) +
                     weir_heads_width(shape, options));
}

/* q, k, v = W_q x, W_k x, W_v x; q, k = rope(norm(q)), rope(norm(k)); k and v go to the KV pages;
 * out = W_o (softmax(q K^T / sqrt(hd)) V * sigmoid(gate)).
 * With q_gate W_q x is per head [query | gate]. */
static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, hd = shape->head_dim;
    const int64_t q_row = weir_heads_q_width(shape, options),
                  kv_row = weir_heads_kv_width(shape, options),
                  o_row = weir_heads_width(shape, options);

    float *const q = step->out.scratch; /* [n, H, hd (| gate)] */
    float *const k = q + n * q_row; /* [n, G, hd]          */
    float *const v = k + n * kv_row; /* [n, G, hd]          */
    float *const out = v + n * kv_row; /* [n, H, hd]          */

    WEIR_TRY(weir_heads_project(shape, options, &w->heads, step, q, k, v));
    WEIR_TRY(weir_heads_rope(shape, options, step, q, k));
    WEIR_TRY(weir_attend(
        step, k, v,
        (weir_attention_args){ .out = out,
                               .q = q,
                               .n_heads = shape->n_heads,
                               .n_kv_heads = shape->n_kv_heads,
                               .key_dim = hd,
                               .value_dim = hd,
                               .q_stride = q_row,
                               .q_head_stride = q_row / shape->n_heads,
                               .out_stride = o_row,
                               .window = window_of(shape, options),
                               .scale = 1.0f / sqrtf((float)hd) }
    ));
    WEIR_TRY(weir_heads_gate(shape, options, step, out, q));
    return weir_heads_out(&w->heads, step, out);
}

const weir_block weir_block_attention = {
    .name = "attention",
    .kind = WEIR_BLOCK_MIXER,
    .slots = slots,
    .shapes = weir_heads_shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(attention_options),
    .check = weir_heads_check,
    .kv = kv,
    .more_shapes = more_shapes,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
