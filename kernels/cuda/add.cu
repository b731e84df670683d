/* kernels/cuda/add.cu - adds rows to rows, four columns per thread. Moves 12 bytes per element. Why
 * an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_add {

using namespace weir_cuda;

constexpr int kThreads = 256, kVector = 4;

__global__ void __launch_bounds__(kThreads) add(const weir_add_args args, int64_t n_vectors)
{
    weir_cuda::begin_kernel();
    const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x, per_row = args.dim / kVector;
    if (i >= n_vectors) return;
    const int64_t row = i / per_row, at = i % per_row * kVector;
    const float4 src = *reinterpret_cast<const float4 *>(args.src + row * args.src_stride + at);
    float4 *const to = reinterpret_cast<float4 *>(args.dst + row * args.dst_stride + at);
    const float4 dst = *to;
    *to = make_float4(dst.x + src.x, dst.y + src.y, dst.z + src.z, dst.w + src.w);
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_add_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->dim % kVector != 0) return "dim % 4 != 0";
    if ((args->dst_stride | args->src_stride) % kVector != 0) return "strides % 4 != 0";
    return is_aligned(args->dst) && is_aligned(args->src) ? nullptr : "arrays not 16-byte aligned";
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_add_args *>(op_args);
    const int64_t n = args.n_rows * (args.dim / kVector);
    if (n <= 0) return WEIR_OK;
    if (n > (int64_t)INT32_MAX * kThreads) return WEIR_EINVAL;
    WEIR_LAUNCH(
        add, blocks_for(n, kThreads), kThreads, 0, static_cast<cudaStream_t>(context->cuda_stream),
        args, n
    );
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_add

/* Tolerance: both round once, in the same way: exact. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_add;
const weir_kernel weir_kernel_cuda_add = {
    WEIR_OP_ADD,           WEIR_BACKEND_CUDA, "cuda.add",         0.0, 0.0,
    weir_cuda_add::reject, nullptr,           weir_cuda_add::run, 0
};
}
