/* kernels/ref/swiglu.c - silu(gate) * up (Shazeer 2020). */
#include <math.h>

#include "kernels/ref/row.h"

static weir_status weir_k_ref_swiglu(const weir_kernel_context *context, const void *op_args)
{
    const weir_swiglu_args *const args = op_args;
    (void)context;
    for (int64_t r = 0; r < args->n_rows; r++) {
        for (int64_t i = 0; i < args->dim; i++) {
            const double gate = (double)args->gate[r * args->gate_stride + i],
                         up = (double)args->up[r * args->up_stride + i];
            args->dst[r * args->dst_stride + i] = (float)(gate / (1.0 + exp(-gate)) * up);
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(swiglu, WEIR_OP_SWIGLU)
