/* kernels/ref/gated_rmsnorm.c - norm, then gate: the output norm of Gated DeltaNet (Yang et al.
 * 2024). */
#include <math.h>

#include "kernels/ref/row.h"

static weir_status weir_k_ref_gated_rmsnorm(const weir_kernel_context *context, const void *op_args)
{
    const weir_gated_rmsnorm_args *const args = op_args;
    (void)context;
    if (args->dim <= 0) return WEIR_EINVAL;
    for (int64_t r = 0; r < args->n_rows; r++) {
        const float *const src = args->src + r * args->dim, *const gate =
                                                                args->gate + r * args->dim;
        double sum = 0.0;
        for (int64_t i = 0; i < args->dim; i++) sum += (double)src[i] * (double)src[i];
        const double scale = 1.0 / sqrt(sum / (double)args->dim + (double)args->eps);
        for (int64_t i = 0; i < args->dim; i++) {
            const double silu = (double)gate[i] / (1.0 + exp(-(double)gate[i]));
            args->dst[r * args->dim + i] =
                (float)((double)args->weight[i] * (double)src[i] * scale * silu);
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(gated_rmsnorm, WEIR_OP_GATED_RMSNORM)
