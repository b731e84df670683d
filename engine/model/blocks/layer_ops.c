#include "engine/model/blocks/layer_ops.h"

weir_status weir_linear(
    const weir_step *step, float *dst, const weir_weight *weight, const float *x
)
{
    return weir_linear_outputs(step, 1, &(weir_linear_output){ dst, weight, NULL }, x);
}

weir_status weir_linear_outputs(
    const weir_step *step, int32_t n_outputs, const weir_linear_output *outputs, const float *x
)
{
    const int64_t n_in = outputs[0].weight->n_in;
    weir_matmul_args args = {
        .x = x, .n_rows = step->n_rows, .n_in = n_in, .x_stride = n_in, .n_outputs = n_outputs
    };
    for (int32_t i = 0; i < n_outputs; i++)
        args.outputs[i] = (weir_matmul_output){ .weight = outputs[i].weight,
                                                .dst = outputs[i].dst,
                                                .bias = outputs[i].bias,
                                                .dst_stride = outputs[i].weight->n_out };
    return weir_matmul(step->stream, &args);
}

weir_status weir_norm_heads(
    const weir_step *step, weir_head_rows heads, const float *weight, double eps
)
{
    return weir_norm_heads_of(step, heads, heads.x, weight, eps);
}

weir_status weir_norm_heads_of(
    const weir_step *step, weir_head_rows heads, float *src, const float *weight, double eps
)
{
    if (weight == NULL) return WEIR_OK;
    return weir_rmsnorm(
        step->stream, &(weir_rmsnorm_args){ .dst = heads.x,
                                            .src = src,
                                            .weight = weight,
                                            .n_rows = step->n_rows,
                                            .n_groups = heads.n,
                                            .dim = heads.dim,
                                            .dst_stride = heads.n * heads.stride,
                                            .dst_group_stride = heads.stride,
                                            .src_stride = heads.n * heads.stride,
                                            .src_group_stride = heads.stride,
                                            .eps = (float)eps }
    );
}

weir_status weir_rope_heads(
    const weir_step *step, weir_rope_table rope, weir_head_rows heads, int64_t rotary_dim,
    weir_rope_pairing pairing
)
{
    return weir_rope(
        step->stream, &(weir_rope_args){ .x = heads.x,
                                         .positions = step->in.positions,
                                         .frequencies = rope.frequencies,
                                         .magnitude = rope.magnitude,
                                         .n_rows = step->n_rows,
                                         .n_heads = heads.n,
                                         .rotary_dim = rotary_dim,
                                         .row_stride = heads.n * heads.stride,
                                         .head_stride = heads.stride,
                                         .pairing = pairing,
                                         .temperature_scale = rope.temperature_scale,
                                         .temperature_length = rope.temperature_length }
    );
}

void weir_copy_states(const weir_step *step, const weir_recurrent_round *round)
{
    for (int32_t i = 0; i < round->n_copies; i++)
        weir_stream_queue_copy(
            step->stream, round->copies[i].dst, round->copies[i].src, round->copies[i].bytes
        );
}
