/* kernels/cuda/matmul_stream.h - products of few rows at the memory's speed (docs/kernels.md).
 *
 * Units are slices of panels, in the order of memory. All warps of the grid take runs of as many
 * units, so that every multiprocessor reads as many bytes, and a warp reads one run of bytes: ahead,
 * in chunks of CHUNK steps, into RING stages of its own in shared memory, by bulk copies where the
 * device has them. Stages are filled before the kernel before has ended, weights being constant.
 * A panel within a run is summed in registers. The slices of one that runs divide go to scratch,
 * and the warp that comes last adds them, in ascending order: who sums a slice does not matter. */
#pragma once
#include "kernels/cuda/bulk.h"
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
template <class SLICE, int CHUNK, int RING, bool BULK> struct ring {
    static constexpr int kStage = SLICE::template chunk_bytes<CHUNK>(), kBytes = RING * kStage, kPhases = RING * 8;
    uint8_t *stages;
    uint64_t *phases; /* BULK */

    __device__ __forceinline__ void begin() const
    {
        if (!BULK) return;
        if (threadIdx.x % kWarp == 0) {
            for (int i = 0; i < RING; i++) weir_cuda::begin_phases(phases + i, 1);
            weir_cuda::phases_begun();
        }
        __syncwarp();
    }
    /* The whole warp. */
    __device__ __forceinline__ void fill(
        int stage, const product &p, int64_t panel, int index, int n
    ) const
    {
        uint8_t *const to = stages + stage * kStage;
        const int lane = (int)(threadIdx.x % kWarp);
        if (BULK) {
            if (lane != 0) return;
            weir_cuda::arrive_expecting(
                phases + stage, (unsigned)SLICE::template bytes_of<CHUNK>(n)
            );
            SLICE::template copy_chunk<CHUNK>(
                p, panel, index, n,
                [&](int at, const uint8_t *from, int bytes) {
                    weir_cuda::copy_bulk(to + at, from, (unsigned)bytes, phases + stage);
                }
            );
        } else {
            SLICE::template copy_chunk<CHUNK>(
                p, panel, index, n,
                [&](int at, const uint8_t *from, int bytes) {
                    for (int i = lane * 16; i < bytes; i += kWarp * 16)
                        weir_cuda::copy_async(to + at + i, from + i);
                }
            );
        }
    }
    __device__ __forceinline__ void end_fill() const
    {
        if (!BULK) weir_cuda::copy_commit();
    }
    __device__ __forceinline__ void wait(int stage, unsigned parity) const
    {
        if (BULK) {
            weir_cuda::wait_for_phase(phases + stage, parity);
        } else {
            weir_cuda::copy_wait<RING - 1>();
            __syncwarp();
        }
    }
    __device__ __forceinline__ void end() const
    {
        if (!BULK) weir_cuda::copy_wait<0>();
    }
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

/* INSIDE: a block rounds all rows into shared memory; otherwise they are in scratch. The
 * j.n counters are zero before and after: kernels of a device are in one stream. */
template <class SLICE, int TILES, bool INSIDE, bool BULK, int CHUNK, int RING>
__device__ __forceinline__ void multiply_stream(
    const group &g, const joints &j, unsigned *counters, const weir_matmul_args &args,
    uint32_t n_units, int first_tile
)
{
    using R = ring<SLICE, CHUNK, RING, BULK>;
    static_assert(SLICE::kParts == 1, "a panel is one operand");
    WEIR_DYNAMIC_SHARED(uint8_t, shared); /* [kWarps] rings, their phases, rows */
    const int warp = (int)(threadIdx.x / kWarp);
    const uint32_t n_warps = gridDim.x * kWarps, own_warp = blockIdx.x * kWarps + (uint32_t)warp;
    const auto first = (uint32_t)((uint64_t)n_units * own_warp / n_warps),
               last = (uint32_t)((uint64_t)n_units * (own_warp + 1) / n_warps);
    auto *const phases = reinterpret_cast<uint64_t *>(shared + kWarps * R::kBytes);
    uint8_t *const rows = shared + kWarps * (R::kBytes + R::kPhases);
    const R own = { shared + warp * R::kBytes, phases + warp * RING };
    const order o = { (int)g.p[0].n_slices, (int)g.p[0].slice_steps, (int)g.p[0].steps };
    cursor at, ahead;
    o.begin(at, first);
    ahead = at;
    const auto fill = [&](int stage) {
        if (ahead.unit < last) {
            const int output = own_output(g, ahead.panel),
                      n = ahead.end - ahead.index < CHUNK ? ahead.end - ahead.index : CHUNK;
            own.fill(stage, g.p[output], ahead.panel - g.first_block[output], ahead.index, n);
            o.advance(ahead, n);
        }
        own.end_fill();
    };
    weir_cuda::let_next_start();
    own.begin();
    for (int i = 0; i < RING; i++) fill(i);
    weir_cuda::wait_for_previous();
    const float *scales = g.p[0].row_scales;
    if constexpr (INSIDE) scales = SLICE::round_rows(rows, args, g.p[0].x);
    float sums[TILES][1][4] = {}, total[TILES][1][4] = {};
    int stage = 0;
    unsigned parity = 0;
    while (at.unit < last) {
        const int output = own_output(g, at.panel),
                  n = at.end - at.index < CHUNK ? at.end - at.index : CHUNK;
        const product &p = g.p[output];
        typename SLICE::inputs x[CHUNK][TILES];
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                const int index = i < n ? at.index + i : at.index;
                const int64_t there =
                    first_tile + tile < p.n_tiles ? first_tile + tile : p.n_tiles - 1;
                if constexpr (INSIDE)
                    SLICE::load_inside(x[i][tile], rows, p, index);
                else
                    SLICE::load_inputs(x[i][tile], p, there, index);
            }
        own.wait(stage, parity);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (i >= n) break;
            typename SLICE::step s;
            typename SLICE::operands operands;
            SLICE::template load_chunk<CHUNK>(s, own.stages + stage * R::kStage, i);
            SLICE::unpack(operands, s);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                SLICE::multiply(sums[tile], operands, x[i][tile]);
        }
        __syncwarp();
        fill(stage);
        if (++stage == RING) stage = 0, parity ^= 1;
        if (at.index + n == at.end) {
            const uint32_t panel_first = at.unit - (uint32_t)at.slice,
                           panel_last = panel_first + (uint32_t)o.n_slices;
            const int64_t panel = at.panel - (int64_t)g.first_block[output];
            bool is_ready = at.slice + 1 == o.n_slices;
            if (panel_first >= first && panel_last <= last) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                    for (int i = 0; i < 4; i++) total[tile][0][i] += sums[tile][0][i];
            } else {
                const uint32_t id =
                    j.n < n_warps
                        ? (uint32_t)at.panel
                        : (uint32_t)((((uint64_t)panel_first + 1) * n_warps - 1) / n_units);
                float4 *const of_panel = j.sums + (uint64_t)id * (uint32_t)(o.n_slices * TILES * kWarp);
                keep_slice<TILES>(of_panel + at.slice * TILES * kWarp, p, first_tile, sums);
                is_ready = is_ready || at.unit + 1 == last;
                if (is_ready) {
                    const uint32_t begun = first > panel_first ? first : panel_first;
                    unsigned n_before = 0;
                    __threadfence();
                    __syncwarp();
                    if (threadIdx.x % kWarp == 0)
                        n_before = atomicAdd(counters + id, at.unit + 1 - begun);
                    n_before = __shfl_sync(0xffffffffu, n_before, 0);
                    is_ready = n_before + at.unit + 1 - begun == (uint32_t)o.n_slices;
                    if (is_ready) {
                        __threadfence();
                        join_slices<TILES>(total, of_panel, o.n_slices, p, first_tile);
                        if (threadIdx.x % kWarp == 0) counters[id] = 0;
                    }
                }
            }
            clear(sums);
            if (is_ready) {
#pragma unroll
                for (int tile = 0; tile < TILES; tile++)
                    SLICE::put(p, panel, first_tile + tile, total[tile], scales);
                clear(total);
            }
        }
        o.advance(at, n);
    }
    own.end();
}

/* Rows of RING R in a kernel of few rows. */
template <class R, int TILES, class Few>
void launch_stream(Few *few, group &g, const call &c, size_t rows_bytes)
{
    const product &first = g.p[0];
    const uint32_t n_panels = share_blocks(g, kPanel), n_units = n_panels * (uint32_t)first.n_slices,
                   most = (uint32_t)weir_cuda::device_facts().multiprocessors,
                   needed = (n_units + kWarps - 1) / kWarps, allowed = most < kMostBlocks ? most : (uint32_t)kMostBlocks,
                   blocks = needed < allowed ? needed : allowed;
    const joints j = { c.joint_sums, n_panels < blocks * kWarps ? n_panels : blocks * kWarps };
    const size_t shared = kWarps * (size_t)(R::kBytes + R::kPhases) + rows_bytes;
    (void)cudaFuncSetAttribute(few, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    for (int tile = 0; tile < first.n_tiles; tile += TILES)
        WEIR_LAUNCH(
            few, blocks, kWarp * kWarps, shared, c.stream, g, j, c.args, n_units, tile
        );
}

} // namespace weir_cuda_matmul
