/* kernels/ref/rope.c - rotary position embedding (Su et al. 2021). The angle is the f32 product of
 * position and frequency, as in training; its sine and cosine are exact. */
#include <math.h>

#include "kernels/ref/row.h"

static double magnitude_at(const weir_rope_args *args, int32_t position)
{
    const double magnitude = (double)args->magnitude;
    if (args->temperature_length <= 0) return magnitude;
    const double periods = floor((double)position / (double)args->temperature_length);
    return magnitude * (1.0 + (double)args->temperature_scale * log(1.0 + periods));
}

static void rotate_head(float *x, const weir_rope_args *args, int32_t position)
{
    const int64_t half = args->rotary_dim / 2;
    const double magnitude = magnitude_at(args, position);
    for (int64_t i = 0; i < half; i++) {
        const float angle = (float)position * args->frequencies[i];
        const double c = cos((double)angle) * magnitude, s = sin((double)angle) * magnitude;
        const bool pairs = args->pairing == WEIR_ROPE_PAIRS;
        float *const first = x + (pairs ? 2 * i : i), *const second =
                                                          x + (pairs ? 2 * i + 1 : i + half);
        const double a = (double)*first, b = (double)*second;
        *first = (float)(a * c - b * s);
        *second = (float)(b * c + a * s);
    }
}

static weir_status weir_k_ref_rope(const weir_kernel_context *context, const void *op_args)
{
    const weir_rope_args *const args = op_args;
    (void)context;
    if (args->rotary_dim < 0 || args->rotary_dim % 2 != 0) return WEIR_EINVAL;
    for (int64_t t = 0; t < args->n_rows; t++)
        for (int64_t h = 0; h < args->n_heads; h++)
            rotate_head(
                args->x + t * args->row_stride + h * args->head_stride, args, args->positions[t]
            );
    return WEIR_OK;
}

WEIR_REF_ROW(rope, WEIR_OP_ROPE)
