/* kernels/cuda/coda_combine.cu - the end of differential attention (Ye et al. 2024; CoDA-GQA-L):
 * signal minus a share of the noise, then the norm of the head. A warp holds a row of a head in
 * registers: no barrier; moves 12 * head_dim bytes per row and head. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_coda_combine {

using namespace weir_cuda;

constexpr int kWarp = 32, kRows = 4; /* kRows: warps of a block */

/* KEPT: elements per lane. */
template <int KEPT>
__global__ void __launch_bounds__(kWarp *kRows)
    coda_combine(const weir_coda_combine_args args, int64_t n_units)
{
    weir_cuda::begin_kernel();
    const int64_t unit = (int64_t)blockIdx.x * kRows + threadIdx.x / kWarp, dim = args.head_dim,
                  group = args.n_heads / args.n_kv_heads;
    const int lane = threadIdx.x % kWarp;
    if (unit >= n_units) return; /* whole warps return */
    const int64_t row = unit / args.n_heads, head = unit % args.n_heads;
    const float *const signal =
        args.src + (row * 2 * args.n_heads + head / group * 2 * group + head % group) * dim;
    const float *const noise = signal + group * dim;
    float *const dst = args.dst + unit * dim;
    const float share = sigmoid(args.lambda[row * args.lambda_stride + head] + args.bias[head]);
    float kept[KEPT], sum = 0;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = k * kWarp + lane;
        kept[k] = i < dim ? signal[i] - share * noise[i] : 0.0f;
        sum += kept[k] * kept[k];
    }
    const float scale = args.weight ? rsqrtf(warp_sum(sum) / (float)dim + args.eps) : 1.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = k * kWarp + lane;
        if (i >= dim) break;
        dst[i] = args.weight ? kept[k] * scale * args.weight[i] : kept[k];
    }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_coda_combine_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    return args->head_dim > 512 ? "head_dim > 512" : nullptr;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_coda_combine_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_kv_heads <= 0 || args.n_heads % args.n_kv_heads != 0 || args.head_dim <= 0)
        return WEIR_EINVAL;
    const int64_t n = args.n_rows * args.n_heads;
    if (n <= 0) return WEIR_OK;
    if (n > INT32_MAX) return WEIR_EINVAL;
    if (args.head_dim <= 128)
        WEIR_LAUNCH(coda_combine<4>, blocks_for(n, kRows), kWarp * kRows, 0, stream, args, n);
    else
        WEIR_LAUNCH(coda_combine<16>, blocks_for(n, kRows), kWarp * kRows, 0, stream, args, n);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_coda_combine

/* Tolerance: the difference may cancel, and the norm then amplifies its rounding: absolute for
 * heads whose parts differ by about their length. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_coda_combine;
const weir_kernel weir_kernel_cuda_coda_combine = {
    WEIR_OP_CODA_COMBINE,           WEIR_BACKEND_CUDA, "cuda.coda_combine",         2e-6, 4e-6,
    weir_cuda_coda_combine::reject, nullptr,           weir_cuda_coda_combine::run, 0
};
}
