/* kernels/cuda/matmul_few.h - products of few rows with quantised weights: weights are read once,
 * by warps that always have some in flight. */
#pragma once
#include "kernels/cuda/matmul.h"

namespace weir_cuda_matmul {

/* A warp's units are AHEAD steps of its slices of the block's panels; the next unit is loaded
 * before the present one is multiplied, also across panels. */
struct unit {
    int64_t panel, slice, index, end; /* steps [index, end) are left of the slice */
};

__device__ __forceinline__ void begin_slice(unit &u, const product &p)
{
    const int64_t end = (u.slice + 1) * p.slice_steps;
    u.index = u.slice * p.slice_steps;
    u.end = end < p.steps ? end : p.steps;
}

template <class SLICE, int AHEAD, int TILES>
__device__ __forceinline__ void multiply_unit(
    float (&sums)[TILES][SLICE::kParts][4], const typename SLICE::step (&steps)[AHEAD],
    const product &p, int64_t first_tile, const unit &u
)
{
    constexpr int kTogether =
        TILES == 1 ? SLICE::kTogether : 1; /* whose inputs are loaded at once */
#pragma unroll
    for (int first = 0; first < AHEAD; first += kTogether) {
        typename SLICE::inputs x[kTogether][TILES];
#pragma unroll
        for (int i = 0; i < kTogether; i++)
#pragma unroll
            for (int n = 0; n < TILES; n++) {
                const int64_t index = u.index + first + i, tile = first_tile + n;
                SLICE::load_inputs(
                    x[i][n], p, tile < p.n_tiles ? tile : p.n_tiles - 1,
                    index < u.end ? index : u.end - 1
                );
            }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            if (u.index + first + i >= u.end) continue;
            typename SLICE::operands o;
            SLICE::unpack(o, steps[first + i]);
#pragma unroll
            for (int n = 0; n < TILES; n++) SLICE::multiply(sums[n], o, x[i][n]);
        }
    }
}

template <class SLICE, int AHEAD, int TILES>
__device__ __forceinline__ void multiply_few(const group &g, int64_t n_panels)
{
    constexpr int kParts = SLICE::kParts;
    WEIR_DYNAMIC_SHARED(float4, partial); /* [2][n_slices][TILES][kParts][32 lanes] */
    const int lane = (int)(threadIdx.x % kWarp), warp = (int)(threadIdx.x / kWarp),
              n_warps = (int)(blockDim.x / kWarp);
    const int64_t first_tile = (int64_t)blockIdx.y * TILES, n_slices = g.p[0].n_slices;
    typename SLICE::step now[AHEAD], next[AHEAD];
    float sums[TILES][kParts][4] = {};
    unit at = { (int64_t)blockIdx.x, warp, 0, 0 };
    begin_slice(at, g.p[0]);
    const auto load = [&](typename SLICE::step(&steps)[AHEAD], const unit &u) {
        const int own = own_output(g, u.panel);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            SLICE::load(
                steps[i], g.p[own], u.panel - g.first_block[own],
                u.index + i < u.end ? u.index + i : u.end - 1
            );
    };
    weir_cuda::let_next_start();
    load(now, at); /* weights do not change */
    weir_cuda::wait_for_previous();
    for (int turn = 0; at.panel < n_panels;) {
        unit after = at;
        after.index += AHEAD;
        const bool ends_slice = after.index >= at.end;
        if (ends_slice) {
            after.slice += n_warps;
            if (after.slice >= n_slices) {
                after.slice = warp;
                after.panel += gridDim.x;
            }
            begin_slice(after, g.p[0]);
        }
        if (after.panel < n_panels) load(next, after);
        const int own = own_output(g, at.panel);
        const product &p = g.p[own];
        multiply_unit<SLICE, AHEAD, TILES>(sums, now, p, first_tile, at);
        float4 *const of_panel = partial + turn % 2 * n_slices * TILES * kParts * kWarp;
        if (ends_slice) {
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int part = 0; part < kParts; part++) {
                    float(&sum)[4] = sums[n][part];
                    of_panel[((at.slice * TILES + n) * kParts + part) * kWarp + lane] =
                        make_float4(sum[0], sum[1], sum[2], sum[3]);
                    sum[0] = sum[1] = sum[2] = sum[3] = 0;
                }
        }
        if (after.panel != at.panel) {
            /* The other half is free: those who read it have passed this barrier. */
            __syncthreads();
            for (int n = (warp + turn) % n_warps; n < TILES; n += n_warps) {
                float total[kParts][4] = {};
                for (int64_t slice = 0; slice < n_slices; slice++)
#pragma unroll
                    for (int part = 0; part < kParts; part++) {
                        const float4 sum =
                            of_panel[((slice * TILES + n) * kParts + part) * kWarp + lane];
                        total[part][0] += sum.x, total[part][1] += sum.y;
                        total[part][2] += sum.z, total[part][3] += sum.w;
                    }
                SLICE::put(p, at.panel - g.first_block[own], first_tile + n, total, p.row_scales);
            }
            turn++;
        }
        at = after;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) now[i] = next[i];
    }
}

/* A kernel of few rows for TILES tiles; BLOCKS of it run on a multiprocessor. */
template <class SLICE, int TILES, int BLOCKS, class Few>
void launch_few(Few *few, group &g, cudaStream_t stream)
{
    const product &first = g.p[0];
    const int64_t n_panels = share_blocks(g, kPanel),
                  most = (int64_t)BLOCKS * weir_cuda::device_facts().multiprocessors;
    const size_t shared =
        2 * (size_t)first.n_slices * TILES * SLICE::kParts * kWarp * sizeof(float4);
    (void)cudaFuncSetAttribute(few, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    WEIR_LAUNCH(
        few,
        dim3(
            (unsigned)(n_panels < most ? n_panels : most),
            (unsigned)((first.n_tiles + TILES - 1) / TILES)
        ),
        few_threads(first), shared, stream, g, n_panels
    );
}

} // namespace weir_cuda_matmul
