/* kernels/cuda/conv1d.cu - short causal convolution per channel, then silu; raw inputs that the
 * next call needs go to the history. A thread computes kRows rows of a channel, inputs slide
 * through registers. Moves 8 bytes per element. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"
#include "kernels/cuda/sequences.h"

namespace weir_cuda_conv1d {

using namespace weir_cuda;

constexpr int kThreads = 128, kRows = 64;

/* Input `row` of a channel; rows before the first come from the history. */
__device__ __forceinline__ float input_at(
    const float *src, const float *history, int64_t row, int64_t n_channels, int n_taps
)
{
    return row >= 0 ? src[row * n_channels] : history[(row + n_taps - 1) * n_channels];
}

/* A sequence has `per_long` blocks of kRows rows if it is long, else one. The block of the first
 * rows reads the history and writes it at the end; no other block uses it. Only n_taps - 1 rows at
 * a block's edge are read twice. */
template <int TAPS>
__global__ void __launch_bounds__(kThreads) conv1d(
    const weir_conv1d_args args, const __grid_constant__ Sequences<kMostSequences> sequences,
    int per_long
)
{
    weir_cuda::let_next_start();
    const int64_t n_channels = args.n_channels;
    const int across = (int)((n_channels + kThreads - 1) / kThreads);
    const int64_t channel = (int64_t)((int)blockIdx.x % across) * kThreads + threadIdx.x;
    const BlockOf of = block_of(sequences, (int)blockIdx.x / across, per_long, 1);
    const Sequence sequence = sequences.at[of.sequence];
    const int64_t first = (int64_t)of.block * kRows, n_rows = sequence.n_rows;
    float taps[TAPS], seen[TAPS], next[TAPS];
#pragma unroll
    for (int j = 0; j < TAPS; j++)
        taps[j] = channel < n_channels ? args.taps[channel * TAPS + j] : 0.0f;
    weir_cuda::wait_for_previous();
    if (channel >= n_channels || first >= n_rows) return;
    const float *const src = args.src + sequence.first_row * n_channels + channel;
    float *const dst = args.dst + sequence.first_row * n_channels + channel;
    float *const history = sequence.memory + channel;
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
    return nullptr;
}

template <int TAPS> weir_status launch(const weir_conv1d_args &args, cudaStream_t stream)
{
    for (int64_t s = 0; s < args.n_segments;) {
        Sequences<kMostSequences> sequences = {};
        s = take_sequences(
            &sequences, args.segments, s, args.n_segments, kRows + 1,
            &weir_recurrent_segment::conv_history
        );
        int32_t longest = 0;
        for (int i = 0; i < sequences.n_long; i++)
            longest = sequences.at[i].n_rows > longest ? sequences.at[i].n_rows : longest;
        const int64_t per_long = blocks_for(longest, kRows),
                      n_blocks = sequences.n_long * per_long + sequences.n - sequences.n_long,
                      across = blocks_for(args.n_channels, kThreads);
        if (n_blocks > INT32_MAX / across) return WEIR_EINVAL;
        if (n_blocks > 0)
            WEIR_LAUNCH(
                conv1d<TAPS>, (unsigned)(n_blocks * across), kThreads, 0, stream, args, sequences,
                (int)per_long
            );
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_conv1d_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_channels > (int64_t)INT32_MAX * kThreads) return WEIR_EINVAL;
    if (args.n_channels <= 0) return WEIR_OK;
    switch (args.n_taps) {
#define CASE(n)                                                                                    \
    case n: return launch<n>(args, stream);
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#undef CASE
    }
    return WEIR_EINVAL;
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
