/* kernels/cuda/matmul_halves.cu - products of bf16 and f16 weights with activations of the same
 * type, summed in f32 by m16n8k16 for any number of rows: an instruction adds 16 consecutive
 * inputs. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul_rows.h"
#include "kernels/cuda/matmul_stream.h"
#include "kernels/cuda/tensor.h"

namespace weir_cuda_matmul_halves {

using namespace weir_cuda_matmul;

template <bool IS_F16> struct format : rows_of_halves<IS_F16> {
    static constexpr int kParts = 1, kPanelBytes = WEIR_CUDA_HALF_STEP,
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

    /* Outputs g and g + 8, rows 2t and 2t + 1; row_scales: powers of two, or NULL. */
    static __device__ __forceinline__ void put(
        const product &p, int64_t panel, int64_t tile, const float (&sums)[kParts][4],
        const float *row_scales
    )
    {
        const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t row = tile * kTile + 2 * t + i % 2;
            if (row >= p.n_rows) continue;
            const float scale = row_scales ? row_scales[row] : 1.0f;
            weir_cuda_matmul::put(p, row, panel * kPanel + g + i / 2 * 8, sums[0][i] * scale);
        }
    }

    static __device__ __forceinline__ const uint8_t *steps_of(
        const product &p, int64_t panel, int64_t index
    )
    {
        return p.weight + panel * p.panel_bytes + index * kPanelBytes;
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

/* Chunks of two steps, 4 KiB. Three stages of them are 96 KiB in flight on a multiprocessor, where
 * an H200's latency times bandwidth is 29; two are what sm_86 and sm_89 have room for. */
constexpr int kChunk = 2, kRing = 3, kSmallRing = 2, kManyTiles = 4;
__device__ unsigned joint_counters[kMostJoints];

template <class FORMAT, int TILES, bool INSIDE, int RING>
__global__ void __launch_bounds__(kWarp *kWarps, 1)
    few(const __grid_constant__ group g, const __grid_constant__ joints j,
        const __grid_constant__ weir_matmul_args args, const uint32_t n_units, const int first_tile)
{
    multiply_stream<FORMAT, TILES, INSIDE, kChunk, RING>(
        g, j, joint_counters, args, n_units, first_tile
    );
}
template <class FORMAT>
__global__ void __launch_bounds__(kWarp *kWarps, 1) many(const __grid_constant__ product p)
{
    multiply_many<FORMAT, kManyTiles>(p);
}

template <class FORMAT, int TILES, bool INSIDE, int RING> void stream_in(group &g, const call &c)
{
    using R = ring<FORMAT, kChunk, RING>;
    constexpr int kMost = kWarps * R::kBytes + kMostInside;
    static_assert(kMost <= (RING == kRing ? kLargeShared : kLeastShared), "of a block");
    const size_t rows =
        INSIDE ? (size_t)c.args.n_rows * (size_t)(FORMAT::inside_stride(g.p[0].steps) + 4) : 0;
    launch_stream<R, TILES>(few<FORMAT, TILES, INSIDE, RING>, g, c, rows);
}
template <class FORMAT, int TILES, bool INSIDE> void stream(group &g, const call &c)
{
    if (weir_cuda::device_facts().block_shared >= kLargeShared)
        stream_in<FORMAT, TILES, INSIDE, kRing>(g, c);
    else
        stream_in<FORMAT, TILES, INSIDE, kSmallRing>(g, c);
}

template <class FORMAT> void launch(group &g, const call &c)
{
    const product &first = g.p[0];
    if (is_many<FORMAT, kManyTiles>(g))
        launch_many<FORMAT, kManyTiles>(many<FORMAT>, g, c.stream);
    else if (rounds_inside(first.n_rows, first.steps))
        stream<FORMAT, 1, true>(g, c);
    else if (first.n_tiles == 1)
        stream<FORMAT, 1, false>(g, c);
    else if (first.n_tiles == 2)
        stream<FORMAT, 2, false>(g, c);
    else
        stream<FORMAT, 4, false>(g, c);
}

} // namespace weir_cuda_matmul_halves

namespace weir_cuda_matmul {

void multiply_halves(group &g, weir_dtype kept, const call &c)
{
    using namespace weir_cuda_matmul_halves;
    if (kept != WEIR_F16) return launch<format<false>>(g, c);
    for (int32_t o = 0; o < g.n; o++) g.p[o].row_scales = g.p[o].x.inverses;
    launch<format<true>>(g, c);
}

} // namespace weir_cuda_matmul
