/* kernels/cuda/attention_wide.h - 32 or 64 query rows of a KV head: prefill. The block's rows share
 * each tile of K and V; its four warps copy and expand them together. */
#pragma once
#include "kernels/cuda/attention_split.h"

namespace weir_cuda_attention {

/* ---- copies ---------------------------------------------------------------------------------- */
__device__ __forceinline__ void copy_run(char *to, const char *from, int bytes)
{
#pragma unroll 1
    for (int at = (int)threadIdx.x * 16; at < bytes; at += kThreads * 16)
        weir_cuda::copy_async(to + at, from + at);
}

template <class S>
__device__ __forceinline__ void copy_keys(
    char *shared, const Memory &m, const Call &call, int32_t position, int stage
)
{
    const int64_t tile = position % kPage / kTile;
    const char *const part = page_at(shared, m, position), *const codes =
                                                               part + call.k_layout.codes +
                                                               tile * call.k_layout.codes_step;
    if (S::Format::kIsCoded) {
        char *const to = shared + m.raw_k + stage * m.raw_k_stage;
        copy_run(to, codes, m.raw_k_codes);
        copy_run(
            to + m.raw_k_codes, part + call.k_layout.scales + tile * call.k_layout.scales_step,
            m.raw_k_stage - m.raw_k_codes
        );
        return;
    }
    char *const to = shared + m.k + stage * m.k_stage;
    for (int i = (int)threadIdx.x; i < (int)call.args.key_dim * 4; i += kThreads)
        weir_cuda::copy_async(to + i / 4 * 64 + ((i % 4) ^ (i / 8 & 3)) * 16, codes + i * 16);
}

template <class S>
__device__ __forceinline__ void copy_values(
    char *shared, const Memory &m, const Call &call, int32_t position, int stage
)
{
    const int64_t token = position % kPage;
    const char *const part = page_at(shared, m, position) + call.v_part,
                      *const codes = part + call.v_layout.codes + token * call.v_layout.codes_step;
    if (S::Format::kIsCoded) {
        char *const to = shared + m.raw_v + stage * m.raw_v_stage;
        copy_run(to, codes, m.raw_v_codes);
        copy_run(
            to + m.raw_v_codes, part + call.v_layout.scales + token * call.v_layout.scales_step,
            m.raw_v_stage - m.raw_v_codes
        );
        return;
    }
    char *const to = shared + m.v + stage * m.v_stage;
    const int row = (int)call.args.value_dim * 2;
    for (int i = (int)threadIdx.x; i < kTile * S::kValue / 8; i += kThreads) {
        const int t = i / (S::kValue / 8), at = i % (S::kValue / 8) * 16;
        if (at < row) weir_cuda::copy_async(to + t * m.v_row + at, codes + t * row + at);
    }
}

/* Clears dims past the last of K and V, which copies do not write. */
template <class S>
__device__ __forceinline__ void clear_ends(
    char *shared, const Memory &m, int key_dim, int value_dim
)
{
    if constexpr (!S::Format::kIsCoded) {
        for (int stage = 0; stage < S::kStages; stage++) {
            for (int at = key_dim * 64 + (int)threadIdx.x * 4; at < m.k_stage; at += kThreads * 4)
                *reinterpret_cast<uint32_t *>(shared + m.k + stage * m.k_stage + at) = 0;
            if (value_dim % 16 == 0) continue;
            for (int t = (int)threadIdx.x; t < kTile; t += kThreads)
                *reinterpret_cast<uint4 *>(
                    shared + m.v + stage * m.v_stage + t * m.v_row + value_dim * 2
                ) = make_uint4(0, 0, 0, 0);
        }
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* q . K of the warp's tiles of 8 positions, without the row's factor. */
template <class S>
__device__ __forceinline__ void score_tile(
    float (&score)[S::kTiles][4], const char *shared, const Memory &m, int key_dim, int stage,
    const Lane &lane
)
{
    /* 32 dims of a position share a scale. */
    constexpr bool kGrouped = S::Format::kIsCoded && !S::Format::kHasCodebook;
    const char *const k = shared + m.k + (S::Format::kIsCoded ? 0 : stage * m.k_stage);
    const char *const q = shared + m.q + (lane.r * 16 + lane.matrix % 2 * 8 + lane.row) * m.q_row +
                          lane.matrix / 2 * 16;
    const char *const scales = shared + m.raw_k + stage * m.raw_k_stage + m.raw_k_codes +
                               (lane.c * S::kTiles * 8 + lane.t * 2) * 2;
    float chunk[S::kTiles][4];
#pragma unroll
    for (int n = 0; n < S::kTiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] = chunk[n][i] = 0.0f;
#pragma unroll 1
    for (int first = 0; first < key_dim; first += kGroup) {
        float sum[S::kTiles][4];
#pragma unroll
        for (int n = 0; n < S::kTiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] = kGrouped ? 0.0f : chunk[n][i];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t query[S::kParts][4], keys[S::kPlanes][S::kTiles][2];
            const int d = first + half * 16;
#pragma unroll
            for (int part = 0; part < S::kParts; part++)
                weir_cuda::load_matrices(query[part], q + part * m.q_part + d * 2);
#pragma unroll
            for (int plane = 0; plane < S::kPlanes; plane++) {
#pragma unroll
                for (int n = 0; n + 1 < S::kTiles; n += 2) {
                    uint32_t two[4];
                    const int tile = lane.c * S::kTiles + n + lane.matrix / 2;
                    weir_cuda::load_matrices_transposed(
                        two, k + plane * m.k_stage + (d + lane.matrix % 2 * 8 + lane.row) * 64 +
                                 (tile ^ (lane.row / 2)) * 16
                    );
                    keys[plane][n][0] = two[0], keys[plane][n][1] = two[1],
                    keys[plane][n + 1][0] = two[2], keys[plane][n + 1][1] = two[3];
                }
            }
#pragma unroll
            for (int i = 0; i < S::kParts * S::kPlanes; i++)
#pragma unroll
                for (int n = 0; n < S::kTiles; n++)
                    if (counts<S>(i / S::kPlanes, i % S::kPlanes))
                        S::Parts::multiply(sum[n], query[i / S::kPlanes], keys[i % S::kPlanes][n]);
        }
#pragma unroll
        for (int n = 0; n < S::kTiles; n++) {
            const float2 scale =
                kGrouped
                    ? __half22float2(*reinterpret_cast<const __half2 *>(scales + first * 2 + n * 16)
                      )
                    : make_float2(1.0f, 1.0f);
#pragma unroll
            for (int i = 0; i < 4; i++)
                chunk[n][i] =
                    kGrouped ? fmaf(sum[n][i], i % 2 ? scale.y : scale.x, chunk[n][i]) : sum[n][i];
        }
        if ((first + kGroup) % S::kChunk != 0 && first + kGroup < key_dim) continue;
#pragma unroll
        for (int n = 0; n < S::kTiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) score[n][i] += chunk[n][i], chunk[n][i] = 0.0f;
    }
#pragma unroll
    for (int n = 0; S::Format::kHasCodebook && n < S::kTiles; n++) {
        const float2 scale = __half22float2(*reinterpret_cast<const __half2 *>(scales + n * 16));
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] *= i % 2 ? scale.y : scale.x;
    }
}

/* ---- splits ---------------------------------------------------------------------------------- */
/* Computes maximum, sum and value of each row over all tiles of a split that any of the block's
 * rows sees. */
template <class S>
__device__ __forceinline__ void walk_wide_split(
    char *shared, const Memory &m, const Call &call, const Range &range, Rows &rows,
    float (&value)[S::kPairs][2][4], float (&sum)[4], const Lane &lane
)
{
    const int key_dim = (int)call.args.key_dim, value_dim = (int)call.args.value_dim,
              n_tiles = range.n_tiles;
    const int32_t begin = range.begin;
    int unit_of_values[2] = { 0, 0 };
    float *const maxima = reinterpret_cast<float *>(shared + m.maxima),
                 *const weights = reinterpret_cast<float *>(shared + m.weights);
    const int own = lane.r * 16 + lane.g;
    __syncthreads(); /* the previous split is done, pages are loaded */
    clear_split<S>(rows, value, sum);
#pragma unroll
    for (int stage = 0; stage < S::kStages; stage++) {
        if (stage < n_tiles) copy_keys<S>(shared, m, call, begin + stage * kTile, stage);
        weir_cuda::copy_commit();
        if (stage + 1 == S::kStages) break;
        if (stage < n_tiles) copy_values<S>(shared, m, call, begin + stage * kTile, stage);
        weir_cuda::copy_commit();
    }
#pragma unroll 1
    for (int j = 0; j < n_tiles; j++) {
        const int32_t position = begin + j * kTile;
        const int stage = j % S::kStages, next = j + S::kStages - 1;
        float score[S::kTiles][4], weight[4][4], highest[2];
        weir_cuda::copy_wait<2 * S::kStages - 2>();
        __syncthreads(); /* K is loaded, V of the previous tile is done */
        if (next < n_tiles)
            copy_values<S>(shared, m, call, begin + next * kTile, next % S::kStages);
        weir_cuda::copy_commit();
        if (S::Format::kIsCoded) {
            expand_keys<S, Block>(
                shared + m.k, m.k_stage, shared + m.raw_k + stage * m.raw_k_stage,
                shared + m.codebook, key_dim
            );
            __syncthreads();
        }
        score_tile<S>(score, shared, m, key_dim, stage, lane);
#pragma unroll
        for (int h = 0; h < 2; h++)
            highest[h] = mask_scores<S::kTiles>(
                score, rows, h, position + lane.c * S::kTiles * 8, range, call.window, lane
            );
        if (S::kC > 1 && lane.t == 0)
            maxima[own * S::kC + lane.c] = highest[0],
                                 maxima[(own + 8) * S::kC + lane.c] = highest[1];
        __syncthreads(); /* K is done, the maxima are complete */
        if (j + S::kStages < n_tiles)
            copy_keys<S>(shared, m, call, begin + (j + S::kStages) * kTile, stage);
        weir_cuda::copy_commit();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float maximum = fmaxf(rows.maximum[h], highest[h]);
            if (S::kC > 1) {
#pragma unroll
                for (int c = 0; c < S::kC; c++)
                    maximum = fmaxf(maximum, maxima[(own + h * 8) * S::kC + c]);
            }
            weigh<S, S::kTiles>(score, value, sum, rows, maximum, h);
            if (S::kC > 1) {
#pragma unroll
                for (int n = 0; n < S::kTiles; n++)
                    *reinterpret_cast<float2 *>(
                        weights + (own + h * 8) * kWeightStride + (lane.c * S::kTiles + n) * 8 +
                        lane.t * 2
                    ) = make_float2(score[n][h * 2], score[n][h * 2 + 1]);
            }
        }
        weir_cuda::copy_wait<2 * S::kStages - 1>();
        __syncthreads(); /* V and the weights are complete */
        if (S::Format::kIsCoded) {
            expand_values<S, Block, S::kValue>(
                shared + m.v, m, shared + m.raw_v + stage * m.raw_v_stage,
                value_dim * S::Format::kBits / 8, shared + m.codebook, value_dim
            );
            __syncthreads();
        }
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float2 pair =
                    S::kC == 1
                        ? make_float2(score[n % S::kTiles][h * 2], score[n % S::kTiles][h * 2 + 1])
                        : *reinterpret_cast<const float2 *>(
                              weights + (own + h * 8) * kWeightStride + n * 8 + lane.t * 2
                          );
                weight[n][h * 2] = pair.x, weight[n][h * 2 + 1] = pair.y;
            }
        add_values<S>(
            value, sum, unit_of_values, weight,
            shared + m.v + (S::Format::kIsCoded ? 0 : stage * m.v_stage), m,
            shared + m.raw_v + stage * m.raw_v_stage + m.raw_v_codes, value_dim, lane
        );
    }
    weir_cuda::copy_wait<0>();
    scale_back<S>(value, sum, unit_of_values);
}

} // namespace weir_cuda_attention
