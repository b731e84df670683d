/* kernels/ref/expert_sum.c - the weighted sum of what a row's experts computed. */
#include "kernels/ref/row.h"

static weir_status weir_k_ref_expert_sum(const weir_kernel_context *context, const void *op_args)
{
    const weir_expert_sum_args *const args = op_args;
    (void)context;
    for (int64_t t = 0; t < args->n_rows; t++) {
        for (int64_t i = 0; i < args->dim; i++) {
            double sum = 0.0;
            for (int64_t j = t * args->n_terms; j < (t + 1) * args->n_terms; j++)
                sum += (double)args->weights[j] * (double)args->src[args->rows[j] * args->dim + i];
            args->dst[t * args->dim + i] = (float)sum;
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(expert_sum, WEIR_OP_EXPERT_SUM)
