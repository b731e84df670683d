/* kernels/cuda/rmsnorm.cu - root-mean-square norm (Zhang & Sennrich 2019) with the residual
 * addition in the same pass. Moves 8 * dim bytes per row (16 with the addition): bound by memory.
 * Why an override: elements stay in registers between the sum and the product (docs/kernels.md). */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_rmsnorm {

using namespace weir_cuda;

constexpr int kWarp = 32, kVector = 4;

__device__ __forceinline__ float4 sum_of(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float squares(float4 a)
{
    return a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w;
}
__device__ __forceinline__ float4 scaled(float4 a, float s, float4 w)
{
    return make_float4(a.x * s * w.x, a.y * s * w.y, a.z * s * w.z, a.w * s * w.w);
}

/* The sum over the THREADS threads that share a row, returned to all of them: one shuffle tree per
 * warp and one barrier. THREADS depends on dim alone, so the order is the same in every batch. */
template <int THREADS> __device__ __forceinline__ float row_sum(float x, float *partial)
{
    x = warp_sum(x);
    if (THREADS == kWarp) return x;
    const int warp = threadIdx.x / kWarp;
    if (threadIdx.x % kWarp == 0) partial[warp] = x;
    __syncthreads();
    float total = 0;
#pragma unroll
    for (int w = 0; w < THREADS / kWarp; w++) total += partial[w];
    return total;
}

/* THREADS threads compute one (row, group), ROWS of them per block; each thread keeps up to KEPT
 * vectors in registers. */
template <int THREADS, int ROWS, int KEPT>
__global__ void __launch_bounds__(THREADS *ROWS) rmsnorm(const weir_rmsnorm_args args)
{
    weir_cuda::let_next_start();
    __shared__ float partial[THREADS / kWarp];
    const int64_t unit = (int64_t)blockIdx.x * ROWS + threadIdx.x / THREADS;
    const int tid = threadIdx.x % THREADS, n_vectors = (int)(args.dim / kVector);
    if (ROWS > 1 && unit >= args.n_rows * args.n_groups) { /* whole warps: THREADS is one here */
        weir_cuda::wait_for_previous();
        return;
    }
    const int64_t row = unit / args.n_groups, group = unit % args.n_groups;
    float4 *src = reinterpret_cast<float4 *>(
        args.src + row * args.src_stride + group * args.src_group_stride
    );
    float4 *dst = reinterpret_cast<float4 *>(
        args.dst + row * args.dst_stride + group * args.dst_group_stride
    );
    const float4 *add =
        args.add ? reinterpret_cast<const float4 *>(args.add + row * args.add_stride) : nullptr;
    const float4 *weight = reinterpret_cast<const float4 *>(args.weight);
    float4 kept[KEPT], added[KEPT], weights[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) /* no kernel writes weights */
        if (k * THREADS + tid < n_vectors) weights[k] = weight[k * THREADS + tid];
    weir_cuda::wait_for_previous();
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = k * THREADS + tid;
        if (i < n_vectors) kept[k] = src[i];
        if (add && i < n_vectors) added[k] = add[i];
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = k * THREADS + tid;
        if (i >= n_vectors) break;
        if (add) src[i] = kept[k] = sum_of(kept[k], added[k]);
        sum += squares(kept[k]);
    }
    const float scale = rsqrtf(row_sum<THREADS>(sum, partial) / (float)args.dim + args.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = k * THREADS + tid;
        if (i >= n_vectors) break;
        dst[i] = scaled(kept[k], scale, weights[k]);
    }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_rmsnorm_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->dim <= 0 || args->dim % kVector != 0) return "dim % 4 != 0";
    if (args->dim > 16384) return "dim > 16384";
    if (!is_aligned(args->dst) || !is_aligned(args->src) || !is_aligned(args->weight) ||
        !is_aligned(args->add))
        return "arrays not 16-byte aligned";
    const int64_t strides = args->src_stride | args->src_group_stride | args->dst_stride |
                            args->dst_group_stride | args->add_stride;
    return strides % kVector != 0 ? "strides % 4 != 0" : nullptr;
}

template <int THREADS, int ROWS, int KEPT>
void launch(const weir_rmsnorm_args &args, cudaStream_t stream)
{
    const int64_t units = args.n_rows * args.n_groups;
    WEIR_LAUNCH(
        (rmsnorm<THREADS, ROWS, KEPT>), (unsigned)((units + ROWS - 1) / ROWS), THREADS * ROWS, 0,
        stream, args
    );
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_rmsnorm_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.add && args.n_groups != 1) return WEIR_EINVAL;
    if (args.n_rows <= 0 || args.n_groups <= 0) return WEIR_OK;
    if (args.n_rows * args.n_groups > INT32_MAX) return WEIR_EINVAL;
    if (args.dim <= 256) /* the norm of a head: four rows per block, no barrier */
        launch<32, 4, 2>(args, stream);
    else if (args.dim <= 1024)
        launch<128, 1, 2>(args, stream);
    else if (args.dim <= 4096)
        launch<256, 1, 4>(args, stream);
    else
        launch<512, 1, 8>(args, stream);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_rmsnorm

using namespace weir_cuda_rmsnorm;

/* Tolerance: as the single source, plus rsqrtf's 2 units in the last place. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_rmsnorm;
const weir_kernel weir_kernel_cuda_rmsnorm = {
    WEIR_OP_RMSNORM, WEIR_BACKEND_CUDA, "cuda.rmsnorm", 1e-7, 2e-6, reject, nullptr, run, 0
};
}
