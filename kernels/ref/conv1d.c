/* kernels/ref/conv1d.c - short causal convolution per channel, then silu or not; the raw inputs
 * that the next call needs stay in the history. */
#include <math.h>

#include "kernels/ref/row.h"

/* Input of channel c at row `row` of the segment; rows before the first come from the history. */
static float input(
    const weir_conv1d_args *args, const weir_recurrent_segment *segment, int64_t row, int64_t c
)
{
    if (row >= 0) return args->src[(segment->first_row + row) * args->n_channels + c];
    return segment->conv_history[(row + args->n_taps - 1) * args->n_channels + c];
}

static weir_status weir_k_ref_conv1d(const weir_kernel_context *context, const void *op_args)
{
    const weir_conv1d_args *const args = op_args;
    (void)context;
    if (args->n_taps < 1 || args->n_taps > 8) return WEIR_EINVAL;
    for (int64_t s = 0; s < args->n_segments; s++) {
        const weir_recurrent_segment *const segment = args->segments + s;
        for (int64_t c = 0; c < args->n_channels; c++) {
            for (int64_t r = 0; r < segment->n_rows; r++) {
                double sum = args->bias != NULL ? (double)args->bias[c] : 0.0;
                for (int64_t j = 0; j < args->n_taps; j++)
                    sum += (double)args->taps[c * args->n_taps + j] *
                           (double)input(args, segment, r - args->n_taps + 1 + j, c);
                args->dst[(segment->first_row + r) * args->n_channels + c] =
                    (float)(args->is_linear ? sum : sum / (1.0 + exp(-sum)));
            }
            for (int64_t i = 0; i < args->n_taps - 1;
                 i++) /* ascending: an entry is read before it is overwritten */
                segment->conv_history[i * args->n_channels + c] =
                    input(args, segment, segment->n_rows - args->n_taps + 1 + i, c);
        }
    }
    return WEIR_OK;
}

WEIR_REF_ROW(conv1d, WEIR_OP_CONV1D)
