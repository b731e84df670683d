/* kernels/cuda/attention_turbo.h - turbo's 4-bit pages: codes to centroids, and the rotation of
 * queries and outputs by H D (kernels/abi/kv_format.h).
 *
 * A centroid is the sum of two f16, exact to 2^-22. Of the four products with the two parts of a
 * query or weight the smallest is omitted: 1.5 times the tensor work of f16 pages for a quarter of
 * their bytes. A warp rotates a row in registers: distances below 32 by shuffles, the rest between
 * registers. */
#pragma once
#include "kernels/cuda/attention_tile.h"

namespace weir_cuda_attention {

/* Elements of a row per lane: element i is dim lane + 32 i. */
constexpr int kRotated = 8;

/* x <- H x, in natural order. */
__device__ __forceinline__ void rotate(float (&x)[kRotated], int dim, float orthonormal)
{
    const int lane = (int)threadIdx.x % kWarp;
#pragma unroll
    for (int by = 1; by < kWarp; by *= 2)
#pragma unroll
        for (int i = 0; i < kRotated; i++) {
            const float other = __shfl_xor_sync(0xffffffffu, x[i], by);
            x[i] = lane & by ? other - x[i] : x[i] + other;
        }
#pragma unroll
    for (int by = 1; by < kRotated; by *= 2)
#pragma unroll
        for (int i = 0; i < kRotated; i++)
            if (!(i & by) && by * kWarp < dim) {
                const float a = x[i], b = x[i + by];
                x[i] = a + b, x[i + by] = a - b;
            }
#pragma unroll
    for (int i = 0; i < kRotated; i++) x[i] *= orthonormal;
}

/* D x; bit d of `signs` set: minus. */
__device__ __forceinline__ void flip(float (&x)[kRotated], const uint32_t (&signs)[kRotated])
{
    const int lane = (int)threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kRotated; i++) x[i] = signs[i] >> lane & 1u ? -x[i] : x[i];
}

/* A warp loads a row; elements past the last are zero. */
__device__ __forceinline__ void load_rotated(float (&x)[kRotated], const float *row, int dim)
{
#pragma unroll
    for (int i = 0; i < kRotated; i++)
        x[i] = i * kWarp < dim ? row[i * kWarp + (int)threadIdx.x % kWarp] : 0.0f;
}

/* Rotates an output row back: D H row, in place, by a warp. */
__device__ __forceinline__ void rotate_back(float *row, const Call &call)
{
    float x[kRotated];
    load_rotated(x, row, (int)call.args.value_dim);
    rotate(x, (int)call.args.value_dim, call.v_orthonormal);
    flip(x, call.v_signs);
#pragma unroll
    for (int i = 0; i < kRotated; i++)
        if (i * kWarp < (int)call.args.value_dim) row[i * kWarp + (int)threadIdx.x % kWarp] = x[i];
}

template <class S>
__device__ __forceinline__ void stage_codebook(char *shared, const Memory &m, const Call &call)
{
    if (threadIdx.x < 16)
        reinterpret_cast<uint32_t *>(shared + m.codebook)[threadIdx.x] = call.codebook[threadIdx.x];
}

template <class Team>
__device__ __forceinline__ void expand_book_keys(
    char *k, int plane, const char *raw, const uint32_t *codebook, int key_dim
)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x % Team::kSize; i < key_dim / 8 * (kTile / 2); i += Team::kSize) {
        const int word = i / (kTile / 2), pair = i % (kTile / 2);
        const uint2 codes = *reinterpret_cast<const uint2 *>(raw + word * kTile * 4 + pair * 8);
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const uint32_t x = codebook[codes.x >> 4 * b & 15u],
                           y = codebook[codes.y >> 4 * b & 15u];
            char *const to = k + (word * 8 + b) * 64 + ((pair / 4) ^ (b / 2)) * 16 + pair % 4 * 4;
            *reinterpret_cast<uint32_t *>(to) = __byte_perm(x, y, 0x5410);
            *reinterpret_cast<uint32_t *>(to + plane) = __byte_perm(x, y, 0x7632);
        }
    }
}

/* Word w of a block of 32 dims: dims 4w .. 4w+3 in its low halves of bytes, 16 later in the high
 * ones. */
template <class Team, int DIMS>
__device__ __forceinline__ void expand_book_values(
    char *v, int v_row, int plane, const char *raw, int raw_row, const uint32_t *codebook,
    int value_dim
)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x % Team::kSize; i < kTile * DIMS / 8; i += Team::kSize) {
        const int t = i / (DIMS / 8), word = i % (DIMS / 8);
        if (word * 8 >= value_dim) continue;
        const uint32_t codes = *reinterpret_cast<const uint32_t *>(raw + t * raw_row + word * 4);
#pragma unroll
        for (int high = 0; high < 2; high++) {
            uint32_t x[4];
#pragma unroll
            for (int b = 0; b < 4; b++) x[b] = codebook[codes >> (8 * b + 4 * high) & 15u];
            char *const to = v + t * v_row + (word / 4 * 32 + high * 16 + word % 4 * 4) * 2;
            *reinterpret_cast<uint2 *>(to) =
                make_uint2(__byte_perm(x[0], x[1], 0x5410), __byte_perm(x[2], x[3], 0x5410));
            *reinterpret_cast<uint2 *>(to + plane) =
                make_uint2(__byte_perm(x[0], x[1], 0x7632), __byte_perm(x[2], x[3], 0x7632));
        }
    }
}

/* Expand key_dim dims of a tile, by a warp or all threads. `codebook`: in shared memory. */
template <class S, class Team>
__device__ __forceinline__ void expand_keys(
    char *k, int plane, const char *raw, const char *codebook, int key_dim
)
{
    if constexpr (S::Format::kHasCodebook)
        expand_book_keys<Team>(
            k, plane, raw, reinterpret_cast<const uint32_t *>(codebook), key_dim
        );
    else
        expand_byte_keys<Team>(k, raw, key_dim);
}
template <class S, class Team, int DIMS>
__device__ __forceinline__ void expand_values(
    char *v, const Memory &m, const char *raw, int raw_row, const char *codebook, int value_dim
)
{
    if constexpr (S::Format::kHasCodebook)
        expand_book_values<Team, DIMS>(
            v, m.v_row, m.v_stage, raw, raw_row, reinterpret_cast<const uint32_t *>(codebook),
            value_dim
        );
    else
        expand_byte_values<Team, DIMS>(v, m.v_row, raw, raw_row, value_dim);
}

/* ---- on the host ----------------------------------------------------------------------------- */
inline void set_turbo(Call &call)
{
    const float half[8] = { WEIR_KV_CODEBOOK4 };
    for (int code = 0; code < 16; code++) {
        const float x = code < 8 ? -half[7 - code] : half[code - 8];
        const uint32_t first = __half_as_ushort(__float2half_rn(x));
        call.codebook[code] =
            first | (uint32_t)__half_as_ushort(
                        __float2half_rn(x - __half2float(__ushort_as_half((unsigned short)first)))
                    ) << 16;
    }
    for (int d = 0; d < 32 * kRotated; d++) {
        call.k_signs[d / 32] |= (uint32_t)(weir_kv_sign(WEIR_KV_K, d) < 0.0f) << d % 32;
        call.v_signs[d / 32] |= (uint32_t)(weir_kv_sign(WEIR_KV_V, d) < 0.0f) << d % 32;
    }
    call.k_orthonormal = weir_kv_orthonormal(call.args.key_dim),
    call.v_orthonormal = weir_kv_orthonormal(call.args.value_dim);
    call.is_rotated = true;
}

} // namespace weir_cuda_attention
