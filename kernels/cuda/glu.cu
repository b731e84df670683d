/* kernels/cuda/glu.cu - silu(gate) * up (SwiGLU, Shazeer 2020), four columns per thread; other
 * gated units are left to the single source. Moves 12 bytes per element: bound by memory. Why an
 * override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_glu {

using namespace weir_cuda;

constexpr int kThreads = 256, kVector = 4;

__global__ void __launch_bounds__(kThreads) swiglu(const weir_glu_args args, int64_t n_vectors)
{
    weir_cuda::begin_kernel();
    const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x, per_row = args.dim / kVector;
    if (i >= n_vectors) return;
    const int64_t row = i / per_row, at = i % per_row * kVector;
    const float4 gate = *reinterpret_cast<const float4 *>(args.gate + row * args.gate_stride + at);
    const float4 up = *reinterpret_cast<const float4 *>(args.up + row * args.up_stride + at);
    *reinterpret_cast<float4 *>(args.dst + row * args.dst_stride + at) = make_float4(
        silu(gate.x) * up.x, silu(gate.y) * up.y, silu(gate.z) * up.z, silu(gate.w) * up.w
    );
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_glu_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->kind != WEIR_GLU_SWIGLU) return "computes SwiGLU only";
    if (args->dim % kVector != 0) return "dim % 4 != 0";
    if ((args->dst_stride | args->gate_stride | args->up_stride) % kVector != 0)
        return "strides % 4 != 0";
    return is_aligned(args->dst) && is_aligned(args->gate) && is_aligned(args->up)
               ? nullptr
               : "arrays not 16-byte aligned";
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_glu_args *>(op_args);
    const int64_t n = args.n_rows * (args.dim / kVector);
    if (n <= 0) return WEIR_OK;
    if (n > (int64_t)INT32_MAX * kThreads) return WEIR_EINVAL;
    WEIR_LAUNCH(
        swiglu, blocks_for(n, kThreads), kThreads, 0,
        static_cast<cudaStream_t>(context->cuda_stream), args, n
    );
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_glu

/* Tolerance: expf's 2 units in the last place and three roundings; where it overflows silu is 0. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_glu;
const weir_kernel weir_kernel_cuda_glu = {
    WEIR_OP_GLU,           WEIR_BACKEND_CUDA, "cuda.glu",         1e-30, 1e-6,
    weir_cuda_glu::reject, nullptr,           weir_cuda_glu::run, 0
};
}
