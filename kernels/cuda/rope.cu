/* kernels/cuda/rope.cu - rotary position embedding (Su et al. 2021), half split and pairs; the
 * angle is the f32 product of position and frequency, as in training. A block has kHeads heads of a
 * row, a thread a pair of each. Moves 8 bytes per rotated element. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_rope {

using namespace weir_cuda;

constexpr int kThreads = 128, kHeads = 4, kMostBlocks = 65535;

__global__ void __launch_bounds__(kThreads) rope(const weir_rope_args args)
{
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.x, first = (int64_t)blockIdx.y * kHeads,
                  half = args.rotary_dim / 2;
    const bool pairs = args.pairing == WEIR_ROPE_PAIRS;
    const float position = (float)args.positions[row];
    for (int64_t i = threadIdx.x; i < half; i += kThreads) {
        float sine, cosine;
        sine_cosine(position * args.frequencies[i], &sine, &cosine);
        sine *= args.magnitude, cosine *= args.magnitude;
#pragma unroll
        for (int h = 0; h < kHeads; h++) {
            if (first + h >= args.n_heads) break;
            float *const a = args.x + row * args.row_stride + (first + h) * args.head_stride +
                             (pairs ? 2 * i : i);
            float *const b = a + (pairs ? 1 : half);
            const float u = *a, v = *b;
            *a = u * cosine - v * sine;
            *b = v * cosine + u * sine;
        }
    }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_rope_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->temperature_length > 0) return "has no temperature of queries";
    return args->n_heads > (int64_t)kHeads * kMostBlocks ? "too many heads" : nullptr;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_rope_args *>(op_args);
    if (args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.n_rows > INT32_MAX)
        return WEIR_EINVAL;
    if (args.n_rows <= 0 || args.n_heads <= 0) return WEIR_OK;
    const dim3 grid((unsigned)args.n_rows, blocks_for(args.n_heads, kHeads));
    WEIR_LAUNCH(rope, grid, kThreads, 0, static_cast<cudaStream_t>(context->cuda_stream), args);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_rope

/* Tolerance: sine and cosine are accurate to 2e-7; a rotated value may cancel, so the bound is
 * absolute in units of the pair's length. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_rope;
const weir_kernel weir_kernel_cuda_rope = {
    WEIR_OP_ROPE,           WEIR_BACKEND_CUDA, "cuda.rope",         2e-6, 2e-6,
    weir_cuda_rope::reject, nullptr,           weir_cuda_rope::run, 0
};
}
