/* kernels/cuda/attention_split.h - what narrow and wide blocks share when they walk a split: its
 * range of positions, masks, the online softmax. */
#pragma once
#include "kernels/cuda/attention_rows.h"

namespace weir_cuda_attention {

/* What a block reads of a split: tiles from `begin`, up to the last position that one of its rows
 * sees. first_own, last_own: positions of its first and last row. */
struct Range {
    int32_t begin, end, first_own, last_own;
    int n_tiles;
};
__device__ __forceinline__ Range range_of(const Call &call, const Unit &unit, int32_t split)
{
    Range range = {};
    range.first_own = unit.segment.n_past + unit.first_row / call.group;
    range.last_own = unit.segment.n_past + (unit.first_row + unit.n_rows - 1) / call.group;
    const int32_t seen =
        range.first_own >= call.window ? (range.first_own - call.window + 1) / kTile * kTile : 0;
    range.begin = max(seen, split * kSplit);
    range.end = min(range.last_own, split * kSplit + kSplit - 1) + 1;
    range.n_tiles = range.end > range.begin ? (range.end - range.begin + kTile - 1) / kTile : 0;
    return range;
}

/* Copies the split's part of the page table to shared memory; a barrier must follow. The table is
 * in host memory, which no kernel writes. */
__device__ __forceinline__ void load_pages(
    char *shared, int pages, const Unit &unit, int32_t split, const Range &range
)
{
    if (threadIdx.x >= kSplit / kPage) return;
    const int32_t page = split * (kSplit / kPage) + (int32_t)threadIdx.x;
    if (page >= range.begin / kPage && page * kPage < range.end)
        reinterpret_cast<const char **>(shared + pages)[threadIdx.x] = unit.pages[page];
}

template <class S>
__device__ __forceinline__ void clear_split(
    Rows &rows, float (&value)[S::kPairs][2][4], float (&sum)[4]
)
{
#pragma unroll
    for (int h = 0; h < 2; h++) rows.maximum[h] = kNothing;
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = 0.0f;
#pragma unroll
    for (int n = 0; n < S::kPairs; n++)
#pragma unroll
        for (int i = 0; i < 8; i++) value[n][i / 4][i % 4] = 0.0f;
}

/* Scales row h's scores to base 2, masks what it does not see, and returns the maximum. `first`:
 * position of the first of the TILES. Products are rounded before the maximum is subtracted: fused
 * in one kernel only, they would have other bits there. */
template <int TILES>
__device__ __forceinline__ float mask_scores(
    float (&score)[TILES][4], const Rows &rows, int h, int32_t first, const Range &range,
    int32_t window, const Lane &lane
)
{
    float highest = kNothing;
    if (first + TILES * 8 - 1 <= range.first_own && first > range.last_own - window) {
        /* All rows see all positions. */
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = h * 2; i < h * 2 + 2; i++) {
                score[n][i] = __fmul_rn(score[n][i], rows.factor[h]);
                highest = fmaxf(highest, score[n][i]);
            }
    } else {
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int32_t at = first + n * 8 + lane.t * 2 + i;
                const bool seen = at <= rows.last[h] && at > rows.last[h] - window;
                score[n][h * 2 + i] =
                    seen ? __fmul_rn(score[n][h * 2 + i], rows.factor[h]) : kNothing;
                highest = fmaxf(highest, score[n][h * 2 + i]);
            }
    }
    return highest_of_four(highest);
}

/* Row h's scores become weights under the new maximum, which its sums decay to. */
template <class S, int TILES>
__device__ __forceinline__ void weigh(
    float (&score)[TILES][4], float (&value)[S::kPairs][2][4], float (&sum)[4], Rows &rows,
    float maximum, int h
)
{
    const float decay = exp2f(rows.maximum[h] - maximum);
    rows.maximum[h] = maximum;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = h * 2; i < h * 2 + 2; i++)
            score[n][i] =
                score[n][i] == kNothing ? 0.0f : exp2f(score[n][i] - maximum) * S::Parts::kWeights;
    sum[h * 2] *= decay, sum[h * 2 + 1] *= decay;
#pragma unroll
    for (int n = 0; n < S::kPairs; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) value[n][i / 2][h * 2 + i % 2] *= decay;
}

/* Takes the scales of weights and of values back. */
template <class S>
__device__ __forceinline__ void scale_back(
    float (&value)[S::kPairs][2][4], float (&sum)[4], const int (&unit_of_values)[2]
)
{
    const float back = 1.0f / S::Parts::kWeights,
                value_back[2] = { back * __uint_as_float((uint32_t)(127 + unit_of_values[0]) << 23),
                                  back *
                                      __uint_as_float((uint32_t)(127 + unit_of_values[1]) << 23) };
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] *= back;
#pragma unroll
    for (int n = 0; n < S::kPairs; n++)
#pragma unroll
        for (int i = 0; i < 8; i++) value[n][i / 4][i % 4] *= value_back[i % 4 / 2];
}

} // namespace weir_cuda_attention
