/* kernels/cuda/coda_queries.cu - signal and noise queries (Ye et al. 2024; CoDA-GQA-L): every
 * head's query as it is, and rotated by the head's angles. A block has kRows rows of a head, a
 * thread a pair of each. Moves 12 * head_dim bytes per row and head. Why an override: scalar.h. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_coda_queries {

using namespace weir_cuda;

constexpr int kThreads = 128, kRows = 4, kMostBlocks = 65535;

__global__ void __launch_bounds__(kThreads) coda_queries(const weir_coda_queries_args args)
{
    weir_cuda::begin_kernel();
    const int64_t head = blockIdx.y, first = (int64_t)blockIdx.x * kRows, dim = args.head_dim,
                  group = args.n_heads / args.n_kv_heads;
    for (int64_t i = threadIdx.x; i < dim / 2; i += kThreads) {
        float sine, cosine;
        sine_cosine(args.theta[head * (dim / 2) + i], &sine, &cosine);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
            const int64_t row = first + r;
            if (row >= args.n_rows) break;
            const float *const q = args.q + row * args.q_stride + head * dim + 2 * i;
            float *const signal =
                args.dst +
                (row * 2 * args.n_heads + head / group * 2 * group + head % group) * dim + 2 * i;
            float *const noise = signal + group * dim;
            const float a = q[0], b = q[1];
            signal[0] = a, signal[1] = b;
            noise[0] = a * cosine - b * sine, noise[1] = a * sine + b * cosine;
        }
    }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_coda_queries_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    return args->n_heads > kMostBlocks ? "more than 65535 heads" : nullptr;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_coda_queries_args *>(op_args);
    if (args.n_kv_heads <= 0 || args.n_heads % args.n_kv_heads != 0 || args.head_dim <= 0 ||
        args.head_dim % 2 != 0)
        return WEIR_EINVAL;
    if (args.n_rows > INT32_MAX) return WEIR_EINVAL;
    if (args.n_rows <= 0 || args.n_heads <= 0) return WEIR_OK;
    const dim3 grid(blocks_for(args.n_rows, kRows), (unsigned)args.n_heads);
    WEIR_LAUNCH(
        coda_queries, grid, kThreads, 0, static_cast<cudaStream_t>(context->cuda_stream), args
    );
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_coda_queries

/* Tolerance: sine and cosine are accurate to 2e-7; a rotated value may cancel, so the bound is
 * absolute in units of the pair's length. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_coda_queries;
const weir_kernel weir_kernel_cuda_coda_queries = {
    WEIR_OP_CODA_QUERIES,           WEIR_BACKEND_CUDA, "cuda.coda_queries",         2e-6, 1e-6,
    weir_cuda_coda_queries::reject, nullptr,           weir_cuda_coda_queries::run, 0
};
}
