/* kernels/cuda/matmul_rows.h - rounds activations to the bits of kernels/cuda/activations.h; and
 * keeps the few rows of a call in a block's shared memory, where each block rounds them itself:
 * matmul_prepare.cu, which does so for many, would be one more launch. */
#pragma once
#include "kernels/cuda/matmul.h"

namespace weir_cuda_matmul {

/* Element `column` of a row, or zero outside the matrix. */
__device__ __forceinline__ float x_at(const weir_matmul_args &args, int64_t row, int64_t column)
{
    return row < args.n_rows && column < args.n_in ? args.x[row * args.x_stride + column] : 0.0f;
}
/* Elements `column`, which is even, and the next one. */
__device__ __forceinline__ float2 pair_at(const weir_matmul_args &args, int64_t row, int64_t column)
{
    const float *const at = args.x + row * args.x_stride + column;
    if (column + 1 < args.n_in && reinterpret_cast<uintptr_t>(at) % 8 == 0)
        return *reinterpret_cast<const float2 *>(at);
    return make_float2(x_at(args, row, column), x_at(args, row, column + 1));
}
__device__ __forceinline__ int warp_max(int x)
{
#pragma unroll
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}
/* 2^-e of a row, from the bits of its greatest magnitude. */
__device__ __forceinline__ float inverse_of(int greatest)
{
    const int exponent = min(14 - ((greatest >> 23) - 127), 100);
    return greatest >= 0x7F800000 ? 1.0f : __int_as_float((127 - exponent) << 23);
}
__device__ __forceinline__ uint32_t pair_of(float low, float high, bool is_f16)
{
    if (is_f16)
        return (uint32_t)__half_as_ushort(__float2half_rn(low)) |
               (uint32_t)__half_as_ushort(__float2half_rn(high)) << 16;
    return (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(low)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
}

/* round_rows, of the whole block, returns the powers of two of rows in f16, otherwise NULL. */
template <bool IS_F16> struct rows_of_halves {
    /* Rows in shared memory: [rows][steps][4 lanes t][4 products][2 operands], 16 bytes between
     * rows, so that eight lanes read all banks; then the powers of two. */
    static __host__ __device__ __forceinline__ int inside_stride(int64_t steps)
    {
        return (int)steps * 128 + 16;
    }
    template <class INPUTS>
    static __device__ __forceinline__ void load_inside(
        INPUTS &x, const uint8_t *rows, const product &p, int index
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
        const uint8_t *const at = rows + g * inside_stride(p.steps) + index * 128 + t * 32;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const uint4 words = g < p.n_rows ? *reinterpret_cast<const uint4 *>(at + i * 8)
                                             : make_uint4(0, 0, 0, 0);
            x.b[i][0] = words.x, x.b[i][1] = words.y;
            x.b[i + 1][0] = words.z, x.b[i + 1][1] = words.w;
        }
    }
    /* Rounds the rows of a call as matmul_prepare.cu does. Returns their powers of two, or NULL. */
    static __device__ __forceinline__ const float *round_rows(
        uint8_t *rows, const weir_matmul_args &args, const activations &x
    )
    {
        const int stride = inside_stride(x.steps), n_pairs = (int)x.steps * 32;
        auto *const scales = reinterpret_cast<float *>(rows + args.n_rows * stride);
        for (int row = 0; row < args.n_rows; row++) {
            const float factor = IS_F16 ? row_factor(scales + row, args, row) : 1.0f;
            auto *const to = reinterpret_cast<uint32_t *>(rows + row * stride);
#pragma unroll 8
            for (int pair = (int)threadIdx.x; pair < n_pairs; pair += kWarp * kWarps) {
                const int q = pair % 32;
                const float2 both = pair_at(args, row, pair * 2);
                to[pair / 32 * 32 + q % 4 * 8 + q / 8 * 2 + q % 8 / 4] =
                    pair_of(both.x * factor, both.y * factor, IS_F16);
            }
        }
        __syncthreads();
        return IS_F16 ? scales : nullptr;
    }
    /* Of the whole block: 2^e of a row; 2^-e goes to *inverse. */
    static __device__ __forceinline__ float row_factor(
        float *inverse, const weir_matmul_args &args, int64_t row
    )
    {
        __shared__ int partial[kWarps];
        int greatest = 0;
#pragma unroll 8
        for (int64_t i = threadIdx.x; i < args.n_in; i += kWarp * kWarps)
            greatest = max(greatest, __float_as_int(args.x[row * args.x_stride + i]) & 0x7FFFFFFF);
        greatest = warp_max(greatest);
        __syncthreads(); /* who reads those of the row before has done so */
        if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = greatest;
        __syncthreads();
        for (int w = 0; w < kWarps; w++) greatest = max(greatest, partial[w]);
        const float of_row = inverse_of(greatest);
        if (threadIdx.x == 0) *inverse = of_row;
        return 1.0f / of_row;
    }
};

} // namespace weir_cuda_matmul
