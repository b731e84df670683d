/* kernels/cuda/gated_rmsnorm.cu - norm, then gate: the output norm of Gated DeltaNet (Yang et al.
 * 2024). A warp holds a row of 64 to 256 elements in registers: no barrier. Moves 12 * dim bytes
 * per row; the order of summation depends on dim only. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_gated_rmsnorm {

using namespace weir_cuda;

constexpr int kWarp = 32, kRows = 4, kVector = 4; /* kRows: warps of a block */

/* KEPT: vectors per lane. */
template <int KEPT>
__global__ void __launch_bounds__(kWarp *kRows) gated_rmsnorm(const weir_gated_rmsnorm_args args)
{
    weir_cuda::begin_kernel();
    const int64_t row = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarp;
    const int lane = threadIdx.x % kWarp, n_vectors = (int)(args.dim / kVector);
    if (row >= args.n_rows) return; /* whole warps return */
    const float4 *src = reinterpret_cast<const float4 *>(args.src + row * args.dim);
    const float4 *gate = reinterpret_cast<const float4 *>(args.gate + row * args.dim);
    const float4 *weight = reinterpret_cast<const float4 *>(args.weight);
    float4 *dst = reinterpret_cast<float4 *>(args.dst + row * args.dim);
    float4 kept[KEPT];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = k * kWarp + lane;
        kept[k] = i < n_vectors ? src[i] : make_float4(0, 0, 0, 0);
        sum += kept[k].x * kept[k].x + kept[k].y * kept[k].y + kept[k].z * kept[k].z +
               kept[k].w * kept[k].w;
    }
    const float scale = rsqrtf(warp_sum(sum) / (float)args.dim + args.eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int i = k * kWarp + lane;
        if (i >= n_vectors) break;
        const float4 x = kept[k], w = weight[i], g = gate[i];
        dst[i] = make_float4(
            w.x * (x.x * scale) * silu(g.x), w.y * (x.y * scale) * silu(g.y),
            w.z * (x.z * scale) * silu(g.z), w.w * (x.w * scale) * silu(g.w)
        );
    }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_gated_rmsnorm_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->dim <= 0 || args->dim % kVector != 0) return "dim % 4 != 0";
    if (args->dim > 1024) return "dim > 1024";
    if (args->gate_first || args->n_weights > 1) return "applies one norm, then the gate";
    return is_aligned(args->dst) && is_aligned(args->src) && is_aligned(args->gate) &&
                   is_aligned(args->weight)
               ? nullptr
               : "arrays not 16-byte aligned";
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_gated_rmsnorm_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_rows <= 0) return WEIR_OK;
    if (args.n_rows > INT32_MAX) return WEIR_EINVAL;
    const unsigned blocks = blocks_for(args.n_rows, kRows);
    if (args.dim <= 256)
        WEIR_LAUNCH(gated_rmsnorm<2>, blocks, kWarp * kRows, 0, stream, args);
    else
        WEIR_LAUNCH(gated_rmsnorm<8>, blocks, kWarp * kRows, 0, stream, args);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_gated_rmsnorm

/* Tolerance: as rmsnorm, and expf adds 2 units in the last place. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_gated_rmsnorm;
const weir_kernel weir_kernel_cuda_gated_rmsnorm = {
    WEIR_OP_GATED_RMSNORM,           WEIR_BACKEND_CUDA, "cuda.gated_rmsnorm",         1e-7, 3e-6,
    weir_cuda_gated_rmsnorm::reject, nullptr,           weir_cuda_gated_rmsnorm::run, 0
};
}
