/* kernels/cuda/activations.h - how the kernels of WEIR_LAYOUT_CUDA round a row of activations, for
 * the reference and its tests.
 *
 *   quantised weights   int8 per 32, to the bit as kernels/x86/activations.h
 *   bf16                rounded to bf16
 *   f16                 x * 2^e rounded to f16, where e brings the row's greatest magnitude to 2^14
 *                       .. 2^15; the sum is multiplied by 2^-e. f16 has 3 bits more than bf16, but
 *                       not its range: unscaled, one outlier of 10^5 would spoil a row
 *   f32                 as they are */
#pragma once
#include "kernels/abi/convert.h"
#include "kernels/abi/dtype.h"

/* 2^e for a row. A row with an infinity or NaN gives NaN; its scale is unchanged. */
static inline float weir_cuda_f16_factor(float greatest_magnitude)
{
    const uint32_t bits = weir_f32_bits(greatest_magnitude) & 0x7FFFFFFF;
    const int32_t exponent = 14 - ((int32_t)(bits >> 23) - 127);
    if (bits >= 0x7F800000) return 1.0f;
    return weir_f32_from_bits((uint32_t)((exponent < 100 ? exponent : 100) + 127) << 23);
}
