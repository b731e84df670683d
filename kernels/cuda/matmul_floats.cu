/* kernels/cuda/matmul_floats.cu - products of f32 weights with f32 activations, by fused
 * multiply-adds in ascending inputs within a slice: for exactness. A lane has an output; two
 * 16-byte loads read a whole sector of its row. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul.h"

namespace weir_cuda_matmul_floats {

using namespace weir_cuda_matmul;

template <int ROWS>
__global__ void __launch_bounds__(kWarp *kWarps) multiply(const __grid_constant__ group g)
{
    WEIR_DYNAMIC_SHARED(float, partial); /* [n_slices][ROWS][32 lanes] */
    weir_cuda::begin_kernel();
    const int lane = (int)(threadIdx.x % kWarp), warp = (int)(threadIdx.x / kWarp),
              n_warps = (int)(blockDim.x / kWarp);
    const int own = own_output(g, blockIdx.x);
    const product &p = g.p[own];
    const int64_t output = (int64_t)(blockIdx.x - g.first_block[own]) * kWarp + lane,
                  first_row = (int64_t)blockIdx.y * ROWS, stride = p.steps * WEIR_CUDA_STEP;
    const auto *weights = reinterpret_cast<const float *>(
        p.weight + (output < p.n_out ? output : p.n_out - 1) * p.row_bytes
    );
    const int64_t n_kept = p.row_bytes / (int64_t)sizeof(float), padded = p.n_tiles * kTile;
    for (int64_t slice = warp; slice < p.n_slices; slice += n_warps) {
        const int64_t first = slice * p.slice_steps * WEIR_CUDA_STEP,
                      last = first + p.slice_steps * WEIR_CUDA_STEP;
        const int64_t end = last < n_kept ? last : n_kept;
        float sums[ROWS] = {};
#pragma unroll(ROWS > 4 ? 1 : 4)
        for (int64_t i = first; i < end; i += 4) {
            const float4 w = *reinterpret_cast<const float4 *>(weights + i);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int64_t row = first_row + r < padded ? first_row + r : padded - 1;
                const float4 x = *reinterpret_cast<const float4 *>(p.x.f32 + row * stride + i);
                sums[r] = fmaf(w.w, x.w, fmaf(w.z, x.z, fmaf(w.y, x.y, fmaf(w.x, x.x, sums[r]))));
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) partial[(slice * ROWS + r) * kWarp + lane] = sums[r];
    }
    __syncthreads();
    for (int r = warp; r < ROWS; r += n_warps) {
        float total = 0;
        for (int64_t slice = 0; slice < p.n_slices; slice++)
            total += partial[(slice * ROWS + r) * kWarp + lane];
        put(p, first_row + r, output, total);
    }
}

template <int ROWS> void launch(group &g, cudaStream_t stream)
{
    const product &first = g.p[0];
    const dim3 grid(share_blocks(g, kWarp), (unsigned)((first.n_rows + ROWS - 1) / ROWS));
    WEIR_LAUNCH(
        (multiply<ROWS>), grid, few_threads(first),
        (size_t)first.n_slices * ROWS * kWarp * sizeof(float), stream, g
    );
}

} // namespace weir_cuda_matmul_floats

namespace weir_cuda_matmul {

void multiply_floats(group &g, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_floats;
    if (g.p[0].n_rows == 1)
        launch<1>(g, stream);
    else if (g.p[0].n_rows <= 4)
        launch<4>(g, stream);
    else
        launch<16>(g, stream);
}

} // namespace weir_cuda_matmul
