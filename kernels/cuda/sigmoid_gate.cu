/* kernels/cuda/sigmoid_gate.cu - x times the sigmoid of its gate, four elements of a head per
 * thread. Moves 12 bytes per element. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_sigmoid_gate {

using namespace weir_cuda;

constexpr int kThreads = 256, kVector = 4;

__global__ void __launch_bounds__(kThreads)
    sigmoid_gate(const weir_sigmoid_gate_args args, int64_t n_vectors)
{
    weir_cuda::begin_kernel();
    const int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x, per_head = args.dim / kVector;
    if (i >= n_vectors) return;
    const int64_t head = i / per_head % args.n_heads, row = i / per_head / args.n_heads,
                  at = i % per_head * kVector;
    const float4 gate = *reinterpret_cast<const float4 *>(
        args.gate + row * args.gate_stride + head * args.gate_head_stride + at
    );
    float4 *const to =
        reinterpret_cast<float4 *>(args.x + row * args.x_stride + head * args.x_head_stride + at);
    const float4 x = *to;
    *to = make_float4(
        x.x * sigmoid(gate.x), x.y * sigmoid(gate.y), x.z * sigmoid(gate.z), x.w * sigmoid(gate.w)
    );
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_sigmoid_gate_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->dim % kVector != 0) return "dim % 4 != 0";
    if ((args->x_stride | args->x_head_stride | args->gate_stride | args->gate_head_stride) %
            kVector !=
        0)
        return "strides % 4 != 0";
    return is_aligned(args->x) && is_aligned(args->gate) ? nullptr : "arrays not 16-byte aligned";
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_sigmoid_gate_args *>(op_args);
    const int64_t n = args.n_rows * args.n_heads * (args.dim / kVector);
    if (n <= 0) return WEIR_OK;
    if (n > (int64_t)INT32_MAX * kThreads) return WEIR_EINVAL;
    WEIR_LAUNCH(
        sigmoid_gate, blocks_for(n, kThreads), kThreads, 0,
        static_cast<cudaStream_t>(context->cuda_stream), args, n
    );
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_sigmoid_gate

/* Tolerance: expf's 2 units in the last place and three roundings; where it overflows the sigmoid
 * is 0. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_sigmoid_gate;
const weir_kernel weir_kernel_cuda_sigmoid_gate = {
    WEIR_OP_SIGMOID_GATE,           WEIR_BACKEND_CUDA, "cuda.sigmoid_gate",         1e-30, 1e-6,
    weir_cuda_sigmoid_gate::reject, nullptr,           weir_cuda_sigmoid_gate::run, 0
};
}
