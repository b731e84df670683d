/* kernels/ref/add.c - adds rows to rows. */
#include "kernels/ref/row.h"

static weir_status weir_k_ref_add(const weir_kernel_context *context, const void *op_args)
{
    const weir_add_args *const args = op_args;
    (void)context;
    for (int64_t r = 0; r < args->n_rows; r++)
        for (int64_t i = 0; i < args->dim; i++)
            args->dst[r * args->dst_stride + i] += args->src[r * args->src_stride + i];
    return WEIR_OK;
}

WEIR_REF_ROW(add, WEIR_OP_ADD)
