/* kernels/cuda/matmul_halves.cu - products of bf16 and f16 weights with activations of the same
 * type, summed in f32 by m16n8k16 for any number of rows: an instruction adds 16 consecutive inputs.
 * Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_halves {

using namespace weir_cuda_matmul;

template <bool IS_F16> struct format {
    static constexpr int kParts = 1, kTogether = 1, kPanelBytes = WEIR_CUDA_HALF_STEP,
                         kTileBytes = kTile * WEIR_CUDA_HALF_ROW;
    /* A lane's part of a step of a panel: the first operands of its four products. */
    struct step {
        uint32_t a[4][4];
    };
    using operands = step; /* they are multiplied as stored */
    static __device__ __forceinline__ void unpack(operands &o, const step &s) { o = s; }
    struct inputs { /* of a tile: the second ones */
        uint32_t b[4][2];
    };

    /* Inputs 2t and 2t + 1 of a piece of row g. */
    static __device__ __forceinline__ uint32_t word(const uint8_t *rows, int piece)
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
        return *reinterpret_cast<const uint32_t *>(rows + g * 128 + (piece ^ g) * 16 + t * 4);
    }
    static __device__ __forceinline__ void load(
        step &s, const product &p, int64_t panel, int64_t index
    )
    {
        const uint8_t *const at = p.weight + panel * p.panel_bytes + index * kPanelBytes;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) s.a[i][j] = word(at + j % 2 * 1024, 2 * i + j / 2);
    }
    static __device__ __forceinline__ const uint8_t *inputs_of(
        const product &p, int64_t tile, int64_t index
    )
    {
        return (IS_F16 ? p.x.f16 : p.x.bf16) + (tile * p.steps + index) * kTileBytes;
    }
    static __device__ __forceinline__ void load_inputs(
        inputs &x, const product &p, int64_t tile, int64_t index
    )
    {
        const uint8_t *const at = inputs_of(p, tile, index);
        const bool is_row = has_row(p, tile);
#pragma unroll
        for (int i = 0; i < 8; i++) x.b[i / 2][i % 2] = is_row ? word(at, i) : 0;
    }

    static __device__ __forceinline__ void multiply(
        float (&sums)[kParts][4], const operands &o, const inputs &x
    )
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (IS_F16)
                weir_cuda::mma_f16(sums[0], o.a[i], x.b[i]);
            else
                weir_cuda::mma_bf16(sums[0], o.a[i], x.b[i]);
        }
    }

    /* Outputs g and g + 8, rows 2t and 2t + 1. */
    static __device__ __forceinline__ void put(
        const product &p, int64_t panel, int64_t tile, const float (&sums)[kParts][4]
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t row = tile * kTile + 2 * t + i % 2;
            if (row >= p.n_rows) continue;
            const float scale = p.row_scales ? p.row_scales[row] : 1.0f; /* a power of two */
            weir_cuda_matmul::put(p, row, panel * kPanel + g + i / 2 * 8, sums[0][i] * scale);
        }
    }

    /* Staged as they are in memory: eight rows of a piece are in all banks. */
    struct panel_source {
        const uint8_t *from;
        bool is_there;
        __device__ __forceinline__ void open(const product &p, int64_t panel)
        {
            is_there = panel < (p.n_out + kPanel - 1) / kPanel;
            from = p.weight + (is_there ? panel : 0) * p.panel_bytes + threadIdx.x % kWarp * 16;
        }
        __device__ __forceinline__ void copy(uint8_t *panel, int64_t index) const
        {
            const int to = (int)(threadIdx.x % kWarp) * 16;
#pragma unroll
            for (int i = 0; i < kPanelBytes; i += 512)
                weir_cuda::copy_async(panel + i + to, from + index * kPanelBytes + i, is_there);
        }
    };
    struct tile_source {
        const uint8_t *from;
        bool is_there;
        __device__ __forceinline__ void open(const product &p, int64_t tile)
        {
            is_there = tile < p.n_tiles;
            from = inputs_of(p, is_there ? tile : 0, 0) + threadIdx.x % kWarp * 16;
        }
        __device__ __forceinline__ void copy(uint8_t *tile, int64_t index) const
        {
            const int to = (int)(threadIdx.x % kWarp) * 16;
#pragma unroll
            for (int i = 0; i < kTileBytes; i += 512)
                weir_cuda::copy_async(tile + i + to, from + index * kTileBytes + i, is_there);
        }
    };
    static __device__ __forceinline__ void load_staged(step &s, const uint8_t *panel)
    {
        const int lane = (int)(threadIdx.x % kWarp);
        const uint8_t *const row = panel + lane % 16 * 128;
#pragma unroll
        for (int i = 0; i < 4; i++)
            weir_cuda::load_matrices(s.a[i], row + ((2 * i + lane / 16) ^ lane % 8) * 16);
    }
    static __device__ __forceinline__ void load_inputs_staged(inputs &x, const uint8_t *tile)
    {
        const int lane = (int)(threadIdx.x % kWarp);
        const uint8_t *const row = tile + lane % 8 * 128;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            uint32_t r[4];
            weir_cuda::load_matrices(r, row + ((2 * i + lane / 8) ^ lane % 8) * 16);
            x.b[i][0] = r[0], x.b[i][1] = r[1], x.b[i + 1][0] = r[2], x.b[i + 1][1] = r[3];
        }
    }
};

/* Blocks of a multiprocessor, by what registers hold. */
constexpr int kAhead = 2, kBlocks = 2, kFewTiles = 4, kBlocksOfTiles = 1, kManyTiles = 4;
template <class FORMAT, int TILES>
__global__ void __launch_bounds__(kWarp *kWarps, TILES == 1 ? kBlocks : kBlocksOfTiles)
    few(const __grid_constant__ group g, const int64_t n_panels)
{
    multiply_few<FORMAT, kAhead, TILES>(g, n_panels);
}
template <class FORMAT>
__global__ void __launch_bounds__(kWarp *kWarps, 1) many(const __grid_constant__ product p)
{
    multiply_many<FORMAT, kManyTiles>(p);
}

template <class FORMAT> void launch(group &g, cudaStream_t stream)
{
    if (is_many<FORMAT, kManyTiles>(g))
        launch_many<FORMAT, kManyTiles>(many<FORMAT>, g, stream);
    else if (g.p[0].n_tiles == 1)
        launch_few<FORMAT, 1, kBlocks>(few<FORMAT, 1>, g, stream);
    else
        launch_few<FORMAT, kFewTiles, kBlocksOfTiles>(few<FORMAT, kFewTiles>, g, stream);
}

} // namespace weir_cuda_matmul_halves

namespace weir_cuda_matmul {

void multiply_halves(group &g, weir_dtype kept, cudaStream_t stream)
{
    using namespace weir_cuda_matmul_halves;
    if (kept != WEIR_F16) return launch<format<false>>(g, stream);
    for (int32_t o = 0; o < g.n; o++) g.p[o].row_scales = g.p[o].x.inverses;
    launch<format<true>>(g, stream);
}

} // namespace weir_cuda_matmul
