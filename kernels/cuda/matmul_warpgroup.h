/* kernels/cuda/matmul_warpgroup.h - how kernels/cuda/matmul_warpgroup.cu divides a product: shapes,
 * the ring of stages, which places and slices a block computes. */
#pragma once
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/warpgroup.h"

namespace weir_cuda_matmul_warpgroup {

using namespace weir_cuda_matmul;

constexpr int kWarpgroup = 128, kGroupOutputs = 64, kGroupWarps = kWarpgroup / kWarp,
              kTileBytes = kTile * WEIR_CUDA_HALF_ROW, kRunBytes = (int)kRun * kTileBytes,
              kPanelBytes = WEIR_CUDA_HALF_STEP, kRunRows = (int)kRun * kTile,
              kLeastManyRows = 32; /* fewer: cuda.matmul */

/* GROUPS warpgroups that multiply, ROWS of the batch in PARTS products, a ring of STAGES. */
template <int GROUPS, int ROWS, int PARTS, int STAGES, bool DIVIDES> struct shape {
    static constexpr int kGroups = GROUPS, kRows = ROWS, kParts = PARTS, kStages = STAGES,
                         kOutputs = GROUPS * kGroupOutputs, kPanels = kOutputs / kPanel,
                         kRuns = ROWS / kRunRows, kThreads = kWarpgroup * (GROUPS + 1),
                         kPartRows = ROWS / PARTS,
                         kSums = kPartRows / 2; /* of a thread, of a part */
    using sums = float[PARTS][kSums];
    static constexpr bool kDivides = DIVIDES;
    static constexpr int kRunsAt = kPanels * kPanelBytes, kStageBytes = kRunsAt + kRuns * kRunBytes,
                         kPhasesAt = STAGES * kStageBytes,
                         kJoinedAt = kPhasesAt + 2 * STAGES * (int)sizeof(uint64_t),
                         kBytes = kJoinedAt + 16;
    static_assert(ROWS % kRunRows == 0 && kPanels + kRuns <= kWarp, "a copy for each lane");
    static_assert(kBytes <= 227 << 10, "sm_90 has no more shared memory for a block");
    /* Of the copying warp and of the others: 65536 together. */
    static constexpr int kCopyRegisters = GROUPS == 3 ? 32 : 24,
                         kSumRegisters = GROUPS == 3 ? 160 : 240;
    static constexpr int64_t kPartial = kOutputs * ROWS / 4; /* float4 of a slice of a place */
};

/* What a launch computes: n_places, `across` of them along the rows; partial: sums of slices. */
struct plan {
    unsigned n_places, across, n_slices;
    float4 *partial; /* [places or blocks][slices][sums / 4][threads] */
};

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

#endif

} // namespace weir_cuda_matmul_warpgroup
