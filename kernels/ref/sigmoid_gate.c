/* kernels/ref/sigmoid_gate.c - x times the sigmoid of its gate: the output gate of gated
 * attention. */
#include <math.h>

#include "kernels/ref/row.h"

static weir_status weir_k_ref_sigmoid_gate(const weir_kernel_context *context, const void *op_args)
{
    const weir_sigmoid_gate_args *const args = op_args;
    (void)context;
    for (int64_t r = 0; r < args->n_rows; r++) {
        for (int64_t h = 0; h < args->n_heads; h++) {
            float *const x = args->x + r * args->x_stride + h * args->x_head_stride;
            const float *const gate =
                args->gate + r * args->gate_stride + h * args->gate_head_stride;
            for (int64_t i = 0; i < args->dim; i++)
                x[i] = (float)((double)x[i] / (1.0 + exp(-(double)gate[i])));
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(sigmoid_gate, WEIR_OP_SIGMOID_GATE)
