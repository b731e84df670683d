#include "engine/model/blocks/linear.h"

weir_status weir_linear(
    const weir_step *step, const float *x, int32_t n_outputs, const weir_linear_output *outputs
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
