/* kernels/cuda/attention_rows.h - the share of a block: its segment and rows, with its queries in
 * shared memory. */
#pragma once
#include "kernels/cuda/attention_turbo.h"

namespace weir_cuda_attention {

/* A block's share of a segment. */
struct Unit {
    Segment segment;
    const char *const *pages;
    float *split_partials; /* of the segment; used if splits are separate */
    int32_t table, head, n_query_heads; /* KV head of the range and of the op; of the segment */
    int32_t first_row, n_rows, first_split, n_splits, plan_first_split, plan_n_splits;
    bool is_apart;
};

template <class S> __device__ __forceinline__ Unit unit_of(const Call &call)
{
    int64_t u = blockIdx.x;
    Unit unit = {};
    const int64_t s =
        find_segment(call, S::kR == 1 ? Share::Narrow : Share::Wide, &u, &unit.split_partials);
    unit.segment = call.given[s];
    const Plan plan = plan_of(call, unit.segment);
    const int32_t n_apart = plan.is_apart ? plan.n_splits : 1;
    unit.table = (int32_t)(u % plan.n_heads);
    unit.head = unit.segment.first_head + unit.table;
    unit.pages = unit.segment.pages + (int64_t)unit.table * unit.segment.page_stride;
    unit.n_query_heads = plan.n_heads * call.group;
    const int32_t rest = (int32_t)(u / plan.n_heads),
                  block = plan.n_blocks - 1 -
                          rest / n_apart; /* the last rows see most, so they start first */
    unit.first_row = block * S::kRows;
    unit.n_rows = min(plan.n_rows - unit.first_row, S::kRows);
    unit.is_apart = plan.is_apart;
    unit.plan_first_split = plan.first_split, unit.plan_n_splits = plan.n_splits;
    const int32_t last =
        (unit.segment.n_past + (unit.first_row + unit.n_rows - 1) / call.group) / kSplit;
    unit.first_split = plan.first_split + (plan.is_apart ? rest % n_apart : 0);
    unit.n_splits = plan.is_apart ? 1 : min(plan.n_splits, last - plan.first_split + 1);
    return unit;
}

/* A thread's two query rows, g and g + 8 of its warp's row of tiles. */
struct Rows {
    int32_t last[2]; /* own position; -1: no row */
    float factor[2], maximum[2];
    float total_maximum[2], total_sum[2];
};

/* ---- queries --------------------------------------------------------------------------------- */
/* Loads the block's rows as parts, and the factors of their scores; missing rows and dims are
 * zero. */
template <class S>
__device__ __forceinline__ void stage_queries(
    char *shared, const Memory &m, const Call &call, const Unit &unit
)
{
    const int key_dim = (int)call.args.key_dim, lane = (int)threadIdx.x % kWarp;
    for (int i = (int)threadIdx.x / kWarp; i < S::kRows; i += kThreads / kWarp) {
        const bool there = i < unit.n_rows;
        const int32_t row = there ? unit.first_row + i : unit.first_row,
                      token = unit.segment.first_row + row / call.group;
        const float *q = call.args.q + token * call.args.q_stride +
                         (unit.head * call.group + row % call.group) * call.args.q_head_stride;
        float x[kRotated], up = 1.0f, down = 1.0f, largest = 0.0f;
#pragma unroll
        for (int n = 0; n < kRotated; n++)
            x[n] = there && n * kWarp + lane < key_dim ? q[n * kWarp + lane] : 0.0f;
        if constexpr (S::Format::kHasCodebook) {
            flip(x, call.k_signs);
            rotate(x, key_dim, call.k_orthonormal);
        }
        if constexpr (S::Parts::kQueryExponent > 0) {
#pragma unroll
            for (int n = 0; n < kRotated; n++) largest = fmaxf(largest, fabsf(x[n]));
#pragma unroll
            for (int by = kWarp / 2; by > 0; by /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, by));
            const int exponent =
                min(S::Parts::kQueryExponent + 126 - (int)(__float_as_uint(largest) >> 23), 100);
            up = __uint_as_float((uint32_t)(127 + exponent) << 23),
            down = __uint_as_float((uint32_t)(127 - exponent) << 23);
        }
#pragma unroll
        for (int n = 0; n < kRotated; n++) {
            if (n * kWarp >= key_dim) break;
            float rest = x[n] * up;
#pragma unroll
            for (int part = 0; part < S::kParts; part++) {
                uint16_t *const to =
                    reinterpret_cast<uint16_t *>(shared + m.q + part * m.q_part + i * m.q_row) +
                    n * kWarp + lane;
                rest -= S::Parts::split_off(rest, to);
            }
        }
        if (lane == 0) reinterpret_cast<float *>(shared + m.factors)[i] = call.scale * down;
    }
}

} // namespace weir_cuda_attention
