/* kernels/ref/coda_queries.c - signal and noise queries, computed by one call of attention. */
#include <math.h>

#include "kernels/ref/row.h"

static void rotate(float *dst, const float *q, const float *theta, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        const float c = cosf(theta[i]), s = sinf(theta[i]);
        dst[2 * i] = q[2 * i] * c - q[2 * i + 1] * s;
        dst[2 * i + 1] = q[2 * i] * s + q[2 * i + 1] * c;
    }
}

static weir_status weir_k_ref_coda_queries(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_queries_args *const args = op_args;
    (void)context;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->head_dim <= 0 ||
        args->head_dim % 2 != 0)
        return WEIR_EINVAL;
    const int64_t group = args->n_heads / args->n_kv_heads, n = args->head_dim;
    for (int64_t t = 0; t < args->n_rows; t++)
        for (int64_t h = 0; h < args->n_heads; h++) {
            const float *const q = args->q + t * args->q_stride + h * n;
            float *const signal =
                args->dst + ((t * args->n_kv_heads + h / group) * 2 * group + h % group) * n;
            memcpy(signal, q, (size_t)n * sizeof *q);
            rotate(signal + group * n, q, args->theta + h * n / 2, n);
        }
    return WEIR_OK;
}

WEIR_REF_ROW(coda_queries, WEIR_OP_CODA_QUERIES)
