/* kernels/cuda/attention_narrow.h - up to 16 query rows of a KV head: decode, and prefill where K
 * and V are coded and wide.
 *
 * A row's scores are sums over chunks of kChunk dims. Each of the four warps has a chunk of K and
 * the same dims of V: it copies them, expands them and multiplies them without the others. Only the
 * scores of the chunks are exchanged, with one barrier per tile; every warp then adds them, in the
 * order of dims, and computes the same softmax, so that weights need no exchange.
 *
 * Shared memory: queries, later the scores of two tiles [tile % 2][row / 8][chunk][positions of 16]
 * [lane]; then for each warp K [stage][dim][32 positions] and V [stage][position][dims], swizzled
 * and padded as in attention_tile.h. Coded tiles are raw; one at a time is expanded. */
#pragma once
#include "kernels/cuda/attention_split.h"

namespace weir_cuda_attention {

/* What a warp's chunk has of K's and V's dims: K's to 32, V's to 16. */
struct Chunk {
    int key_dims, keys, value_dims, values;
};
template <class S> __device__ __forceinline__ Chunk chunk_of(const Call &call, const Lane &lane)
{
    const int first = lane.c * S::kChunk, keys = (int)call.args.key_dim - first,
              values = (int)call.args.value_dim - first;
    const int key_dims = min(max(keys, 0), S::kChunk), value_dims = min(max(values, 0), S::kChunk);
    return { key_dims, (key_dims + 31) / 32 * 32, value_dims, (value_dims + 15) / 16 * 16 };
}

/* ---- copies, by a warp ----------------------------------------------------------------------- */
__device__ __forceinline__ void copy_own_run(char *to, const char *from, int bytes)
{
#pragma unroll 1
    for (int at = (int)threadIdx.x % kWarp * 16; at < bytes; at += kWarp * 16)
        weir_cuda::copy_async(to + at, from + at);
}

template <class S>
__device__ __forceinline__ void copy_own_keys(
    char *own, const char *shared, const Memory &m, const Call &call, const Chunk &chunk,
    int32_t position, int stage, const Lane &lane
)
{
    const int64_t tile = position % kPage / kTile;
    const int in_warp = (int)threadIdx.x % kWarp;
    const char *const part = page_at(shared, m, position), *const codes =
                                                               part + call.k_layout.codes +
                                                               tile * call.k_layout.codes_step +
                                                               lane.c * S::kChunk * kTile *
                                                                   S::Format::kBits / 8;
    if constexpr (S::Format::kIsCoded) {
        char *const to = own + m.raw_k + stage * m.raw_k_stage;
        const char *const scales =
            part + call.k_layout.scales + tile * call.k_layout.scales_step +
            (S::Format::kHasCodebook ? 0 : lane.c * (S::kChunk / kGroup) * kTile * 2);
        copy_own_run(to, codes, chunk.keys * kTile * S::Format::kBits / 8);
        copy_own_run(
            to + m.raw_k_codes, scales,
            S::Format::kHasCodebook ? kTile * 2 : chunk.keys / kGroup * kTile * 2
        );
    } else {
        /* Eight dims at a time: a lane's piece is swizzled alike in all of them. */
        char *const to =
            own + m.k + stage * m.k_stage + in_warp / 4 * 64 + ((in_warp % 4) ^ (in_warp / 8)) * 16;
#pragma unroll
        for (int d = 0; d < S::kChunk; d += 8)
            if (d < chunk.keys)
                weir_cuda::copy_async(
                    to + d * 64, codes + d * 64 + in_warp * 16, d + in_warp / 4 < chunk.key_dims
                );
    }
}

template <class S>
__device__ __forceinline__ void copy_own_values(
    char *own, const char *shared, const Memory &m, const Call &call, const Chunk &chunk,
    int32_t position, int stage, const Lane &lane
)
{
    const int64_t token = position % kPage;
    constexpr int kBytes = S::kChunk * S::Format::kBits / 8, /* of a row */
        kPieces = kBytes / 16, kAtOnce = kWarp / kPieces;
    const int in_warp = (int)threadIdx.x % kWarp, row = in_warp / kPieces,
              at = in_warp % kPieces * 16;
    const char *const part = page_at(shared, m, position) + call.v_part,
                      *const codes = part + call.v_layout.codes + token * call.v_layout.codes_step +
                                     lane.c * kBytes + row * call.v_layout.codes_step + at;
    char *const to = own + (S::Format::kIsCoded ? m.raw_v + stage * m.raw_v_stage + row * kBytes
                                                : m.v + stage * m.v_stage + row * m.v_row);
    const int step = S::Format::kIsCoded ? kBytes : m.v_row,
              used = chunk.values * S::Format::kBits / 8,
              there = chunk.value_dims * S::Format::kBits / 8;
#pragma unroll
    for (int t = 0; t < kTile; t += kAtOnce)
        if (at < used)
            weir_cuda::copy_async(
                to + t * step + at, codes + t * call.v_layout.codes_step, at < there
            );
    if constexpr (S::Format::kIsCoded)
        copy_own_run(
            own + m.raw_v + stage * m.raw_v_stage + m.raw_v_codes,
            part + call.v_layout.scales + token * call.v_layout.scales_step,
            S::Format::kHasCodebook ? kTile * 2 : (int)call.args.value_dim / kGroup * kTile * 2
        );
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* The warp's chunk of the queries as fragments. */
template <class S> struct Queries {
    uint32_t parts[S::kChunk / 16][S::kParts][4];
};

template <class S>
__device__ __forceinline__ void load_queries(
    Queries<S> &queries, const char *shared, const Memory &m, const Lane &lane
)
{
    const char *const q = shared + m.q + (lane.matrix % 2 * 8 + lane.row) * m.q_row +
                          lane.matrix / 2 * 16 + lane.c * S::kChunk * 2;
#pragma unroll
    for (int step = 0; step < S::kChunk / 16; step++)
#pragma unroll
        for (int part = 0; part < S::kParts; part++)
            weir_cuda::load_matrices(queries.parts[step][part], q + part * m.q_part + step * 32);
}

/* q . K over the warp's chunk, for all positions of the tile. */
template <class S>
__device__ __forceinline__ void score_chunk(
    float (&score)[4][4], const Queries<S> &queries, const char *k, int k_plane,
    const char *k_scales, int keys, const Lane &lane
)
{
    constexpr bool kGrouped = S::Format::kIsCoded && !S::Format::kHasCodebook;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
#pragma unroll
    for (int first = 0; first < S::kChunk; first += kGroup) {
        if (first >= keys) break;
        float sum[4][4];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] = kGrouped ? 0.0f : score[n][i];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int d = first + half * 16;
            uint32_t keys_of[S::kPlanes][4][2];
#pragma unroll
            for (int plane = 0; plane < S::kPlanes; plane++)
#pragma unroll
                for (int n = 0; n < 4; n += 2) {
                    uint32_t two[4];
                    weir_cuda::load_matrices_transposed(
                        two, k + plane * k_plane + (d + lane.matrix % 2 * 8 + lane.row) * 64 +
                                 ((n + lane.matrix / 2) ^ (lane.row / 2)) * 16
                    );
                    keys_of[plane][n][0] = two[0], keys_of[plane][n][1] = two[1],
                    keys_of[plane][n + 1][0] = two[2], keys_of[plane][n + 1][1] = two[3];
                }
#pragma unroll
            for (int i = 0; i < S::kParts * S::kPlanes; i++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    if (counts<S>(i / S::kPlanes, i % S::kPlanes))
                        S::Parts::multiply(
                            sum[n], queries.parts[d / 16][i / S::kPlanes],
                            keys_of[i % S::kPlanes][n]
                        );
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 scale = make_float2(1.0f, 1.0f);
            if (kGrouped)
                scale = __half22float2(
                    *reinterpret_cast<const __half2 *>(k_scales + first * 2 + n * 16 + lane.t * 4)
                );
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[n][i] =
                    kGrouped ? fmaf(sum[n][i], i % 2 ? scale.y : scale.x, score[n][i]) : sum[n][i];
        }
    }
}

/* Scores of a chunk, for a lane's row g + 8h: its positions of tiles n and n + 1. */
__device__ __forceinline__ float4 *chunk_scores(
    char *shared, const Memory &m, int buffer, int h, int c, int n
)
{
    return reinterpret_cast<float4 *>(shared + m.q) +
           (((buffer * 2 + h) * 4 + c) * 2 + n / 2) * kWarp + (int)threadIdx.x % kWarp;
}

/* ---- splits ---------------------------------------------------------------------------------- */
/* walk_split for narrow blocks. */
template <class S>
__device__ __forceinline__ void walk_narrow_split(
    char *shared, const Memory &m, const Call &call, const Range &range, int n_rows, Rows &rows,
    const Queries<S> &queries, float (&value)[S::kPairs][2][4], float (&sum)[4], const Lane &lane
)
{
    const Chunk chunk = chunk_of<S>(call, lane);
    const int n_tiles = range.n_tiles;
    const int n_halves = n_rows > 8 ? 2 : 1; /* of 8 rows */
    int unit_of_values[2] = { 0, 0 };
    char *const own = shared + lane.c * m.warp;
    __syncthreads(); /* the previous split is done, queries are in registers, pages are loaded */
    clear_split<S>(rows, value, sum);
#pragma unroll
    for (int stage = 0; stage < S::kStages; stage++) {
        const int32_t position = range.begin + stage * kTile;
        if (stage < n_tiles) copy_own_keys<S>(own, shared, m, call, chunk, position, stage, lane);
        weir_cuda::copy_commit();
        if (stage + 1 == S::kStages) break;
        if (stage < n_tiles) copy_own_values<S>(own, shared, m, call, chunk, position, stage, lane);
        weir_cuda::copy_commit();
    }
#pragma unroll 1
    for (int j = 0; j < n_tiles; j++) {
        const int32_t position = range.begin + j * kTile;
        const int stage = j % S::kStages, next = j + S::kStages - 1;
        const char *const raw_k = own + m.raw_k + stage * m.raw_k_stage, *const raw_v =
                                                                             own + m.raw_v +
                                                                             stage * m.raw_v_stage;
        const char *k = own + m.k + stage * m.k_stage, *v = own + m.v + stage * m.v_stage;
        float score[4][4];
        weir_cuda::copy_wait<2 * S::kStages - 2>();
        __syncwarp(); /* K is loaded, V of the previous tile is done */
        if (next < n_tiles)
            copy_own_values<S>(
                own, shared, m, call, chunk, range.begin + next * kTile, next % S::kStages, lane
            );
        weir_cuda::copy_commit();
        if constexpr (S::Format::kIsCoded) {
            k = own + m.k;
            expand_keys<S, Warp>(own + m.k, m.k_stage, raw_k, shared + m.codebook, chunk.keys);
            __syncwarp();
        }
        score_chunk<S>(score, queries, k, m.k_stage, raw_k + m.raw_k_codes, chunk.keys, lane);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (h < n_halves) {
#pragma unroll
                for (int n = 0; n < 4; n += 2)
                    *chunk_scores(shared, m, j % 2, h, lane.c, n) = make_float4(
                        score[n][h * 2], score[n][h * 2 + 1], score[n + 1][h * 2],
                        score[n + 1][h * 2 + 1]
                    );
            }
        float2 k_scale[4];
        if constexpr (S::Format::kHasCodebook) {
#pragma unroll
            for (int n = 0; n < 4; n++)
                k_scale[n] = __half22float2(
                    *reinterpret_cast<const __half2 *>(raw_k + m.raw_k_codes + n * 16 + lane.t * 4)
                );
        }
        __syncthreads(); /* the chunks' scores are complete, K is done */
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) score[n][i] = 0.0f;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (h < n_halves) {
#pragma unroll
                for (int c = 0; c < S::kC; c++)
#pragma unroll
                    for (int n = 0; n < 4; n += 2) {
                        const float4 x = *chunk_scores(shared, m, j % 2, h, c, n);
                        score[n][h * 2] += x.x, score[n][h * 2 + 1] += x.y;
                        score[n + 1][h * 2] += x.z, score[n + 1][h * 2 + 1] += x.w;
                    }
            }
        if (j + S::kStages < n_tiles)
            copy_own_keys<S>(
                own, shared, m, call, chunk, position + S::kStages * kTile, stage, lane
            );
        weir_cuda::copy_commit();
        if constexpr (S::Format::kHasCodebook) {
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) score[n][i] *= i % 2 ? k_scale[n].y : k_scale[n].x;
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (h < n_halves) {
                const float highest =
                    mask_scores<4>(score, rows, h, position, range, call.window, lane);
                weigh<S, 4>(score, value, sum, rows, fmaxf(rows.maximum[h], highest), h);
            }
        weir_cuda::copy_wait<2 * S::kStages - 1>();
        __syncwarp(); /* V is loaded */
        if constexpr (S::Format::kIsCoded) {
            v = own + m.v;
            expand_values<S, Warp, S::kChunk>(
                own + m.v, m, raw_v, S::kChunk * S::Format::kBits / 8, shared + m.codebook,
                chunk.values
            );
            __syncwarp();
        }
        add_values<S>(
            value, sum, unit_of_values, score, v, m, raw_v + m.raw_v_codes,
            (int)call.args.value_dim, lane
        );
    }
    weir_cuda::copy_wait<0>();
    scale_back<S>(value, sum, unit_of_values);
}

} // namespace weir_cuda_attention
