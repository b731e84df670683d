/* kernels/cuda/conv1d.cu - short causal convolution per channel, then silu; raw inputs that the
 * next call needs go to the history. A thread computes kRows rows of a channel, inputs slide
 * through registers. Moves 8 bytes per element. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_conv1d {

using namespace weir_cuda;

constexpr int kThreads = 128, kRows = 64, kMostTaps = 8, kMostBlocks = 65535;

/* Input `row` of a channel; rows before the first come from the history. */
__device__ __forceinline__ float input_at(
    const float *src, const float *history, int64_t row, int64_t n_channels, int n_taps
)
{
    return row >= 0 ? src[row * n_channels] : history[(row + n_taps - 1) * n_channels];
}

/* The block of the first rows reads the history and writes it at the end; no other block uses it.
 * Only n_taps - 1 rows at a block's edge are read twice. */
template <int TAPS> __global__ void __launch_bounds__(kThreads) conv1d(const weir_conv1d_args args)
{
    weir_cuda::let_next_start();
    const int64_t channel = (int64_t)blockIdx.x * kThreads + threadIdx.x,
                  n_channels = args.n_channels;
    const weir_recurrent_segment segment = args.segments[blockIdx.z]; /* of the host's memory */
    const int64_t first = (int64_t)blockIdx.y * kRows, n_rows = segment.n_rows;
    float taps[TAPS], seen[TAPS], next[TAPS];
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        taps[j] = channel < n_channels ? args.taps[channel * TAPS + j] : 0.0f;
    weir_cuda::wait_for_previous();
    if (channel >= n_channels || first >= n_rows) return;
    const float *const src = args.src + segment.first_row * n_channels + channel;
    float *const dst = args.dst + segment.first_row * n_channels + channel,
                 *const history = segment.conv_history + channel;
    const int64_t end = first + kRows < n_rows ? first + kRows : n_rows;
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++) {
        seen[j + 1] = input_at(src, history, first - TAPS + 1 + j, n_channels, TAPS);
        next[j] =
            first == 0 ? input_at(src, history, n_rows - TAPS + 1 + j, n_channels, TAPS) : 0.0f;
    }
    for (int64_t row = first; row < end; row++) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < TAPS - 1; j++) seen[j] = seen[j + 1];
        seen[TAPS - 1] = src[row * n_channels];
#pragma unroll
        for (int j = 0; j < TAPS; j++) sum += taps[j] * seen[j];
        dst[row * n_channels] = silu(sum);
    }
    if (first > 0) return;
#pragma unroll
    for (int j = 0; j < TAPS - 1; j++) history[j * n_channels] = next[j];
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_conv1d_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->is_linear || args->bias) return "applies silu, and no bias";
    return args->n_segments > kMostBlocks ? "more than 65535 segments" : nullptr;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_conv1d_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    int64_t longest = 0;
    if (args.n_taps < 1 || args.n_taps > kMostTaps ||
        args.n_channels > (int64_t)INT32_MAX * kThreads)
        return WEIR_EINVAL;
    for (int64_t s = 0; s < args.n_segments; s++)
        longest = args.segments[s].n_rows > longest ? args.segments[s].n_rows : longest;
    if (longest <= 0 || args.n_channels <= 0) return WEIR_OK;
    const dim3 grid(
        blocks_for(args.n_channels, kThreads), blocks_for(longest, kRows), (unsigned)args.n_segments
    );
    if (grid.y > kMostBlocks) return WEIR_EINVAL;
    switch (args.n_taps) {
#define CASE(n)                                                                                    \
    case n: WEIR_LAUNCH(conv1d<n>, grid, kThreads, 0, stream, args); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#undef CASE
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_conv1d

/* Tolerance: up to 8 products in f32, which may cancel. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_conv1d;
const weir_kernel weir_kernel_cuda_conv1d = {
    WEIR_OP_CONV1D,           WEIR_BACKEND_CUDA, "cuda.conv1d",         1e-6, 4e-6,
    weir_cuda_conv1d::reject, nullptr,           weir_cuda_conv1d::run, 0
};
}
