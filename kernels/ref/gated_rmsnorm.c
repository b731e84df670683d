/* kernels/ref/gated_rmsnorm.c - norm, then gate: the output norm of Gated DeltaNet (Yang et al.
 * 2024); or gate, then norm: that of Mamba-2 (Dao & Gu 2024). */
#include <math.h>

#include "kernels/ref/row.h"

static double silu(float x) { return (double)x / (1.0 + exp(-(double)x)); }

static weir_status weir_k_ref_gated_rmsnorm(const weir_kernel_context *context, const void *op_args)
{
    const weir_gated_rmsnorm_args *const args = op_args;
    (void)context;
    if (args->dim <= 0 || args->n_weights < 1) return WEIR_EINVAL;
    for (int64_t r = 0; r < args->n_rows; r++) {
        const int64_t at = r * args->dim, weight = r % args->n_weights * args->dim;
        double sum = 0.0;
        for (int64_t i = 0; i < args->dim; i++) {
            const double x =
                (double)args->src[at + i] * (args->gate_first ? silu(args->gate[at + i]) : 1.0);
            sum += x * x;
        }
        const double scale = 1.0 / sqrt(sum / (double)args->dim + (double)args->eps);
        for (int64_t i = 0; i < args->dim; i++)
            args->dst[at + i] =
                (float)((double)args->weight[weight + i] * (double)args->src[at + i] * scale *
                        silu(args->gate[at + i]));
    }
    return WEIR_OK;
}

WEIR_REF_ROW(gated_rmsnorm, WEIR_OP_GATED_RMSNORM)
