/* kernels/cuda/attention_parts.h - f32 numbers as sums of 16-bit numbers, so that tensor cores
 * multiply them with f32 precision.
 *
 * Keys and values are 16 bits wide in memory (or small integers) and go to the tensor cores as they
 * are. Queries and weights are f32: x = x0 + x1 (f16: 22 bits) or x0 + x1 + x2 (bf16: 24 bits), one
 * product each, added in f32. f16 has few exponents, so rows of queries are first scaled by a power
 * of two and the weights, which are at most 1, by 2^14: what underflows f16 is then below 2^-34 of
 * the largest. */
#pragma once
#include "kernels/cuda/tensor.h"

namespace weir_cuda_attention {

struct PartsF16 {
    static constexpr int kParts = 2;
    static constexpr uint32_t kOnes = 0x3C003C00u;
    static constexpr float kWeights = 16384.0f;
    static constexpr int kQueryExponent = 10; /* the largest of a row is below 2^10 */

    static __device__ __forceinline__ float split_off(float x, uint16_t *bits)
    {
        const __half h = __float2half_rn(x);
        *bits = __half_as_ushort(h);
        return __half2float(h);
    }
    static __device__ __forceinline__ void multiply(
        float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]
    )
    {
        weir_cuda::mma_f16(d, a, b);
    }
};

struct PartsBf16 {
    static constexpr int kParts = 3;
    static constexpr uint32_t kOnes = 0x3F803F80u;
    static constexpr float kWeights = 1.0f;
    static constexpr int kQueryExponent = 0; /* unscaled */

    static __device__ __forceinline__ float split_off(float x, uint16_t *bits)
    {
        const __nv_bfloat16 h = __float2bfloat16_rn(x);
        *bits = __bfloat16_as_ushort(h);
        return __bfloat162float(h);
    }
    static __device__ __forceinline__ void multiply(
        float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]
    )
    {
        weir_cuda::mma_bf16(d, a, b);
    }
};

/* The parts of two neighbours, packed for a fragment. */
template <class Parts>
__device__ __forceinline__ void split_pair(float x, float y, uint32_t (&out)[Parts::kParts])
{
#pragma unroll
    for (int part = 0; part < Parts::kParts; part++) {
        uint16_t low, high;
        x -= Parts::split_off(x, &low);
        y -= Parts::split_off(y, &high);
        out[part] = (uint32_t)low | (uint32_t)high << 16;
    }
}

} // namespace weir_cuda_attention
