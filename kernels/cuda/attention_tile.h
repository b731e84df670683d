/* kernels/cuda/attention_tile.h - one tile of 32 positions with the rows of a block: the layout of
 * shared memory, copies into it, scores, values.
 *
 * Four warps: R rows of tensor tiles (16 query rows each) by C columns, R * C = 4. The columns
 * share the positions of the scores and the dims of the values. Every element is one chain of
 * products in the order of dims or positions, parts innermost, so narrow and wide blocks give the
 * same bits.
 *
 * Shared memory: queries [part][row][dims, to 32], K [stage][dim][32 positions], V
 * [stage][position][dims, to 16]. Rows of queries and V are padded by 16 bytes, and the four
 * 16-byte pieces of a K row are swizzled by bits 1 and 2 of the dim, so that ldmatrix reads all
 * banks at once. Coded formats are copied as they are (`raw`, double) and expanded to 16 bits by
 * all threads. */
#pragma once
#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/page_formats.h"

namespace weir_cuda_attention {

constexpr int kThreads = 128, kGroup = WEIR_KV_GROUP,
              kWeightStride = 40; /* floats of a row of weights: no two rows of 4 share banks */

template <class Format_, int VALUE_, int R_, int C_, int STAGES_> struct Shape {
    typedef Format_ Format;
    typedef typename Format::Parts Parts;
    static constexpr int kValue = VALUE_, kR = R_, kC = C_, kStages = STAGES_,
                         kParts = Parts::kParts, kPlanes = Format::kPlanes;
    static constexpr int kRows = 16 * R_, kTiles = 4 / C_,
                         kPairs = VALUE_ / 16 /
                                  C_; /* per warp: tiles of 8 positions, 16 dims of values */
    static_assert(R_ * C_ * kWarp == kThreads, "four warps");
};

/* Byte offsets in shared memory; raw_k_codes, raw_v_codes: offsets of the scales of raw tiles. */
struct Memory {
    int q_part, q_row, v_row, k_stage, v_stage, raw_k_codes, raw_v_codes, raw_k_stage, raw_v_stage;
    int q, k, v, raw_k, raw_v, weights, maxima, factors, pages, codebook, bytes;
};

template <class S> __host__ __device__ inline Memory memory_of(int64_t key_dim, int64_t value_dim)
{
    typedef typename S::Format Format;
    const int keys = (int)(key_dim + 31) / 32 * 32, values = (int)(value_dim + 15) / 16 * 16;
    Memory m = {};
    m.q_row = keys * 2 + 16, m.q_part = m.q_row * S::kRows;
    m.v_row = values * 2 + 16;
    m.k_stage = keys * kTile * 2, m.v_stage = m.v_row * kTile;
    if (Format::kIsCoded) {
        m.raw_k_codes = keys * kTile * Format::kBits / 8,
        m.raw_v_codes = values * kTile * Format::kBits / 8;
        m.raw_k_stage = m.raw_k_codes + (Format::kHasCodebook ? kTile : keys) * 2,
        m.raw_v_stage = m.raw_v_codes + (Format::kHasCodebook ? kTile : values) * 2;
    }
    m.k = m.q + m.q_part * S::kParts;
    m.v = m.k + m.k_stage * (Format::kIsCoded ? S::kPlanes : S::kStages);
    m.raw_k = m.v + m.v_stage * (Format::kIsCoded ? S::kPlanes : S::kStages);
    m.raw_v = m.raw_k + m.raw_k_stage * S::kStages;
    m.weights = m.raw_v + m.raw_v_stage * S::kStages;
    m.maxima = m.weights + (S::kC > 1 ? S::kRows * kWeightStride * 4 : 0);
    m.factors = m.maxima + S::kRows * S::kC * 4;
    m.pages = m.factors + S::kRows * 4;
    m.codebook = m.pages + kSplit / kPage * 8;
    m.bytes = m.codebook + (Format::kHasCodebook ? 64 : 0);
    return m;
}

/* ---- copies ---------------------------------------------------------------------------------- */
__device__ __forceinline__ const char *page_at(
    const char *shared, const Memory &m, int32_t position
)
{
    return reinterpret_cast<const char *const *>(shared + m.pages)[position % kSplit / kPage];
}

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

/* ---- codes to 16 bits ------------------------------------------------------------------------ */
/* Byte i of two words, as a pair of bf16. */
__device__ __forceinline__ uint32_t bf16_pair(uint32_t low, uint32_t high, int i)
{
    const float x = (float)(int8_t)(low >> 8 * i), y = (float)(int8_t)(high >> 8 * i);
    return __float_as_uint(x) >> 16 | (__float_as_uint(y) & 0xFFFF0000u);
}

template <class S>
__device__ __forceinline__ void expand_byte_keys(
    char *shared, const Memory &m, int key_dim, int stage
)
{
    const char *const raw = shared + m.raw_k + stage * m.raw_k_stage;
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < key_dim / 4 * (kTile / 2); i += kThreads) {
        const int word = i / (kTile / 2), pair = i % (kTile / 2);
        const uint2 codes = *reinterpret_cast<const uint2 *>(raw + word * kTile * 4 + pair * 8);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int d = word * 4 + b;
            *reinterpret_cast<uint32_t *>(
                shared + m.k + d * 64 + ((pair / 4) ^ (d / 2 & 3)) * 16 + pair % 4 * 4
            ) = bf16_pair(codes.x, codes.y, b);
        }
    }
}

template <class S>
__device__ __forceinline__ void expand_byte_values(
    char *shared, const Memory &m, int value_dim, int stage
)
{
    const char *const raw = shared + m.raw_v + stage * m.raw_v_stage;
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < kTile * S::kValue / 4; i += kThreads) {
        const int t = i / (S::kValue / 4), d = i % (S::kValue / 4) * 4;
        if (d >= value_dim) continue;
        const uint32_t codes = *reinterpret_cast<const uint32_t *>(raw + t * value_dim + d);
        *reinterpret_cast<uint2 *>(shared + m.v + t * m.v_row + d * 2) =
            make_uint2(bf16_pair(codes, codes >> 8, 0), bf16_pair(codes, codes >> 8, 2));
    }
}

/* The maximum over the four lanes that share a row of a fragment. */
__device__ __forceinline__ float highest_of_four(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* A thread's place: its warp's row and column, its row and pair of columns in a fragment, and the
 * matrix row that it addresses for ldmatrix. */
struct Lane {
    int r, c, g, t, matrix, row;
};

template <class S> __device__ __forceinline__ Lane lane_of()
{
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp;
    return { warp / S::kC, warp % S::kC, lane / 4, lane % 4, lane / 8, lane % 8 };
}

/* Products of parts and planes that are large enough to change an f32 sum. */
template <class S> __host__ __device__ constexpr bool counts(int part, int plane)
{
    return plane == 0 || part + plane < S::kParts;
}

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
#pragma unroll
    for (int n = 0; n < S::kTiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
#pragma unroll 1
    for (int first = 0; first < key_dim; first += kGroup) {
        float sum[S::kTiles][4];
        /* One tile of positions, 32 dims. */
        uint32_t both[S::kPlanes][4];
#pragma unroll
        for (int n = 0; n < S::kTiles; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] = kGrouped ? 0.0f : score[n][i];
#pragma unroll
        for (int plane = 0; S::kTiles == 1 && plane < S::kPlanes; plane++)
            weir_cuda::load_matrices_transposed(
                both[plane], k + plane * m.k_stage + (first + lane.matrix * 8 + lane.row) * 64 +
                                 (lane.c ^ (lane.row / 2)) * 16
            );
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t query[S::kParts][4], keys[S::kPlanes][S::kTiles][2];
            const int d = first + half * 16;
#pragma unroll
            for (int part = 0; part < S::kParts; part++)
                weir_cuda::load_matrices(query[part], q + part * m.q_part + d * 2);
#pragma unroll
            for (int plane = 0; plane < S::kPlanes; plane++) {
                if (S::kTiles == 1)
                    keys[plane][0][0] = both[plane][half * 2],
                    keys[plane][0][1] = both[plane][half * 2 + 1];
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
                score[n][i] =
                    kGrouped ? fmaf(sum[n][i], i % 2 ? scale.y : scale.x, score[n][i]) : sum[n][i];
        }
    }
#pragma unroll
    for (int n = 0; S::Format::kHasCodebook && n < S::kTiles; n++) {
        const float2 scale = __half22float2(*reinterpret_cast<const __half2 *>(scales + n * 16));
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] *= i % 2 ? scale.y : scale.x;
    }
}

/* ---- values ---------------------------------------------------------------------------------- */
/* The weights of 16 positions as parts of a fragment. `scales` (may be NULL): scales of V's
 * positions, and another factor per row. */
template <class S>
__device__ __forceinline__ void split_weights(
    uint32_t (&parts)[S::kParts][4], const float (&weight)[4][4], int half, const __half *scales,
    int stride, const float (&times)[2], const Lane &lane
)
{
#pragma unroll
    for (int i = 0; i < 4;
         i++) { /* register i: rows g (+ 8 if odd), positions of tile half * 2 + i / 2 */
        float x = weight[half * 2 + i / 2][i % 2 * 2], y = weight[half * 2 + i / 2][i % 2 * 2 + 1];
        uint32_t out[S::kParts];
        if (scales) {
            const int token = (half * 2 + i / 2) * 8 + lane.t * 2;
            x *= __half2float(scales[token * stride]),
                y *= __half2float(scales[(token + 1) * stride]);
            if (S::Format::kHasCodebook) x *= times[i % 2], y *= times[i % 2];
        }
        split_pair<typename S::Parts>(x, y, out);
#pragma unroll
        for (int part = 0; part < S::kParts; part++) parts[part][i] = out[part];
    }
}

/* Adds weight V to value and weight to sum, for the warp's pairs of 8 dims: pair i has dims (i * C
 * + column) * 16. Values of a codebook are in units of 2^unit of their row, chosen for each tile so
 * that weights times scales fill f16's range; masked positions do not affect it. */
template <class S>
__device__ __forceinline__ void add_values(
    float (&value)[S::kPairs][2][4], float (&sum)[4], int (&unit)[2], const float (&weight)[4][4],
    const char *shared, const Memory &m, int value_dim, int stage, const Lane &lane
)
{
    constexpr bool kGrouped = S::Format::kIsCoded && !S::Format::kHasCodebook;
    const char *const v = shared + m.v + (S::Format::kIsCoded ? 0 : stage * m.v_stage) +
                          (lane.matrix % 2 * 8 + lane.row) * m.v_row + lane.matrix / 2 * 16;
    const __half *const scales =
        reinterpret_cast<const __half *>(shared + m.raw_v + stage * m.raw_v_stage + m.raw_v_codes);
    const uint32_t ones[2] = { S::Parts::kOnes, S::Parts::kOnes };
    float times[2] = { 1.0f, 1.0f };
#pragma unroll
    for (int h = 0; S::Format::kHasCodebook && h < 2; h++) {
        float largest = 0.0f;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const float2 scale =
                __half22float2(*reinterpret_cast<const __half2 *>(scales + n * 8 + lane.t * 2));
            largest =
                fmaxf(largest, fmaxf(weight[n][h * 2] * scale.x, weight[n][h * 2 + 1] * scale.y));
        }
        largest = highest_of_four(largest);
        const int next =
            largest > 0.0f ? max((int)(__float_as_uint(largest) >> 23) - 126, -40) - 15 : unit[h];
        const float from = __uint_as_float((uint32_t)(127 + unit[h] - next) << 23);
        times[h] = __uint_as_float((uint32_t)(127 - next) << 23);
        unit[h] = next;
#pragma unroll
        for (int n = 0; n < S::kPairs; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) value[n][i / 2][h * 2 + i % 2] *= from;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t parts[S::kParts][4];
        split_weights<S>(parts, weight, half, nullptr, 0, times, lane);
#pragma unroll
        for (int part = 0; part < S::kParts; part++) S::Parts::multiply(sum, parts[part], ones);
        if (S::Format::kHasCodebook) split_weights<S>(parts, weight, half, scales, 1, times, lane);
#pragma unroll
        for (int i = 0; i < S::kPairs; i++) {
            const int d = (i * S::kC + lane.c) * 16;
            if (d >= value_dim) break;
            if (kGrouped)
                split_weights<S>(
                    parts, weight, half, scales + d / kGroup, value_dim / kGroup, times, lane
                );
            uint32_t two[S::kPlanes][4];
#pragma unroll
            for (int plane = 0; plane < S::kPlanes; plane++)
                weir_cuda::load_matrices_transposed(
                    two[plane], v + plane * m.v_stage + half * 16 * m.v_row + d * 2
                );
#pragma unroll
            for (int at = 0; at < S::kParts * S::kPlanes; at++) {
                const int part = at / S::kPlanes, plane = at % S::kPlanes;
                if (!counts<S>(part, plane)) continue;
                const uint32_t low[2] = { two[plane][0], two[plane][1] },
                               high[2] = { two[plane][2], two[plane][3] };
                S::Parts::multiply(value[i][0], parts[part], low);
                S::Parts::multiply(value[i][1], parts[part], high);
            }
        }
    }
}

} // namespace weir_cuda_attention
