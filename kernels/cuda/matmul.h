/* kernels/cuda/matmul.h - shared by the parts of the CUDA matmul: the order of summation, the
 * activations in scratch, the end of a product. Order (docs/kernels.md): at most 16 slices of whole
 * 256 inputs, by n_in alone; a slice is summed from zero in ascending steps of 64 inputs by one
 * warp, then slices in ascending order, for any number of rows. Activations are rounded once per
 * call (matmul_prepare.cu) to scratch, in the order of the tensor cores' registers: tiles of 8
 * rows, the last one padded with zeros; a warp reads 512 consecutive bytes of a tile at a time. */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weight.h"

namespace weir_cuda_matmul {

constexpr int kWarp = 32, kPanel = WEIR_CUDA_PANEL, kTile = 8, kMostSlices = 16,
              kSliceSteps = WEIR_CUDA_SUPER / WEIR_CUDA_STEP;
constexpr int kWarps = 8; /* of a block */

/* Rounded activations; NULL if no weight of the call needs them. */
struct activations {
    int64_t n_rows, n_tiles, steps;
    /* [n_tiles][steps][32 lanes][2 groups][8]: lane 4 row + t has inputs 4t .. 4t+3 and 16 + 4t ..
     * of a group's 32. */
    uint8_t *codes;
    float *scales; /* [n_tiles][2 steps][8 rows] */
    float *sums; /* the same: scale * sum of a group's codes */
    float *half_sums; /* [n_tiles][4 steps][8 rows]: of 16 codes each */
    /* [n_tiles][2 steps][32 lanes][16]: lane 4 row + t has inputs 8t .. 8t+7 of 32. */
    uint8_t *bf16;
    uint8_t *f16; /* the same, of x * 2^e */
    float *inverses; /* [8 n_tiles]: 2^-e */
    float *f32; /* [8 n_tiles][64 steps], padded with zeros */
};

/* One output of a call. */
struct product {
    const uint8_t *weight;
    weir_cuda_planes planes; /* quantised */
    int64_t row_bytes; /* dense     */
    int64_t n_out, n_rows, n_tiles, steps, slice_steps, n_slices, dst_stride;
    activations x;
    float *dst;
    /* row_scales: NULL, or the factors of a row's sums. */
    const float *bias, *row_scales;
    bool accumulate;
};

/* Outputs of a call whose weights have one format: one launch for few rows, since k and v in
 * launches of their own would leave most of a GPU idle. */
struct group {
    int32_t n;
    unsigned first_block[WEIR_MATMUL_OUTPUTS]; /* on the axis x of the grid */
    product p[WEIR_MATMUL_OUTPUTS];
};

/* Launches; `many`: kernels that read a panel once for 64 rows. */
void prepare(const weir_matmul_args &args, const activations &x, cudaStream_t stream);
void multiply_codes(group &g, weir_dtype kept, bool many, cudaStream_t stream);
void multiply_halves(group &g, weir_dtype kept, bool many, cudaStream_t stream);
void multiply_floats(group &g, cudaStream_t stream);

/* Sets first_block for blocks of `outputs`. Returns the number of blocks. */
inline unsigned share_blocks(group &g, int64_t outputs)
{
    unsigned end = 0;
    for (int32_t o = 0; o < g.n; o++) {
        g.first_block[o] = end;
        end += (unsigned)((g.p[o].n_out + outputs - 1) / outputs);
    }
    return end;
}
/* The output that the block computes. */
__device__ __forceinline__ int own_output(const group &g)
{
    int own = 0;
#pragma unroll
    for (int o = 1; o < WEIR_MATMUL_OUTPUTS; o++)
        if (o < g.n && blockIdx.x >= g.first_block[o]) own = o;
    return own;
}

inline int64_t slice_steps_of(int64_t steps)
{
    const int64_t least = (steps + kMostSlices - 1) / kMostSlices;
    return (least + kSliceSteps - 1) / kSliceSteps * kSliceSteps;
}

/* Writes an element, from the sum of all slices. */
__device__ __forceinline__ void put(const product &p, int64_t row, int64_t output, float sum)
{
    if (row >= p.n_rows || output >= p.n_out) return;
    float *const dst = p.dst + row * p.dst_stride + output;
    if (p.bias) sum += p.bias[output];
    *dst = p.accumulate ? *dst + sum : sum;
}

/* Writes a panel's sums for a tile of rows, in the layout of the tensor cores: outputs g and g + 8,
 * rows 2t and 2t + 1. */
__device__ __forceinline__ void put_tile(
    const product &p, int64_t panel, int64_t tile, const float (&sums)[4]
)
{
    const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
    const int64_t row = tile * kTile + 2 * t, output = panel * kPanel + g;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (tile >= p.n_tiles) break;
        put(p, row + i % 2, output + i / 2 * 8,
            p.row_scales ? sums[i] * p.row_scales[row + i % 2] : sums[i]);
    }
}

/* Sums of steps [first, end) for a rectangle of panels and tiles: types of weights differ in their
 * SLICE, which loads a lane's part of a step, unpacks it to operands and multiplies those with a
 * tile. AHEAD steps are loaded before the first of them is multiplied; with 1, the next one is. */
template <class SLICE, int AHEAD, int PANELS, int TILES>
__device__ __forceinline__ void sum_steps(
    const product &p, const int64_t (&panels)[PANELS], const int64_t (&tiles)[TILES], int64_t first,
    int64_t end, float (&sums)[PANELS][TILES][4]
)
{
    typename SLICE::step now[AHEAD][PANELS], next[PANELS];
    if (AHEAD == 1) {
#pragma unroll
        for (int m = 0; m < PANELS; m++) SLICE::load(next[m], p, panels[m], first);
    }
    for (int64_t index = first; index < end; index += AHEAD) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
#pragma unroll
            for (int m = 0; m < PANELS; m++) {
                if (AHEAD == 1)
                    now[i][m] = next[m];
                else
                    SLICE::load(now[i][m], p, panels[m], index + i < end ? index + i : end - 1);
            }
        if (AHEAD == 1) {
#pragma unroll
            for (int m = 0; m < PANELS; m++)
                SLICE::load(next[m], p, panels[m], index + 1 < end ? index + 1 : index);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (AHEAD > 1 && index + i >= end) break;
            typename SLICE::operands o[PANELS];
#pragma unroll
            for (int m = 0; m < PANELS; m++) SLICE::unpack(o[m], now[i][m]);
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int m = 0; m < PANELS; m++)
                    SLICE::multiply(sums[m][n], o[m], p, tiles[n], index + i);
        }
    }
}

/* Few rows: one panel and TILES tiles per block. */
template <class SLICE, int TILES> __device__ __forceinline__ void multiply_few(const group &g)
{
    /* As many steps in flight as registers hold. */
    constexpr int kAhead = TILES == 1 ? kSliceSteps : kSliceSteps / 2;
    WEIR_DYNAMIC_SHARED(float4, partial); /* [n_slices][TILES][32 lanes] */
    const int lane = (int)(threadIdx.x % kWarp), warp = (int)(threadIdx.x / kWarp),
              n_warps = (int)(blockDim.x / kWarp);
    const int own = own_output(g);
    const product &p = g.p[own];
    const int64_t panels[1] = { (int64_t)(blockIdx.x - g.first_block[own]) },
                  first_tile = (int64_t)blockIdx.y * TILES;
    int64_t tiles[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++)
        tiles[n] = first_tile + n < p.n_tiles
                       ? first_tile + n
                       : p.n_tiles - 1; /* past the last: computed again, not stored */
    for (int64_t slice = warp; slice < p.n_slices; slice += n_warps) {
        const int64_t first = slice * p.slice_steps, last = first + p.slice_steps;
        float sums[1][TILES][4] = {};
        sum_steps<SLICE, kAhead>(p, panels, tiles, first, last < p.steps ? last : p.steps, sums);
#pragma unroll
        for (int n = 0; n < TILES; n++)
            partial[(slice * TILES + n) * kWarp + lane] =
                make_float4(sums[0][n][0], sums[0][n][1], sums[0][n][2], sums[0][n][3]);
    }
    __syncthreads();
    for (int n = warp; n < TILES; n += n_warps) {
        float total[4] = {};
        for (int64_t slice = 0; slice < p.n_slices; slice++) {
            const float4 sums = partial[(slice * TILES + n) * kWarp + lane];
            total[0] += sums.x, total[1] += sums.y, total[2] += sums.z, total[3] += sums.w;
        }
        put_tile(p, panels[0], first_tile + n, total);
    }
}

/* Many rows: a block of 4 x 2 warps, a warp PANELS panels by TILES tiles. Blocks that follow each
 * other share their panels: y is the panels' axis. */
constexpr int kWarpsDown = 4, kWarpsAcross = 2;
template <class SLICE, int PANELS, int TILES>
__device__ __forceinline__ void multiply_many(const product &p)
{
    const int warp = (int)(threadIdx.x / kWarp);
    const int64_t n_panels = (p.n_out + kPanel - 1) / kPanel;
    const int64_t first_panel = ((int64_t)blockIdx.y * kWarpsDown + warp / kWarpsAcross) * PANELS;
    const int64_t first_tile = ((int64_t)blockIdx.x * kWarpsAcross + warp % kWarpsAcross) * TILES;
    int64_t panels[PANELS], tiles[TILES];
    float total[PANELS][TILES][4] = {};
    if (first_panel >= n_panels || first_tile >= p.n_tiles)
        return; /* whole warps, and there is no barrier */
#pragma unroll
    for (int m = 0; m < PANELS; m++)
        panels[m] = first_panel + m < n_panels ? first_panel + m : n_panels - 1;
#pragma unroll
    for (int n = 0; n < TILES; n++)
        tiles[n] = first_tile + n < p.n_tiles ? first_tile + n : p.n_tiles - 1;
    for (int64_t first = 0; first < p.steps; first += p.slice_steps) {
        const int64_t last = first + p.slice_steps;
        float sums[PANELS][TILES][4] = {};
        sum_steps<SLICE, 1>(p, panels, tiles, first, last < p.steps ? last : p.steps, sums);
#pragma unroll
        for (int m = 0; m < PANELS; m++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) total[m][n][i] += sums[m][n][i];
    }
#pragma unroll
    for (int m = 0; m < PANELS; m++)
#pragma unroll
        for (int n = 0; n < TILES; n++) put_tile(p, first_panel + m, first_tile + n, total[m][n]);
}

/* ---- the launches of both -------------------------------------------------------------------- */
inline dim3 many_grid(const product &p, int panels, int tiles)
{
    const int64_t across = (int64_t)tiles * kWarpsAcross, down = (int64_t)panels * kWarpsDown,
                  n_panels = (p.n_out + kPanel - 1) / kPanel;
    return dim3(
        (unsigned)((p.n_tiles + across - 1) / across), (unsigned)((n_panels + down - 1) / down)
    );
}
inline dim3 few_grid(group &g, int tiles)
{
    return dim3(share_blocks(g, kPanel), (unsigned)((g.p[0].n_tiles + tiles - 1) / tiles));
}
inline unsigned few_threads(const product &p)
{
    return (unsigned)(kWarp * (p.n_slices < kWarps ? p.n_slices : kWarps));
}
inline size_t few_shared(const product &p, int tiles)
{
    return (size_t)p.n_slices * (size_t)tiles * kWarp * sizeof(float4);
}

/* Launches `many` for each product of the group, its panels and tiles being those of a warp, or
 * once for the whole group `few1`, with one tile, or `few4`, with four. */
template <class Many, class Few>
void launch_kernels(
    Many *many, int panels, int tiles, Few *few1, Few *few4, group &g, bool is_many,
    cudaStream_t stream
)
{
    const product &first = g.p[0];
    for (int32_t o = 0; is_many && o < g.n; o++)
        WEIR_LAUNCH(many, many_grid(g.p[o], panels, tiles), kWarp * kWarps, 0, stream, g.p[o]);
    if (is_many) return;
    const int few_tiles = first.n_tiles == 1 ? 1 : 4;
    WEIR_LAUNCH(
        first.n_tiles == 1 ? few1 : few4, few_grid(g, few_tiles), few_threads(first),
        few_shared(first, few_tiles), stream, g
    );
}

} // namespace weir_cuda_matmul
