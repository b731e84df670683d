/* kernels/ref/softcap.c - cap * tanh(x / cap) in place. */
#include <math.h>

#include "kernels/ref/row.h"

static weir_status weir_k_ref_softcap(const weir_kernel_context *context, const void *op_args)
{
    const weir_softcap_args *const args = op_args;
    const double cap = (double)args->cap;
    (void)context;
    for (int64_t r = 0; r < args->n_rows; r++) {
        float *const x = args->x + r * args->stride;
        for (int64_t i = 0; i < args->dim; i++) x[i] = (float)(cap * tanh((double)x[i] / cap));
    }
    return WEIR_OK;
}

WEIR_REF_ROW(softcap, WEIR_OP_SOFTCAP)
