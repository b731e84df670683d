/* kernels/cuda/matmul.h - shared by the parts of the CUDA matmul: the order of summation, the
 * activations in scratch, the end of a product. Order (docs/kernels.md): at most 16 slices of whole
 * 256 inputs, by n_in alone; a slice is summed from zero in ascending steps of 64 inputs by one
 * warp, then slices in ascending order, for any number of rows. Activations are rounded once per
 * call (matmul_prepare.cu) to scratch, in tiles of 8 rows, the last one padded with zeros. */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/tensor.h"
#include "kernels/cuda/weight.h"

namespace weir_cuda_matmul {

constexpr int kWarp = 32, kPanel = WEIR_CUDA_PANEL, kTile = 8, kMostSlices = 16,
              kSliceSteps = WEIR_CUDA_SUPER / WEIR_CUDA_STEP;
constexpr int kWarps = 8; /* of a block */
/* Shared memory of a block: on all devices since sm_80, and on those that have more. */
constexpr int kLeastShared = 99 << 10, kLargeShared = 160 << 10;

/* Rounded activations; NULL if no weight of the call needs them. */
struct activations {
    int64_t n_rows, steps;
    int64_t run = 1; /* tiles of halves that lie together */
    /* [tiles][steps][32 lanes][2 groups][8]: lane 4 row + t has inputs 4t .. 4t+3 and 16 + 4t ..
     * of a group's 32. */
    uint8_t *codes;
    float *scales; /* [tiles][2 steps][8 rows] */
    float *sums; /* the same: scale * sum of a group's codes */
    float *half_sums; /* [tiles][4 steps][8 rows]: of 16 codes each */
    /* [tiles / run][steps][run][8 rows][128 bytes], swizzled as weights are
     * (kernels/cuda/weight.h): one copy takes a step of a whole run. */
    uint8_t *bf16;
    uint8_t *f16; /* the same, of x * 2^e */
    float *inverses; /* [8 tiles]: 2^-e */
    float *f32; /* [8 tiles][64 steps], padded with zeros */
};

/* One output of a call. */
struct product {
    const uint8_t *weight;
    weir_cuda_planes planes; /* quantised */
    int64_t row_bytes, panel_bytes; /* f32, halves */
    int64_t n_out, n_rows, steps, slice_steps, n_slices, dst_stride;
    int64_t n_tiles; /* of kTile rows */
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

/* What launches need of a call. joint_sums: sums of slices that several warps join
 * (kernels/cuda/matmul_stream.h). */
struct call {
    const weir_matmul_args &args;
    float4 *joint_sums;
    cudaStream_t stream;
};

/* Of matmul.cu. */
const char *reject(const weir_caps *caps, const void *op_args);
product product_of(
    const weir_matmul_args &args, const weir_matmul_output &output, const activations &x
);

/* Launches. */
void prepare(const weir_matmul_args &args, const activations &x, cudaStream_t stream);
void multiply_codes(group &g, weir_dtype kept, cudaStream_t stream);
void multiply_halves(group &g, weir_dtype kept, const call &c);
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
/* The output that block `block` of the axis x computes. */
__device__ __forceinline__ int own_output(const group &g, int64_t block)
{
    int own = 0;
#pragma unroll
    for (int o = 1; o < WEIR_MATMUL_OUTPUTS; o++)
        if (o < g.n && block >= g.first_block[o]) own = o;
    return own;
}

inline int64_t tiles_of(int64_t rows, int64_t rows_of_tile)
{
    return (rows + rows_of_tile - 1) / rows_of_tile;
}
inline int64_t slice_steps_of(int64_t steps)
{
    const int64_t least = (steps + kMostSlices - 1) / kMostSlices;
    return (least + kSliceSteps - 1) / kSliceSteps * kSliceSteps;
}

/* Few rows (matmul_stream.h): at most kMostBlocks blocks of kWarps runs of units; a panel that runs
 * divide is a joint. Tiles are multiplied in launches of 1, 2 or 4. */
constexpr int64_t kMostBlocks = 160, kMostJoints = kMostBlocks * kWarps, kMostFewRows = 128;
constexpr int64_t kRun = 8; /* of products by warpgroups: 64 rows lie together */
inline int64_t stream_tiles(int64_t n_tiles) { return n_tiles < 3 ? n_tiles : 4; }
/* Halves of more than 32 rows on sm_90 (matmul_warpgroup.cu): outputs of a place that blocks may
 * divide, of kRun tiles. */
constexpr int64_t kDividedOutputs = 128;
/* The sums of the joints of one launch, or of divided places; never less for more rows, because the
 * greatest number of rows is what a plan asks for. */
inline size_t joint_bytes(const weir_matmul_args &args)
{
    const int64_t steps = tiles_of(args.n_in, WEIR_CUDA_STEP),
                  n_slices = tiles_of(steps, slice_steps_of(steps)),
                  rows = args.n_rows < kMostFewRows ? args.n_rows : kMostFewRows;
    int64_t n = 0, n_places = 0;
    for (int32_t o = 0; o < args.n_outputs; o++) {
        const weir_weight &weight = *args.outputs[o].weight;
        if (!weir_cuda_is_half(weight.dtype)) continue; /* those of others are joined in blocks */
        n += tiles_of(weight.n_out, kPanel);
        if (rows > 32)
            n_places += tiles_of(weight.n_out, kDividedOutputs) * tiles_of(rows, kRun * kTile);
    }
    const int64_t of_joints = (n < kMostJoints ? n : kMostJoints) *
                              stream_tiles(tiles_of(rows, kTile)) * kWarp * (int64_t)sizeof(float4),
                  of_places = (n_places < kMostBlocks ? n_places : kMostBlocks) * kDividedOutputs *
                              kRun * kTile * (int64_t)sizeof(float);
    return (size_t)(n_slices * (of_joints > of_places ? of_joints : of_places));
}

/* True if the blocks of a product of halves round its rows themselves, into what shared memory has
 * left. */
constexpr int kMostInside = 20480;
inline bool rounds_inside(int64_t n_rows, int64_t steps)
{
    return n_rows <= kTile && n_rows * (steps * WEIR_CUDA_STEP * 2 + 20) <= kMostInside;
}

/* Step `index` of a tile of 16-bit activations. */
__device__ __forceinline__ const uint8_t *half_tile(
    const activations &x, const uint8_t *halves, int64_t tile, int64_t index
)
{
    return halves +
           ((tile / x.run * x.steps + index) * x.run + tile % x.run) * kTile * WEIR_CUDA_HALF_ROW;
}

/* Whether the row of a tile that the lane loads is there: the padding, most of what a decode step
 * would read, stays in scratch. */
__device__ __forceinline__ bool has_row(const product &p, int64_t tile)
{
    return tile * kTile + (int64_t)(threadIdx.x % kWarp / 4) < p.n_rows;
}

/* Writes an element, from the sum of all slices. */
__device__ __forceinline__ void put(const product &p, int64_t row, int64_t output, float sum)
{
    if (row >= p.n_rows || output >= p.n_out) return;
    float *const dst = p.dst + row * p.dst_stride + output;
    if (p.bias) sum += p.bias[output];
    *dst = p.accumulate ? *dst + sum : sum;
}

/* Types of weights differ in their SLICE: `step` is a lane's part of 64 inputs of a panel as it is
 * stored, `inputs` that of a tile of activations, `operands` what tensor cores multiply; a lane has
 * kParts registers of four sums for a panel and a tile.
 *   load, load_inputs              from the device's memory
 *   panel_source, tile_source      copy their bytes, 16 at a time, to shared memory
 *   load_staged, load_inputs_staged   from there
 *   put                            writes the sums of a panel and a tile
 * A product adds to its sums in the same order in the kernels of few and of many rows, so a row has
 * the same bits in calls of any number of rows. */

/* ---- many rows: a block of 2 x 4 warps, each 4 panels by TILES tiles, from shared memory --------
 * A stage is a step of the block's panels and tiles; kStages - 1 are copied ahead. Blocks that
 * follow each other share their panels: y is the panels' axis. */
constexpr int kWarpsDown = 2, kWarpsAcross = 4, kManyPanels = 4, kStages = 3;

template <class SLICE, int TILES> struct stage {
    static constexpr int kPanels = kWarpsDown * kManyPanels, kTiles = kWarpsAcross * TILES,
                         kTilesAt = kPanels * SLICE::kPanelBytes,
                         kBytes = kTilesAt + kTiles * SLICE::kTileBytes;
    static_assert(kPanels == kWarps && kTiles % kWarps == 0, "a warp copies whole ones");
};

/* What a warp copies: one panel, and every kWarps-th tile. Addresses are computed once. */
template <class SLICE, int TILES> struct copier {
    using S = stage<SLICE, TILES>;
    static constexpr int kOwnTiles = S::kTiles / kWarps;
    typename SLICE::panel_source panel;
    typename SLICE::tile_source tiles[kOwnTiles];

    __device__ __forceinline__ void open(const product &p, int64_t first_panel, int64_t first_tile)
    {
        const int warp = (int)(threadIdx.x / kWarp);
        panel.open(p, first_panel + warp);
#pragma unroll
        for (int i = 0; i < kOwnTiles; i++) tiles[i].open(p, first_tile + warp + i * kWarps);
    }
    __device__ __forceinline__ void copy(uint8_t *to, int64_t index) const
    {
        const int warp = (int)(threadIdx.x / kWarp);
        panel.copy(to + warp * SLICE::kPanelBytes, index);
#pragma unroll
        for (int i = 0; i < kOwnTiles; i++)
            tiles[i].copy(to + S::kTilesAt + (warp + i * kWarps) * SLICE::kTileBytes, index);
    }
};

template <class SLICE, int TILES> __device__ __forceinline__ void multiply_many(const product &p)
{
    using S = stage<SLICE, TILES>;
    WEIR_DYNAMIC_SHARED(uint8_t, shared); /* [kStages] */
    const int warp = (int)(threadIdx.x / kWarp), down = warp / kWarpsAcross * kManyPanels,
              across = warp % kWarpsAcross * TILES;
    const int64_t first_panel = (int64_t)blockIdx.y * S::kPanels,
                  first_tile = (int64_t)blockIdx.x * S::kTiles;
    weir_cuda::begin_kernel();
    constexpr int kParts = SLICE::kParts;
    float total[kManyPanels][TILES][kParts][4] = {}, sums[kManyPanels][TILES][kParts][4] = {};
    copier<SLICE, TILES> source;
    source.open(p, first_panel, first_tile);
    for (int i = 0; i < kStages - 1; i++) {
        if (i < p.steps) source.copy(shared + i * S::kBytes, i);
        weir_cuda::copy_commit();
    }
    int now = 0; /* index % kStages */
    int64_t slice_end = p.slice_steps;
    for (int64_t index = 0; index < p.steps; index++) {
        weir_cuda::copy_wait<kStages - 2>();
        __syncthreads();
        const int64_t ahead = index + kStages - 1;
        if (ahead < p.steps)
            source.copy(shared + (now == 0 ? kStages - 1 : now - 1) * S::kBytes, ahead);
        weir_cuda::copy_commit();
        const uint8_t *const panels = shared + now * S::kBytes, *const tiles = panels + S::kTilesAt;
        now = now + 1 < kStages ? now + 1 : 0;
        typename SLICE::inputs x[TILES];
#pragma unroll
        for (int n = 0; n < TILES; n++)
            SLICE::load_inputs_staged(x[n], tiles + (across + n) * SLICE::kTileBytes);
#pragma unroll
        for (int m = 0; m < kManyPanels; m++) {
            typename SLICE::step s;
            typename SLICE::operands o;
            SLICE::load_staged(s, panels + (down + m) * SLICE::kPanelBytes);
            SLICE::unpack(o, s);
#pragma unroll
            for (int n = 0; n < TILES; n++) SLICE::multiply(sums[m][n], o, x[n]);
        }
        if (index + 1 != slice_end && index + 1 != p.steps) continue;
        slice_end += p.slice_steps;
#pragma unroll
        for (int m = 0; m < kManyPanels; m++)
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4 * kParts; i++) {
                    total[m][n][i / 4][i % 4] += sums[m][n][i / 4][i % 4];
                    sums[m][n][i / 4][i % 4] = 0;
                }
    }
    weir_cuda::copy_wait<0>();
#pragma unroll
    for (int m = 0; m < kManyPanels; m++)
#pragma unroll
        for (int n = 0; n < TILES; n++)
            SLICE::put(
                p, first_panel + down + m, first_tile + across + n, total[m][n], p.row_scales
            );
}

inline unsigned few_threads(const product &p)
{
    return (unsigned)(kWarp * (p.n_slices < kWarps ? p.n_slices : kWarps));
}

/* True if the blocks of a tiled kernel are enough: up to 128 rows they are one wave, whose time
 * does not depend on their number, and a matrix of few outputs is read faster once per 32 rows. */
template <class SLICE, int TILES> bool is_many(const group &g)
{
    using S = stage<SLICE, TILES>;
    int64_t blocks = 0;
    for (int32_t o = 0; o < g.n; o++)
        blocks += (g.p[o].n_out + S::kPanels * kPanel - 1) / (S::kPanels * kPanel) *
                  ((g.p[o].n_tiles + S::kTiles - 1) / S::kTiles);
    return g.p[0].n_rows > kMostFewRows ||
           (g.p[0].n_rows > 32 && 2 * blocks >= weir_cuda::device_facts().multiprocessors);
}

template <class SLICE, int TILES, class Many>
void launch_many(Many *many, const group &g, cudaStream_t stream)
{
    using S = stage<SLICE, TILES>;
    const size_t shared = (size_t)kStages * S::kBytes;
    (void)cudaFuncSetAttribute(many, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    for (int32_t o = 0; o < g.n; o++) {
        const product &p = g.p[o];
        const int64_t n_panels = (p.n_out + kPanel - 1) / kPanel;
        WEIR_LAUNCH(
            many,
            dim3(
                (unsigned)((p.n_tiles + S::kTiles - 1) / S::kTiles),
                (unsigned)((n_panels + S::kPanels - 1) / S::kPanels)
            ),
            kWarp * kWarps, shared, stream, p
        );
    }
}

} // namespace weir_cuda_matmul
