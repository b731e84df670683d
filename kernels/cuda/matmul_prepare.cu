/* kernels/cuda/matmul_prepare.cu - rounds activations into scratch, once for all blocks of a
 * product; kernels/cuda/activations.h defines the bits. Reads 4 bytes per activation and writes 1.4
 * (int8), 2 or 4; one launch (docs/kernels.md). */
#include "kernels/cuda/matmul_rows.h"

namespace weir_cuda_matmul_prepare {

using namespace weir_cuda_matmul;

constexpr int kThreads = 256;

__device__ __forceinline__ int quad_max(int x)
{
    x = max(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return max(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ int quad_sum(int x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Four lanes per group of 32: lane t takes inputs 4t .. 4t+3 of both halves. Blocks of a row: y. */
__global__ void __launch_bounds__(kThreads)
    quantise(const weir_matmul_args args, const activations x)
{
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.y, unit = (int64_t)blockIdx.x * kThreads + threadIdx.x,
                  group = unit / 4;
    const int t = (int)(unit % 4);
    float values[8];
    int greatest = 0, sums[2] = {};
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        values[i] = x_at(args, row, group * WEIR_CUDA_GROUP + i / 4 * 16 + 4 * t + i % 4);
        /* Magnitudes compare as their bits do, NaN last. */
        greatest = max(greatest, __float_as_int(values[i]) & 0x7FFFFFFF);
    }
    greatest = quad_max(greatest);
    const float magnitude = __int_as_float(greatest);
    const bool is_wild = greatest >= 0x7F800000, is_nothing = is_wild || magnitude < 0x1p-100f;
    const float factor = is_nothing ? 0.0f : 127.0f / magnitude;
    const float scale = is_wild      ? __int_as_float(0x7FC00000)
                        : is_nothing ? 0.0f
                                     : magnitude / 127.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int code = is_nothing ? 0 : __float2int_rn(values[i] * factor);
        words[i / 4] |= ((uint32_t)code & 0xFFu) << i % 4 * 8;
        sums[i / 4] += code;
    }
    sums[0] = quad_sum(sums[0]);
    sums[1] = quad_sum(sums[1]);
    if (group >= 2 * x.steps) return;
    const int64_t tile = row / kTile, in_tile = row % kTile, lane = 4 * in_tile + t;
    *reinterpret_cast<uint2 *>(
        x.codes + (tile * x.steps + group / 2) * 512 + lane * 16 + group % 2 * 8
    ) = make_uint2(words[0], words[1]);
    if (t != 0) return;
    const int64_t at = tile * 2 * x.steps + group;
    x.scales[at * kTile + in_tile] = scale;
    x.sums[at * kTile + in_tile] = scale * (float)(sums[0] + sums[1]);
    x.half_sums[2 * at * kTile + in_tile] = scale * (float)sums[0];
    x.half_sums[(2 * at + 1) * kTile + in_tile] = scale * (float)sums[1];
}

/* 2^-e of each row: one block per row. */
__global__ void __launch_bounds__(kThreads)
    scale_rows(const weir_matmul_args args, const activations x)
{
    __shared__ int partial[kThreads / kWarp];
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.x;
    int greatest = 0;
    for (int64_t i = threadIdx.x; i < args.n_in; i += kThreads)
        greatest = max(greatest, __float_as_int(x_at(args, row, i)) & 0x7FFFFFFF);
    greatest = warp_max(greatest);
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = greatest;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < kThreads / kWarp; w++) greatest = max(greatest, partial[w]);
    x.inverses[row] = inverse_of(greatest);
}

/* Elements from `column` on, a multiple of 8. */
__device__ __forceinline__ void eight_at(
    float (&x)[8], const weir_matmul_args &args, int64_t row, int64_t column
)
{
    const float *const at = args.x + row * args.x_stride + column;
    if (row < args.n_rows && column + 8 <= args.n_in && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
        const float4 low = reinterpret_cast<const float4 *>(at)[0],
                     high = reinterpret_cast<const float4 *>(at)[1];
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = x_at(args, row, column + i);
}
/* A thread computes 8 inputs of a row: 16 bytes. */
template <bool IS_F16>
__global__ void __launch_bounds__(kThreads) narrow(const weir_matmul_args args, const activations x)
{
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.y, piece = (int64_t)blockIdx.x * kThreads + threadIdx.x,
                  step = piece / 8, in_tile = row % kTile;
    if (step >= x.steps) return;
    const float factor = IS_F16 ? 1.0f / x.inverses[row] : 1.0f; /* powers of two: exact */
    float values[8];
    eight_at(values, args, row, piece * 8);
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = pair_of(values[2 * i] * factor, values[2 * i + 1] * factor, IS_F16);
    uint8_t *const tile =
        const_cast<uint8_t *>(half_tile(x, IS_F16 ? x.f16 : x.bf16, row / kTile, step));
    *reinterpret_cast<uint4 *>(tile + in_tile * 128 + (piece % 8 ^ in_tile) * 16) =
        make_uint4(words[0], words[1], words[2], words[3]);
}

__global__ void __launch_bounds__(kThreads) copy(const weir_matmul_args args, const activations x)
{
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.y, column = (int64_t)blockIdx.x * kThreads + threadIdx.x,
                  stride = x.steps * WEIR_CUDA_STEP;
    if (column < stride) x.f32[row * stride + column] = x_at(args, row, column);
}

} // namespace weir_cuda_matmul_prepare

namespace weir_cuda_matmul {

void prepare(const weir_matmul_args &args, const activations &x, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_prepare;
    const auto blocks = [&](int64_t units) {
        return dim3(
            (unsigned)((units + kThreads - 1) / kThreads),
            (unsigned)(tiles_of(x.n_rows, kTile) * kTile)
        );
    };
    const dim3 of_pieces = blocks(8 * x.steps); /* of 8 inputs */
    if (x.codes) WEIR_LAUNCH(quantise, of_pieces, kThreads, 0, stream, args, x);
    if (x.bf16) WEIR_LAUNCH(narrow<false>, of_pieces, kThreads, 0, stream, args, x);
    if (x.f16) {
        WEIR_LAUNCH(scale_rows, of_pieces.y, kThreads, 0, stream, args, x);
        WEIR_LAUNCH(narrow<true>, of_pieces, kThreads, 0, stream, args, x);
    }
    if (x.f32) WEIR_LAUNCH(copy, blocks(x.steps * WEIR_CUDA_STEP), kThreads, 0, stream, args, x);
}

} // namespace weir_cuda_matmul
