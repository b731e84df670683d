/* kernels/ref/rmsnorm.c - root-mean-square norm (Zhang & Sennrich 2019), after an optional residual
 * addition. */
#include <math.h>

#include "kernels/ref/row.h"

static void norm_group(float *dst, const float *src, const float *weight, int64_t dim, double eps)
{
    double sum = 0.0;
    for (int64_t i = 0; i < dim; i++) sum += (double)src[i] * (double)src[i];
    const double scale = 1.0 / sqrt(sum / (double)dim + eps);
    for (int64_t i = 0; i < dim; i++) dst[i] = (float)((double)src[i] * scale * (double)weight[i]);
}

static weir_status weir_k_ref_rmsnorm(const weir_kernel_context *context, const void *op_args)
{
    const weir_rmsnorm_args *const args = op_args;
    (void)context;
    if (args->dim <= 0 || (args->add && args->n_groups != 1)) return WEIR_EINVAL;
    for (int64_t r = 0; r < args->n_rows; r++) {
        for (int64_t i = 0; args->add && i < args->dim; i++)
            args->src[r * args->src_stride + i] += args->add[r * args->add_stride + i];
        for (int64_t g = 0; g < args->n_groups; g++)
            norm_group(
                args->dst + r * args->dst_stride + g * args->dst_group_stride,
                args->src + r * args->src_stride + g * args->src_group_stride, args->weight,
                args->dim, (double)args->eps
            );
    }
    return WEIR_OK;
}

WEIR_REF_ROW(rmsnorm, WEIR_OP_RMSNORM)
