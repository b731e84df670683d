/* kernels/ref/embed.c - rows of the embedding table, dequantised. */
#include "kernels/ref/dequantise.h"
#include "kernels/ref/row.h"

static weir_status weir_k_ref_embed(const weir_kernel_context *context, const void *op_args)
{
    const weir_embed_args *const args = op_args;
    (void)context;
    const size_t row_bytes = weir_row_bytes(args->dtype, args->dim);
    for (int64_t t = 0; t < args->n_rows; t++) {
        if (args->ids[t] < 0 || args->ids[t] >= args->n_vocab) return WEIR_EINVAL;
        const char *const row = (const char *)args->table + (size_t)args->ids[t] * row_bytes;
        WEIR_TRY(weir_k_ref_dequantise(args->dst + t * args->dim, row, args->dtype, args->dim));
    }
    return WEIR_OK;
}

WEIR_REF_ROW(embed, WEIR_OP_EMBED)
