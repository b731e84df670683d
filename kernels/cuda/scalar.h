/* kernels/cuda/scalar.h - functions of one value that several overrides share.
 *
 * Why overrides of ops that only move rows: a region of the single source blocks its launching
 * thread until it has ended, 10 to 20 us each (libomptarget has no queue that the host could fill
 * ahead), and a decode step of a 4B model has 200 such ops: 3 ms, as long as reading all weights
 * takes on an H100. A CUDA launch is queued in 2 to 3 us, so a step with only overrides is limited
 * by memory again. */
#pragma once
#include "kernels/cuda/cuda.h"

namespace weir_cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

/* For any angle up to 1e9, to 2e-7: reduced in double, which sincosf does in local memory for large
 * angles. */
__device__ __forceinline__ void sine_cosine(float angle, float *sine, float *cosine)
{
    const double turns = (double)angle * 0.15915494309189535; /* 1 / 2 pi */
    sincospif((float)(2.0 * (turns - rint(turns))), sine, cosine);
}

__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

inline bool is_aligned(const void *pointer)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}
inline unsigned blocks_for(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }

} // namespace weir_cuda
