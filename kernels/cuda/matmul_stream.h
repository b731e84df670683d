/* kernels/cuda/matmul_stream.h - products of few rows at the memory's speed (docs/kernels.md).
 *
 * Units are slices of panels, in the order of memory. All warps of the grid take runs of as many
 * units, so that every multiprocessor reads as many bytes, and a warp reads one run of bytes:
 * ahead, in chunks of CHUNK steps, into RING stages of its own in shared memory, without a barrier
 * of the block. Stages are filled before the kernel before has ended, weights being constant. A
 * panel within a run is summed in registers. The slices of one that runs divide go to scratch, and
 * the warp that comes last adds them, in ascending order: who sums a slice does not matter. */
#pragma once
#include "kernels/cuda/matmul.h"

namespace weir_cuda_matmul {

/* Where the slices of divided panels go. */
struct joints {
    float4 *sums; /* [n][n_slices][TILES][32 lanes] */
    uint32_t n; /* at most one for each warp and panel */
};

/* A place in a warp's run. */
struct cursor {
    uint32_t unit;
    int panel, slice, index, end; /* steps [index, end) are left of the slice */
};

/* The order of units; the same for all outputs of a group. */
struct order {
    int n_slices, slice_steps, steps;
    __device__ __forceinline__ void open(cursor &c) const
    {
        c.index = c.slice * slice_steps;
        c.end = c.index + slice_steps < steps ? c.index + slice_steps : steps;
    }
    __device__ __forceinline__ void begin(cursor &c, uint32_t unit) const
    {
        c.unit = unit;
        c.panel = (int)(unit / (uint32_t)n_slices);
        c.slice = (int)(unit % (uint32_t)n_slices);
        open(c);
    }
    __device__ __forceinline__ void advance(cursor &c, int n) const
    {
        c.index += n;
        if (c.index < c.end) return;
        c.unit++;
        if (++c.slice == n_slices) c.slice = 0, c.panel++;
        open(c);
    }
};

/* The stages of a warp. */
template <class SLICE, int CHUNK, int RING> struct ring {
    static constexpr int kStage = CHUNK * SLICE::kPanelBytes, kBytes = RING * kStage;
    uint8_t *stages;

    /* The whole warp; n is 0 where nothing is left. A fill is one group of copies. */
    __device__ __forceinline__ void fill(int stage, const uint8_t *from, int n) const
    {
        uint8_t *const to = stages + stage * kStage;
        for (int i = (int)(threadIdx.x % kWarp) * 16; i < n * SLICE::kPanelBytes; i += kWarp * 16)
            weir_cuda::copy_async(to + i, from + i);
        weir_cuda::copy_commit();
    }
    /* For the oldest of RING fills. */
    __device__ __forceinline__ void wait() const
    {
        weir_cuda::copy_wait<RING - 1>();
        __syncwarp();
    }
    /* After what a warp has read may be filled again. */
    __device__ __forceinline__ void release() const { __syncwarp(); }
    __device__ __forceinline__ void end() const { weir_cuda::copy_wait<0>(); }
};

template <int TILES> __device__ __forceinline__ bool has_columns(const product &p, int64_t tile)
{
    return tile * kTile + (int64_t)(threadIdx.x % 4) * 2 < p.n_rows;
}

/* Stores a slice of a divided panel. */
template <int TILES>
__device__ __forceinline__ void keep_slice(
    float4 *to, const product &p, int64_t first_tile, float (&sums)[TILES][1][4]
)
{
    const int lane = (int)(threadIdx.x % kWarp), place = lane % 4 * 8 + lane / 4;
#pragma unroll
    for (int n = 0; n < TILES; n++)
        if (has_columns<TILES>(p, first_tile + n))
            __stcg(
                to + n * kWarp + place,
                make_float4(sums[n][0][0], sums[n][0][1], sums[n][0][2], sums[n][0][3])
            );
}

/* Adds all slices of a divided panel. */
template <int TILES>
__device__ __forceinline__ void join_slices(
    float (&total)[TILES][1][4], const float4 *from, int n_slices, const product &p,
    int64_t first_tile
)
{
    const int lane = (int)(threadIdx.x % kWarp), place = lane % 4 * 8 + lane / 4;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        if (!has_columns<TILES>(p, first_tile + n)) continue;
#pragma unroll 4
        for (int slice = 0; slice < n_slices; slice++) {
            const float4 sum = __ldcg(from + (slice * TILES + n) * kWarp + place);
            total[n][0][0] += sum.x, total[n][0][1] += sum.y;
            total[n][0][2] += sum.z, total[n][0][3] += sum.w;
        }
    }
}

template <int N, int M> __device__ __forceinline__ void clear(float (&sums)[N][1][M])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < M; i++) sums[n][0][i] = 0;
}

/* Ends a slice, the sums of which are complete: adds it to the total of a panel of the warp's own,
 * or stores it. True if `total` has become the panel's sum. */
template <int TILES>
__device__ __forceinline__ bool end_slice(
    float (&total)[TILES][1][4], float (&sums)[TILES][1][4], const joints &j, unsigned *counters,
    const product &p, const cursor &at, uint32_t first, uint32_t last, uint32_t n_units,
    int first_tile
)
{
    const auto n_slices = (uint32_t)p.n_slices;
    const uint32_t panel_first = at.unit - (uint32_t)at.slice;
    if (panel_first >= first && panel_first + n_slices <= last) {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++) total[tile][0][i] += sums[tile][0][i];
        return at.unit + 1 == panel_first + n_slices;
    }
    const uint32_t n_warps = gridDim.x * kWarps,
                   id = j.n < n_warps
                            ? (uint32_t)at.panel
                            : (uint32_t)((((uint64_t)panel_first + 1) * n_warps - 1) / n_units);
    float4 *const of_panel = j.sums + (uint64_t)id * (n_slices * TILES * kWarp);
    keep_slice<TILES>(of_panel + at.slice * TILES * kWarp, p, first_tile, sums);
    if (at.unit + 1 != panel_first + n_slices && at.unit + 1 != last) return false;
    const uint32_t n_own = at.unit + 1 - (first > panel_first ? first : panel_first);
    unsigned n_before = 0;
    __threadfence();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) n_before = atomicAdd(counters + id, n_own);
    if (__shfl_sync(0xffffffffu, n_before, 0) + n_own != n_slices) return false;
    __threadfence();
    __syncwarp(); /* the first lane has seen the others' slices; now all have */
    join_slices<TILES>(total, of_panel, (int)n_slices, p, first_tile);
    if (threadIdx.x % kWarp == 0) counters[id] = 0;
    return true;
}

/* INSIDE: a block rounds all rows into shared memory; otherwise they are in scratch. The j.n
 * counters are zero before and after: kernels of a device are in one stream. */
template <class SLICE, int TILES, bool INSIDE, int CHUNK, int RING>
__device__ __forceinline__ void multiply_stream(
    const group &g, const joints &j, unsigned *counters, const weir_matmul_args &args,
    uint32_t n_units, int first_tile
)
{
    using R = ring<SLICE, CHUNK, RING>;
    static_assert(SLICE::kParts == 1, "a panel is one operand");
    constexpr int kAhead = TILES == 1 ? CHUNK : 1; /* steps whose inputs are loaded at once */
    WEIR_DYNAMIC_SHARED(uint8_t, shared); /* [kWarps] rings, rows */
    const int warp = (int)(threadIdx.x / kWarp);
    const uint32_t n_warps = gridDim.x * kWarps, own_warp = blockIdx.x * kWarps + (uint32_t)warp;
    const auto first = (uint32_t)((uint64_t)n_units * own_warp / n_warps),
               last = (uint32_t)((uint64_t)n_units * (own_warp + 1) / n_warps);
    uint8_t *const rows = shared + kWarps * R::kBytes;
    const R own = { shared + warp * R::kBytes };
    const order o = { (int)g.p[0].n_slices, (int)g.p[0].slice_steps, (int)g.p[0].steps };
    const auto chunk_of = [](const cursor &c) {
        return c.end - c.index < CHUNK ? c.end - c.index : CHUNK;
    };
    cursor at, ahead;
    o.begin(at, first);
    ahead = at;
    const auto fill = [&](int stage) {
        if (ahead.unit >= last) return own.fill(stage, nullptr, 0);
        const int output = own_output(g, ahead.panel), n = chunk_of(ahead);
        own.fill(
            stage, SLICE::steps_of(g.p[output], ahead.panel - g.first_block[output], ahead.index), n
        );
        o.advance(ahead, n);
    };
    weir_cuda::let_next_start();
    for (int i = 0; i < RING; i++) fill(i);
    weir_cuda::wait_for_previous();
    const float *scales = g.p[0].row_scales;
    if constexpr (INSIDE) scales = SLICE::round_rows(rows, args, g.p[0].x);
    const auto load_inputs = [&](typename SLICE::inputs &x, const product &p, int tile, int index) {
        const int there = first_tile + tile;
        if constexpr (INSIDE)
            SLICE::load_inside(x, rows, p, index);
        else
            SLICE::load_inputs(x, p, there < p.n_tiles ? there : p.n_tiles - 1, index);
    };
    float sums[TILES][1][4] = {}, total[TILES][1][4] = {};
    int stage = 0;
    while (at.unit < last) {
        const int output = own_output(g, at.panel), n = chunk_of(at);
        const product &p = g.p[output];
        typename SLICE::inputs x[kAhead][TILES];
        if (kAhead > 1) {
#pragma unroll
            for (int i = 0; i < kAhead; i++)
                load_inputs(x[i][0], p, 0, i < n ? at.index + i : at.index);
        }
        own.wait();
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (i >= n) break;
            if (kAhead == 1) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    load_inputs(x[0][tile], p, tile, at.index + i);
            }
            typename SLICE::step step;
            typename SLICE::operands operands;
            SLICE::load_staged(step, own.stages + stage * R::kStage + i * SLICE::kPanelBytes);
            SLICE::unpack(operands, step);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                SLICE::multiply(sums[tile], operands, x[i % kAhead][tile]);
        }
        own.release();
        fill(stage);
        if (++stage == RING) stage = 0;
        if (at.index + n == at.end) {
            const bool is_sum =
                end_slice<TILES>(total, sums, j, counters, p, at, first, last, n_units, first_tile);
            clear(sums);
            if (is_sum) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    SLICE::put(
                        p, at.panel - (int64_t)g.first_block[output], first_tile + tile,
                        total[tile], scales
                    );
                clear(total);
            }
        }
        o.advance(at, n);
    }
    own.end();
}

/* `few` is a kernel of few rows with rings R for TILES tiles at a time. */
template <class R, int TILES, class Few>
void launch_stream(Few *few, group &g, const call &c, size_t rows_bytes)
{
    const product &first = g.p[0];
    const uint32_t n_panels = share_blocks(g, kPanel),
                   n_units = n_panels * (uint32_t)first.n_slices,
                   most = (uint32_t)weir_cuda::device_facts().multiprocessors,
                   allowed = most < kMostBlocks ? most : (uint32_t)kMostBlocks,
                   needed = (n_units + kWarps - 1) / kWarps,
                   blocks = needed < allowed ? needed : allowed;
    const joints j = { c.joint_sums, n_panels < blocks * kWarps ? n_panels : blocks * kWarps };
    const size_t shared = (size_t)kWarps * R::kBytes + rows_bytes;
    (void)cudaFuncSetAttribute(few, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    for (int tile = 0; tile < first.n_tiles; tile += TILES)
        WEIR_LAUNCH(few, blocks, kWarp * kWarps, shared, c.stream, g, j, c.args, n_units, tile);
}

} // namespace weir_cuda_matmul
