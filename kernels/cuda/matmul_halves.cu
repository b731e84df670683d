/* kernels/cuda/matmul_halves.cu - products of bf16 and f16 weights with activations of the same
 * type, summed in f32 by m16n8k16 for any number of rows: wgmma adds more inputs at a time and
 * would give many rows other bits than few. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_halves {

using namespace weir_cuda_matmul;

template <bool IS_F16> struct format {
    /* A lane's part of a step of a panel: rows g and g + 8, inputs 8t .. 8t+7 of each 32, as in the
     * tiles of activations. Words 0 and 1 are one m16n8k16, words 2 and 3 the next: which inputs
     * are column k does not matter if both operands agree, so rows are read in place. */
    struct step {
        uint4 rows[2][2];
    };
    using operands = step; /* they are multiplied as stored */
    static __device__ __forceinline__ void unpack(operands &o, const step &s) { o = s; }

    static __device__ __forceinline__ void load(
        step &s, const product &p, int64_t panel, int64_t index
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = panel * kPanel + g + 8 * half;
            const uint8_t *const at = p.weight + (row < p.n_out ? row : p.n_out - 1) * p.row_bytes;
#pragma unroll
            for (int chunk = 0; chunk < 2; chunk++) {
                const int64_t byte = index * 128 + chunk * 64 +
                                     t * 16; /* rows are multiples of 16 bytes, not of steps */
                s.rows[half][chunk] = byte < p.row_bytes
                                          ? *reinterpret_cast<const uint4 *>(at + byte)
                                          : make_uint4(0, 0, 0, 0);
            }
        }
    }

    static __device__ __forceinline__ void multiply_pair(
        float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]
    )
    {
        if (IS_F16)
            weir_cuda::mma_f16(sums, a, b);
        else
            weir_cuda::mma_bf16(sums, a, b);
    }

    static __device__ __forceinline__ void multiply(
        float (&sums)[4], const operands &s, const product &p, int64_t tile, int64_t index
    )
    {
        const int lane = (int)(threadIdx.x % kWarp);
        const uint8_t *const at =
            (IS_F16 ? p.x.f16 : p.x.bf16) + (tile * p.steps + index) * 1024 + lane * 16;
#pragma unroll
        for (int chunk = 0; chunk < 2; chunk++) {
            const uint4 x = *reinterpret_cast<const uint4 *>(at + chunk * 512),
                        low = s.rows[0][chunk], high = s.rows[1][chunk];
            const uint32_t a[2][4] = { { low.x, high.x, low.y, high.y },
                                       { low.z, high.z, low.w, high.w } };
            const uint32_t b[2][2] = { { x.x, x.y }, { x.z, x.w } };
            multiply_pair(sums, a[0], b[0]);
            multiply_pair(sums, a[1], b[1]);
        }
    }
};

template <class FORMAT, int TILES>
__global__ void __launch_bounds__(kWarp *kWarps, TILES == 1 ? 2 : 1)
    few(const __grid_constant__ group g)
{
    multiply_few<FORMAT, TILES>(g);
}
constexpr int kManyPanels = 2, kManyTiles = 4;
template <class FORMAT>
__global__ void __launch_bounds__(kWarp *kWarps, 1) many(const __grid_constant__ product p)
{
    multiply_many<FORMAT, kManyPanels, kManyTiles>(p);
}

template <class FORMAT> void launch(group &g, bool is_many, cudaStream_t stream)
{
    launch_kernels(
        many<FORMAT>, kManyPanels, kManyTiles, few<FORMAT, 1>, few<FORMAT, 4>, g, is_many, stream
    );
}

} // namespace weir_cuda_matmul_halves

namespace weir_cuda_matmul {

void multiply_halves(group &g, weir_dtype kept, bool many, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_halves;
    if (kept != WEIR_F16) return launch<format<false>>(g, many, stream);
    for (int32_t o = 0; o < g.n; o++) g.p[o].row_scales = g.p[o].x.inverses;
    launch<format<true>>(g, many, stream);
}

} // namespace weir_cuda_matmul
