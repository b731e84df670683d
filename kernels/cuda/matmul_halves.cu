/* kernels/cuda/matmul_halves.cu - products of bf16 and f16 weights with activations of the same
 * type, summed in f32 by m16n8k16 for any number of rows: wgmma adds more inputs at a time and
 * would give many rows other bits than few. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_halves {

using namespace weir_cuda_matmul;

template <bool IS_F16> struct format {
    /* A lane's part of a step of a panel: rows g and g + 8, inputs 8t .. 8t+7 of each 32. Rows are
     * read in place: as the second operand a register is a word of one row, and which inputs are
     * column k does not matter if both operands agree. */
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

    static constexpr int kParts = 2, kTogether = 1;
    struct inputs {
        uint4 operands[2][2]; /* of 32 inputs, of 16 */
    };
    static __device__ __forceinline__ const uint8_t *inputs_of(
        const product &p, int64_t tile, int64_t index
    )
    {
        return (IS_F16 ? p.x.f16 : p.x.bf16) + (tile * p.steps + index) * kTileBytes;
    }
    static __device__ __forceinline__ void load_tile(inputs &x, const uint8_t *tile, bool is_row)
    {
        const int lane = (int)(threadIdx.x % kWarp);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.operands[i / 2][i % 2] =
                is_row ? *reinterpret_cast<const uint4 *>(tile + i * 512 + lane * 16)
                       : make_uint4(0, 0, 0, 0);
    }
    static __device__ __forceinline__ void load_inputs(
        inputs &x, const product &p, int64_t tile, int64_t index
    )
    {
        load_tile(x, inputs_of(p, tile, index), has_row(p, tile, kHalfTile));
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
        float (&sums)[kParts][4], const operands &s, const inputs &x
    )
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint4 rows = x.operands[i / 2][i % 2];
            const uint32_t a[4] = { rows.x, rows.y, rows.z, rows.w };
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 w = s.rows[half][i / 2];
                const uint32_t b[2] = { i % 2 ? w.z : w.x, i % 2 ? w.w : w.y };
                multiply_pair(sums[half], a, b);
            }
        }
    }

    /* Rows g and g + 8 of the tile, outputs 2t and 2t + 1 of each half. */
    static __device__ __forceinline__ void put(
        const product &p, int64_t panel, int64_t tile, const float (&sums)[kParts][4]
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t row = tile * kHalfTile + g + i / 2 * 8;
            if (row >= p.n_rows) break;
            const float scale = p.row_scales ? p.row_scales[row] : 1.0f; /* a power of two */
#pragma unroll
            for (int half = 0; half < kParts; half++)
                weir_cuda_matmul::put(
                    p, row, panel * kPanel + half * 8 + 2 * t + i % 2, sums[half][i] * scale
                );
        }
    }

    /* Staged: 16 rows of 128 bytes, the halves of odd ones exchanged, so that eight lanes read all
     * banks; tiles as they are. */
    static constexpr int kPanelBytes = kPanel * 128, kTileBytes = kHalfTile * 128;
    static __device__ __forceinline__ int staged(int row, int piece)
    {
        return row * 128 + (piece ^ row % 2 * 4) * 16;
    }
    /* A lane copies piece lane % 8 of rows lane / 8, + 4, + 8 and + 12. */
    struct panel_source {
        const uint8_t *from;
        int64_t row_bytes, left; /* left: of the row from the piece on */
        int n_rows, to;
        __device__ __forceinline__ void open(const product &p, int64_t panel)
        {
            const int lane = (int)(threadIdx.x % kWarp), row = lane / 8, piece = lane % 8;
            const int64_t first = panel * kPanel + row, rows = (p.n_out - first + 3) / 4;
            n_rows = rows < 0 ? 0 : rows < 4 ? (int)rows : 4;
            from = p.weight + (n_rows > 0 ? first : 0) * p.row_bytes + piece * 16;
            row_bytes = p.row_bytes, left = p.row_bytes - piece * 16;
            to = staged(row, piece);
        }
        __device__ __forceinline__ void copy(uint8_t *panel, int64_t index) const
        {
            const int64_t byte = index * 128;
            const bool is_row = byte < left;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is_there = is_row && i < n_rows;
                weir_cuda::copy_async(
                    panel + to + i * 512, is_there ? from + i * 4 * row_bytes + byte : from,
                    is_there
                );
            }
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
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int chunk = 0; chunk < 2; chunk++)
                s.rows[half][chunk] =
                    *reinterpret_cast<const uint4 *>(panel + staged(g + 8 * half, chunk * 4 + t));
    }
    static __device__ __forceinline__ void load_inputs_staged(inputs &x, const uint8_t *tile)
    {
        load_tile(x, tile, true);
    }
};

/* Blocks of a multiprocessor, by what registers hold. */
constexpr int kAhead = 2, kBlocks = 2, kFewTiles = 2, kBlocksOfTiles = 1, kManyTiles = 2;
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
