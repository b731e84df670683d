/* kernels/cuda/attention_tile.h - one tile of 32 positions with the rows of a block: the layout of
 * shared memory, codes to 16 bits, values.
 *
 * Four warps: R rows of tensor tiles (16 query rows each) by C columns, R * C = 4. R is 1 in narrow
 * blocks. The columns of a wide block share the positions of the scores and the dims of the values.
 * A score is the sum of chains over chunks of dims, a value one chain over positions, parts
 * innermost, so narrow and wide blocks give the same bits.
 *
 * Shared memory: queries [part][row][dims, to 32], K [stage][dim][32 positions], V
 * [stage][position][dims, to 16]. Rows of queries and V are padded by 16 bytes, and the four
 * 16-byte pieces of a K row are swizzled by bits 1 and 2 of the dim, so that ldmatrix reads all
 * banks at once. Coded formats are copied as they are (`raw`, double) and then expanded to 16
 * bits. */
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
    /* Scores are sums over chunks of dims; a warp of a narrow block has one of K and V. */
    static constexpr int kChunk = VALUE_ / 4;
    static constexpr bool kIsNarrow = R_ == 1;
    static_assert(R_ * C_ * kWarp == kThreads, "four warps");

    /* The first dim of a warp's 16. */
    static __device__ __forceinline__ int dim_of(int pair, int column)
    {
        return (kIsNarrow ? column * kPairs + pair : pair * kC + column) * 16;
    }
};

/* Who expands a tile. */
struct Warp {
    static constexpr int kSize = kWarp;
};
struct Block {
    static constexpr int kSize = kThreads;
};

/* Byte offsets in shared memory; raw_k_codes, raw_v_codes: offsets of the scales of raw tiles. */
struct Memory {
    int q_part, q_row, v_row, k_stage, v_stage, raw_k_codes, raw_v_codes, raw_k_stage, raw_v_stage;
    int q, k, v, raw_k, raw_v, weights, maxima, factors, pages, codebook, bytes;
    int warp; /* narrow: between the warps' tiles; k to raw_v are those of the first */
};

/* Of a narrow block, whose expanded K and V take turns. */
template <class S> __host__ __device__ constexpr Memory narrow_memory()
{
    typedef typename S::Format Format;
    constexpr int kScores = 2 * 16 * kTile * 4 * 4; /* of two tiles and four chunks */
    Memory m = {};
    m.q_row = S::kValue * 2 + 16, m.q_part = m.q_row * S::kRows;
    m.factors = m.q_part * S::kParts > kScores ? m.q_part * S::kParts : kScores;
    m.pages = m.factors + S::kRows * 4;
    m.codebook = m.pages + kSplit / kPage * 8;
    m.k = m.codebook + (Format::kHasCodebook ? 64 : 0);
    m.v_row = S::kChunk * 2 + 16;
    m.k_stage = S::kChunk * kTile * 2, m.v_stage = m.v_row * kTile;
    if (Format::kIsCoded) {
        m.raw_k_codes = m.raw_v_codes = S::kChunk * kTile * Format::kBits / 8;
        m.raw_k_stage = m.raw_k_codes + (Format::kHasCodebook ? kTile : S::kChunk) * 2;
        m.raw_v_stage = m.raw_v_codes + (Format::kHasCodebook ? kTile : S::kValue) * 2;
        m.v = m.k;
        m.raw_k = m.k + (m.k_stage > m.v_stage ? m.k_stage : m.v_stage) * S::kPlanes;
    } else {
        m.v = m.k + m.k_stage * S::kStages;
        m.raw_k = m.v + m.v_stage * S::kStages;
    }
    m.raw_v = m.raw_k + m.raw_k_stage * S::kStages;
    m.warp = m.raw_v + m.raw_v_stage * S::kStages - m.k;
    m.bytes = m.k + m.warp * kThreads / kWarp;
    return m;
}

template <class S> __host__ __device__ inline Memory memory_of(int64_t key_dim, int64_t value_dim)
{
    typedef typename S::Format Format;
    if (S::kIsNarrow) return narrow_memory<S>();
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

__device__ __forceinline__ const char *page_at(
    const char *shared, const Memory &m, int32_t position
)
{
    return reinterpret_cast<const char *const *>(shared + m.pages)[position % kSplit / kPage];
}

/* ---- codes to 16 bits ------------------------------------------------------------------------ */
/* Byte i of two words, as a pair of bf16. */
__device__ __forceinline__ uint32_t bf16_pair(uint32_t low, uint32_t high, int i)
{
    const float x = (float)(int8_t)(low >> 8 * i), y = (float)(int8_t)(high >> 8 * i);
    return __float_as_uint(x) >> 16 | (__float_as_uint(y) & 0xFFFF0000u);
}

template <class Team>
__device__ __forceinline__ void expand_byte_keys(char *k, const char *raw, int key_dim)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x % Team::kSize; i < key_dim / 4 * (kTile / 2); i += Team::kSize) {
        const int word = i / (kTile / 2), pair = i % (kTile / 2);
        const uint2 codes = *reinterpret_cast<const uint2 *>(raw + word * kTile * 4 + pair * 8);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            const int d = word * 4 + b;
            *reinterpret_cast<uint32_t *>(
                k + d * 64 + ((pair / 4) ^ (d / 2 & 3)) * 16 + pair % 4 * 4
            ) = bf16_pair(codes.x, codes.y, b);
        }
    }
}

/* DIMS: at most, of a row; raw_row: its bytes. */
template <class Team, int DIMS>
__device__ __forceinline__ void expand_byte_values(
    char *v, int v_row, const char *raw, int raw_row, int value_dim
)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x % Team::kSize; i < kTile * DIMS / 4; i += Team::kSize) {
        const int t = i / (DIMS / 4), d = i % (DIMS / 4) * 4;
        if (d >= value_dim) continue;
        const uint32_t codes = *reinterpret_cast<const uint32_t *>(raw + t * raw_row + d);
        *reinterpret_cast<uint2 *>(v + t * v_row + d * 2) =
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
            /* Rounded before parts are subtracted, in every kernel. */
            x = __fmul_rn(x, __half2float(scales[token * stride]));
            y = __fmul_rn(y, __half2float(scales[(token + 1) * stride]));
            if (S::Format::kHasCodebook) x *= times[i % 2], y *= times[i % 2];
        }
        split_pair<typename S::Parts>(x, y, out);
#pragma unroll
        for (int part = 0; part < S::kParts; part++) parts[part][i] = out[part];
    }
}

/* Adds weight V to value and weight to sum, for the warp's pairs of 8 dims. v and v_scales are the
 * tile's; narrow: v begins with the warp's dims. Values of a codebook are in units of 2^unit of
 * their row, chosen for each tile so that weights times scales fill f16's range; masked positions
 * do not affect it. */
template <class S>
__device__ __forceinline__ void add_values(
    float (&value)[S::kPairs][2][4], float (&sum)[4], int (&unit)[2], const float (&weight)[4][4],
    const char *v, const Memory &m, const char *v_scales, int value_dim, const Lane &lane
)
{
    constexpr bool kGrouped = S::Format::kIsCoded && !S::Format::kHasCodebook;
    v += (lane.matrix % 2 * 8 + lane.row) * m.v_row + lane.matrix / 2 * 16;
    const __half *const scales = reinterpret_cast<const __half *>(v_scales);
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
            const int d = S::dim_of(i, lane.c);
            if (d >= value_dim) break;
            if (kGrouped && !(S::kIsNarrow && i % 2 != 0)) /* two pairs of a narrow block share */
                split_weights<S>(
                    parts, weight, half, scales + d / kGroup, value_dim / kGroup, times, lane
                );
            uint32_t two[S::kPlanes][4];
#pragma unroll
            for (int plane = 0; plane < S::kPlanes; plane++)
                weir_cuda::load_matrices_transposed(
                    two[plane],
                    v + plane * m.v_stage + half * 16 * m.v_row + (S::kIsNarrow ? i * 16 : d) * 2
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
