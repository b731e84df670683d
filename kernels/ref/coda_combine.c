/* kernels/ref/coda_combine.c - signal minus a share of the noise, then the norm of the head. */
#include <math.h>

#include "kernels/ref/row.h"

static weir_status weir_k_ref_coda_combine(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_combine_args *const args = op_args;
    double r[512];
    (void)context;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->head_dim <= 0 ||
        args->head_dim > 512)
        return WEIR_EINVAL;
    const int64_t group = args->n_heads / args->n_kv_heads, n = args->head_dim;
    for (int64_t t = 0; t < args->n_rows; t++)
        for (int64_t h = 0; h < args->n_heads; h++) {
            const float *const signal =
                                   args->src +
                                   ((t * args->n_kv_heads + h / group) * 2 * group + h % group) * n,
                               *const noise = signal + group * n;
            const double x = (double)args->lambda[t * args->lambda_stride + h] +
                             (double)args->bias[h],
                         share = 1.0 / (1.0 + exp(-x));
            double sum = 0.0;
            for (int64_t d = 0; d < n; d++) {
                r[d] = (double)signal[d] - share * (double)noise[d];
                sum += r[d] * r[d];
            }
            const double scale =
                args->weight ? 1.0 / sqrt(sum / (double)n + (double)args->eps) : 1.0;
            float *const dst = args->dst + (t * args->n_heads + h) * n;
            for (int64_t d = 0; d < n; d++)
                dst[d] = (float)(r[d] * scale * (args->weight ? (double)args->weight[d] : 1.0));
        }
    return WEIR_OK;
}

WEIR_REF_ROW(coda_combine, WEIR_OP_CODA_COMBINE)
