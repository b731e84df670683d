/* kernels/ref/glu.c - gated linear units (Shazeer 2020), and the square of ReLU without a gate. */
#include <math.h>

#include "kernels/ref/row.h"

static double gated(const weir_glu_args *args, double gate, double up)
{
    const double limit = (double)args->limit;
    switch (args->kind) {
    case WEIR_GLU_SWIGLU: break;
    case WEIR_GLU_GEGLU:
        return gate * 0.5 *
               (1.0 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
    case WEIR_GLU_BILINEAR: return gate * up;
    case WEIR_GLU_CLAMPED:
        gate = fmin(gate, limit);
        return gate / (1.0 + exp(-1.702 * gate)) * (fmax(fmin(up, limit), -limit) + 1.0);
    case WEIR_GLU_RELU2: return gate > 0.0 ? gate * gate : 0.0;
    }
    return gate / (1.0 + exp(-gate)) * up;
}

static weir_status weir_k_ref_glu(const weir_kernel_context *context, const void *op_args)
{
    const weir_glu_args *const args = op_args;
    const bool has_up = args->kind != WEIR_GLU_RELU2;
    (void)context;
    for (int64_t r = 0; r < args->n_rows; r++)
        for (int64_t i = 0; i < args->dim; i++)
            args->dst[r * args->dst_stride + i] = (float)gated(
                args, (double)args->gate[r * args->gate_stride + i],
                has_up ? (double)args->up[r * args->up_stride + i] : 0.0
            );
    return WEIR_OK;
}

WEIR_REF_ROW(glu, WEIR_OP_GLU)
