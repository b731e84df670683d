/* kernels/cuda/matmul_warpgroup.cu - products of bf16 and f16 weights with many rows, on sm_90a:
 * the order and the bits of matmul_halves.cu, by wgmma (decision 0093).
 *
 * A block computes places, 64 outputs for each of its warpgroups by some rows, one after another.
 * Four more warps copy both operands, which lie as wgmma reads them, into a ring of stages, a step
 * of 64 inputs each. Few rows are divided into slices of places, and the block that is done last
 * with a place joins its slices. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/warpgroup.h"

namespace weir_cuda_matmul_warpgroup {

using namespace weir_cuda_matmul;

constexpr int kWarpgroup = 128, kGroupOutputs = 64, kGroupWarps = kWarpgroup / kWarp,
              kTileBytes = kTile * WEIR_CUDA_HALF_ROW, kRunBytes = (int)kRun * kTileBytes,
              kPanelBytes = WEIR_CUDA_HALF_STEP, kRunRows = (int)kRun * kTile;

/* GROUPS warpgroups that multiply, ROWS of the batch, a ring of STAGES. */
template <int GROUPS, int ROWS, int STAGES, bool DIVIDES> struct shape {
    static constexpr int kGroups = GROUPS, kRows = ROWS, kStages = STAGES,
                         kOutputs = GROUPS * kGroupOutputs, kPanels = kOutputs / kPanel,
                         kRuns = ROWS / kRunRows, kThreads = kWarpgroup * (GROUPS + 1),
                         kSums = ROWS / 2; /* registers of a thread */
    static constexpr bool kDivides = DIVIDES;
    static constexpr int kRunsAt = kPanels * kPanelBytes, kStageBytes = kRunsAt + kRuns * kRunBytes,
                         kPhasesAt = STAGES * kStageBytes,
                         kJoinedAt = kPhasesAt + 2 * STAGES * (int)sizeof(uint64_t),
                         kBytes = kJoinedAt + 16;
    static_assert(ROWS % kRunRows == 0 && kPanels + kRuns <= kWarpgroup, "a copy for each thread");
    static_assert(kBytes <= 227 << 10, "shared memory");
    /* Of the copying warps and of the others: 65536 together. */
    static constexpr int kCopyRegisters = GROUPS == 3 ? 32 : 24,
                         kSumRegisters = GROUPS == 3 ? 160 : 240;
    static constexpr int64_t kPartial = kOutputs * ROWS / 4; /* float4 of a slice of a place */
};

/* What a launch computes: n_places, `across` of them along the rows; partial: sums of slices. */
struct plan {
    unsigned n_places, across, n_slices;
    float4 *partial; /* [places or blocks][slices][sums / 4][threads] */
};
__device__ unsigned done_slices[kMostBlocks]; /* of places that blocks divide; zero between */

#ifdef WEIR_HAS_WARPGROUPS

/* The block's stages, in the order in which they are filled and used. */
template <class SHAPE> struct ring {
    uint8_t *stages;
    uint64_t *full, *empty; /* phases: bytes have come; all warps have read them */
    int now;
    unsigned parity;

    __device__ __forceinline__ void open(uint8_t *shared)
    {
        stages = shared;
        full = reinterpret_cast<uint64_t *>(shared + SHAPE::kPhasesAt);
        empty = full + SHAPE::kStages;
        now = 0, parity = 0;
    }
    __device__ __forceinline__ void begin() const
    {
        for (int i = 0; i < SHAPE::kStages; i++) {
            weir_cuda::begin_phases(full + i, 1);
            weir_cuda::begin_phases(empty + i, SHAPE::kGroups * kGroupWarps);
        }
        weir_cuda::phases_begun();
    }
    __device__ __forceinline__ uint8_t *stage() const { return stages + now * SHAPE::kStageBytes; }
    __device__ __forceinline__ void advance()
    {
        now = now + 1 < SHAPE::kStages ? now + 1 : 0;
        if (now == 0) parity ^= 1;
    }
};

/* The block's part of the grid: whole places, one of each gridDim.x; or, if they are divided, as
 * many slices as any other block has. Rows are the inner axis: blocks that run together share
 * weights. */
template <class SHAPE> struct walk {
    uint64_t unit, end;
    unsigned place;
    int own; /* output */
    int64_t panel, run; /* the first of the place */
    int first, last; /* slices */
    bool is_whole;

    __device__ __forceinline__ void open(const plan &w)
    {
        const uint64_t n = (uint64_t)w.n_places * w.n_slices;
        unit = SHAPE::kDivides ? n * blockIdx.x / gridDim.x : blockIdx.x;
        end = SHAPE::kDivides ? n * (blockIdx.x + 1) / gridDim.x : w.n_places;
    }
    __device__ __forceinline__ bool next(const group &g, const plan &w)
    {
        if (unit >= end) return false;
        first = 0, last = (int)w.n_slices, is_whole = true;
        if (SHAPE::kDivides) {
            place = (unsigned)(unit / w.n_slices), first = (int)(unit % w.n_slices);
            if (end - unit < (uint64_t)(last - first)) last = first + (int)(end - unit);
            unit += (uint64_t)(last - first);
            is_whole = last - first == (int)w.n_slices;
        } else {
            place = (unsigned)unit;
            unit += gridDim.x;
        }
        const unsigned down = place / w.across;
        own = own_output(g, down);
        panel = (int64_t)(down - g.first_block[own]) * SHAPE::kPanels;
        run = (int64_t)(place % w.across) * SHAPE::kRuns;
        return true;
    }
    /* Where the sums of a divided place are: by its number, or that of the block that begins it,
     * which begins no other one. */
    __device__ __forceinline__ unsigned slot(const plan &w) const
    {
        const uint64_t n = (uint64_t)w.n_places * w.n_slices;
        if (w.n_places <= gridDim.x) return place;
        return (unsigned)((((uint64_t)place * w.n_slices + 1) * gridDim.x - 1) / n);
    }
    __device__ __forceinline__ int64_t first_step(const product &p) const
    {
        return first * p.slice_steps;
    }
    __device__ __forceinline__ int64_t end_step(const product &p) const
    {
        const int64_t at = last * p.slice_steps;
        return at < p.steps ? at : p.steps;
    }
};

/* Four warps: a thread copies a panel's part of every stage, or a run's; past the end the last
 * one. */
template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void copy_stages(const group &g, const plan &w, ring<SHAPE> r)
{
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp,
              piece = lane * kGroupWarps + warp, of_runs = piece - SHAPE::kPanels;
    const bool is_panel = of_runs < 0, is_there = of_runs < SHAPE::kRuns;
    const int bytes = is_panel ? kPanelBytes : kRunBytes,
              to = is_panel ? piece * kPanelBytes : SHAPE::kRunsAt + of_runs * kRunBytes;
    walk<SHAPE> at;
    for (at.open(w); at.next(g, w);) {
        const product &p = g.p[at.own];
        const int64_t last_panel = (p.n_out - 1) / kPanel, last_run = (p.n_rows - 1) / kRunRows,
                      panel = at.panel + piece, run = at.run + of_runs;
        const uint8_t *from =
            is_panel ? p.weight + (panel < last_panel ? panel : last_panel) * p.panel_bytes
                     : (IS_F16 ? p.x.f16 : p.x.bf16) +
                           (run < last_run ? run : last_run) * p.steps * kRunBytes;
        const int64_t end = at.end_step(p);
        int64_t step = at.first_step(p);
        from += step * bytes;
        for (; step < end; step++) {
            weir_cuda::wait_for_phase(r.empty + r.now, r.parity ^ 1);
            if (threadIdx.x == 0) weir_cuda::arrive_expecting(r.full + r.now, SHAPE::kStageBytes);
            if (is_there)
                weir_cuda::copy_bulk(r.stage() + to, from, (unsigned)bytes, r.full + r.now);
            from += bytes;
            r.advance();
        }
    }
}

/* Writes a warpgroup's sums of a place: rows 2t and 2t + 1 of every 8, outputs g and g + 8 of the
 * warp's 16. */
template <class SHAPE>
__device__ __forceinline__ void put_sums(
    const product &p, const walk<SHAPE> &at, const float (&sums)[SHAPE::kSums]
)
{
    const int warp = (int)threadIdx.x / kWarp - kGroupWarps, g = (int)threadIdx.x % kWarp / 4,
              t = (int)threadIdx.x % 4;
    const int64_t output = at.panel * kPanel + warp * 16 + g, row = at.run * kRunRows + 2 * t;
#pragma unroll
    for (int i = 0; i < SHAPE::kSums; i++) {
        const int64_t own = row + i / 4 * 8 + i % 2;
        if (own >= p.n_rows) continue;
        const float scale = p.row_scales ? p.row_scales[own] : 1.0f; /* a power of two */
        put(p, own, output + i / 2 % 2 * 8, sums[i] * scale);
    }
}

/* The thread's sums of a slice of a divided place. */
template <class SHAPE>
__device__ __forceinline__ float4 *partial_of(const plan &w, const walk<SHAPE> &at, int slice)
{
    return w.partial + (at.slot(w) * (int64_t)w.n_slices + slice) * SHAPE::kPartial +
           (threadIdx.x - kWarpgroup);
}

/* After the block's slices of a divided place were written: true if all are there now, and then
 * their sum is in `total`. */
template <class SHAPE>
__device__ __forceinline__ bool join(
    float (&total)[SHAPE::kSums], const plan &w, const walk<SHAPE> &at, unsigned *shared_count
)
{
    constexpr int kAll = SHAPE::kGroups * kWarpgroup;
    __threadfence();
    weir_cuda::barrier_of<kAll>(1);
    if (threadIdx.x == kWarpgroup) {
        unsigned *const done = done_slices + at.slot(w), own = (unsigned)(at.last - at.first),
                        n = atomicAdd(done, own) + own;
        if (n == w.n_slices) *done = 0;
        *shared_count = n;
        __threadfence();
    }
    weir_cuda::barrier_of<kAll>(1);
    const bool is_last = *shared_count == w.n_slices;
    weir_cuda::barrier_of<kAll>(1);
    if (!is_last) return false;
#pragma unroll
    for (int i = 0; i < SHAPE::kSums; i++) total[i] = 0;
#pragma unroll 1
    for (unsigned slice = 0; slice < w.n_slices; slice++) {
        const float4 *const from = partial_of(w, at, (int)slice);
#pragma unroll
        for (int i = 0; i < SHAPE::kSums / 4; i++) {
            const float4 sums = __ldcg(from + i * kAll);
            total[4 * i] += sums.x, total[4 * i + 1] += sums.y;
            total[4 * i + 2] += sums.z, total[4 * i + 3] += sums.w;
        }
    }
    return true;
}

/* The sums of `n` stages, a slice, by a warpgroup: products of a stage are computed while those of
 * the next are queued. */
template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void multiply_slice(float (&sums)[SHAPE::kSums], ring<SHAPE> &r, int n)
{
    const int number = (int)threadIdx.x / kWarpgroup - 1;
    int before = 0;
    const auto release = [&] {
        if (threadIdx.x % kWarp == 0) weir_cuda::arrive(r.empty + before);
    };
    for (int step = 0; step < n; step++) {
        weir_cuda::wait_for_phase(r.full + r.now, r.parity);
        const uint8_t *const stage = r.stage();
        const weir_cuda::matrix weights = weir_cuda::matrix_of(
                                    stage + number * (kGroupOutputs / kPanel) * kPanelBytes
                                ),
                                inputs = weir_cuda::matrix_of(stage + SHAPE::kRunsAt);
        weir_cuda::fence_products();
#pragma unroll
        for (int k = 0; k < 4; k++)
            weir_cuda::multiply<IS_F16, SHAPE::kRows>(
                sums, weir_cuda::inputs_from(weights, k), weir_cuda::inputs_from(inputs, k),
                k > 0 || step > 0
            );
        weir_cuda::commit_products();
        if (step > 0) {
            weir_cuda::wait_for_products<1>();
            release();
        }
        before = r.now;
        r.advance();
    }
    weir_cuda::wait_for_products<0>();
    release();
}

template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void multiply_stages(
    const group &g, const plan &w, ring<SHAPE> r, unsigned *shared_count
)
{
    float sums[SHAPE::kSums] = {}, total[SHAPE::kSums];
    walk<SHAPE> at;
    for (at.open(w); at.next(g, w);) {
        const product &p = g.p[at.own];
#pragma unroll
        for (int i = 0; i < SHAPE::kSums; i++) total[i] = 0;
        for (int slice = at.first; slice < at.last; slice++) {
            const int64_t left = p.steps - slice * p.slice_steps;
            multiply_slice<IS_F16, SHAPE>(
                sums, r, (int)(left < p.slice_steps ? left : p.slice_steps)
            );
            if (!SHAPE::kDivides || at.is_whole) {
#pragma unroll
                for (int i = 0; i < SHAPE::kSums; i++) total[i] += sums[i];
                continue;
            }
            float4 *const to = partial_of(w, at, slice);
#pragma unroll
            for (int i = 0; i < SHAPE::kSums / 4; i++)
                __stcg(
                    to + i * SHAPE::kGroups * kWarpgroup,
                    make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3])
                );
        }
        if (SHAPE::kDivides && !at.is_whole && !join(total, w, at, shared_count)) continue;
        put_sums<SHAPE>(p, at, total);
    }
}

#endif

template <bool IS_F16, class SHAPE>
__global__ void __launch_bounds__(SHAPE::kThreads, 1)
    many(const __grid_constant__ group g, const __grid_constant__ plan w)
{
#ifdef WEIR_HAS_WARPGROUPS
    WEIR_SWIZZLED_SHARED(uint8_t, shared);
    ring<SHAPE> r;
    r.open(shared);
    if (threadIdx.x == 0) r.begin();
    weir_cuda::begin_kernel();
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        weir_cuda::give_registers<SHAPE::kCopyRegisters>();
        copy_stages<IS_F16, SHAPE>(g, w, r);
    } else {
        weir_cuda::take_registers<SHAPE::kSumRegisters>();
        multiply_stages<IS_F16, SHAPE>(
            g, w, r, reinterpret_cast<unsigned *>(shared + SHAPE::kJoinedAt)
        );
    }
#endif
}

/* ---- the launch ------------------------------------------------------------------------------ */
using divided = shape<kDividedOutputs / kGroupOutputs, kRunRows, 6, true>;
using square = shape<2, 128, 6, false>;
using wide = shape<2, 192, 5, false>;
using tall = shape<3, 128, 5, false>;

template <class SHAPE> plan plan_of(group &g, const call &c)
{
    const unsigned across = (unsigned)tiles_of(g.p[0].n_rows, SHAPE::kRows);
    return { share_blocks(g, SHAPE::kOutputs) * across, across, (unsigned)g.p[0].n_slices,
             c.joint_sums };
}
inline unsigned blocks_of_device()
{
    const auto most = (unsigned)weir_cuda::device_facts().multiprocessors;
    return most < (unsigned)kMostBlocks ? most : (unsigned)kMostBlocks;
}
/* Time, as measured on an H200: a stage of a place takes `stage` ns. */
template <class SHAPE> double cost_of(group &g, const call &c, double stage)
{
    const plan w = plan_of<SHAPE>(g, c);
    const double blocks = blocks_of_device(), rounds = w.n_places / blocks;
    if (!SHAPE::kDivides)
        return (double)(int64_t)(rounds + 1 - 1e-9) * (double)g.p[0].steps * stage;
    return (rounds * (double)g.p[0].steps + 4 * (double)g.p[0].slice_steps) * stage;
}

template <bool IS_F16, class SHAPE> void launch(group &g, const call &c)
{
    const plan w = plan_of<SHAPE>(g, c);
    const unsigned n = SHAPE::kDivides ? w.n_places * w.n_slices : w.n_places,
                   blocks = n < blocks_of_device() ? n : blocks_of_device();
    const auto kernel = many<IS_F16, SHAPE>;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHAPE::kBytes);
    WEIR_LAUNCH(kernel, blocks, SHAPE::kThreads, SHAPE::kBytes, c.stream, g, w);
}

template <bool IS_F16> void launch_cheapest(group &g, const call &c)
{
    void (*const launches[])(group &, const call &) = { launch<IS_F16, wide>, launch<IS_F16, tall>,
                                                        launch<IS_F16, square>,
                                                        launch<IS_F16, divided> };
    const double costs[] = { cost_of<wide>(g, c, 630), cost_of<tall>(g, c, 710),
                             cost_of<square>(g, c, 530), cost_of<divided>(g, c, 440) };
    int best = 0;
    for (int i = 1; i < (g.p[0].n_rows > kMostFewRows ? 3 : 4); i++)
        if (costs[i] < costs[best]) best = i;
    launches[best](g, c);
}

} // namespace weir_cuda_matmul_warpgroup

namespace weir_cuda_matmul {

bool multiply_by_warpgroups(group &g, weir_dtype kept, const call &c)
{
    using namespace weir_cuda_matmul_warpgroup;
    if (weir_cuda::device_facts().major != 9 || g.p[0].n_rows <= 32) return false;
    if (kept == WEIR_F16)
        launch_cheapest<true>(g, c);
    else
        launch_cheapest<false>(g, c);
    return true;
}

} // namespace weir_cuda_matmul
