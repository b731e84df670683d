/* kernels/cuda/delta_rows.h - a row of the gated delta rule as a warp loads it, its gates and
 * norms, and the share of a block or warp. What the scans of gated_delta_rule.cu have in common:
 * the same expressions, so the same bits. */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"
#include "kernels/cuda/sequences.h"

namespace weir_cuda_gated_delta_rule {

using weir_cuda::Sequence;
using weir_cuda::warp_sum;

constexpr int kWarp = 32, kTile = WEIR_DELTA_LANES;
constexpr int kShares = 8; /* lanes that share a column of the state */
constexpr unsigned kAll = 0xffffffffu;

struct __align__(16) Factors {
    float decay, beta, k_scale, q_scale;
};

__host__ __device__ constexpr int tiles_of(int64_t value_dim)
{
    return (int)((value_dim + kTile - 1) / kTile);
}

/* Of a sequence whose tiles have a warp each. */
__host__ __device__ __forceinline__ int tile_blocks(
    const weir_gated_delta_rule_args &args, int n_warps
)
{
    return ((int)args.n_v_heads * tiles_of(args.value_dim) + n_warps - 1) / n_warps;
}

/* A share: (sequence, V head, tiles of 16 value dims). */
struct Unit {
    Sequence sequence;
    int head, k_head, tile;
    int width, n_tiles; /* value dims of the tiles that exist; these */
    float4 *state;
};

/* Up to `most` tiles from `tile` on. */
__device__ __forceinline__ Unit unit_of(
    const weir_gated_delta_rule_args &args, const Sequence &sequence, int head, int tile, int most
)
{
    const int n_tiles = tiles_of(args.value_dim), n_k = (int)args.n_k_heads;
    Unit unit;
    unit.sequence = sequence;
    unit.head = head, unit.tile = tile;
    unit.k_head = args.tiled_heads ? head % n_k : head / ((int)args.n_v_heads / n_k);
    unit.width = min((int)args.value_dim - tile * kTile, most * kTile);
    unit.n_tiles = min(n_tiles - tile, most);
    unit.state = reinterpret_cast<float4 *>(
        sequence.memory + ((int64_t)head * n_tiles + tile) * args.key_dim * kTile
    );
    return unit;
}

/* Threads first, first + n, ... of the unit bring its tiles to L2, while the kernel before ends. */
__device__ __forceinline__ void prefetch_state(const Unit &unit, int key_dim, int first, int n)
{
    constexpr int kQuads = 8; /* of a line */
    const int n_quads = unit.n_tiles * key_dim * kTile / 4;
    for (int i = first * kQuads; i < n_quads; i += n * kQuads) weir_cuda::prefetch(unit.state + i);
}

/* Of a V head. */
struct Gates {
    float a_neg, dt_bias;
};

/* A warp's row on its way to shared memory: elements lane + 32 i. */
template <int CHUNKS> struct Staged {
    float q[CHUNKS], k[CHUNKS], v, a, b;
};

template <int CHUNKS>
__device__ __forceinline__ Staged<CHUNKS> load_row(
    const weir_gated_delta_rule_args &args, const Unit &unit, int32_t row, int lane
)
{
    Staged<CHUNKS> staged = {};
    if (row >= unit.sequence.n_rows) return staged;
    const int64_t at = (int64_t)unit.sequence.first_row + row,
                  qk = at * args.qkv_stride + unit.k_head * args.key_dim;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const bool there = i * kWarp + lane < (int)args.key_dim;
        staged.q[i] = there ? args.q[qk + i * kWarp + lane] : 0.0f,
        staged.k[i] = there ? args.k[qk + i * kWarp + lane] : 0.0f;
    }
    if (lane < unit.width)
        staged.v =
            args.v[at * args.qkv_stride + unit.head * args.value_dim + unit.tile * kTile + lane];
    staged.a = args.a[at * args.ab_stride + unit.head],
    staged.b = args.b[at * args.ab_stride + unit.head];
    return staged;
}

/* The same in all lanes. */
template <int CHUNKS>
__device__ __forceinline__ Factors
factors_of(const Staged<CHUNKS> &staged, const Gates &gates, int key_dim)
{
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        q_squares = fmaf(staged.q[i], staged.q[i], q_squares),
        k_squares = fmaf(staged.k[i], staged.k[i], k_squares);
    q_squares = warp_sum(q_squares), k_squares = warp_sum(k_squares);
    const float x = staged.a + gates.dt_bias, softplus = x > 20.0f ? x : log1pf(expf(x));
    return { expf(gates.a_neg * softplus), weir_cuda::sigmoid(staged.b), rsqrtf(k_squares + 1e-6f),
             rsqrtf((q_squares + 1e-6f) * (float)key_dim) };
}

/* S^T k is summed, d = k_scale beta (v - decay k_scale S^T k). */
__device__ __forceinline__ float correction(float sum, float v, const Factors &f)
{
    return fmaf(-sum, f.decay * f.k_scale, v) * (f.beta * f.k_scale);
}

/* The lanes of a column are kWarp / kShares apart. A lane has added in four chains, (0 + 1) +
 * (2 + 3); here lanes are added pairwise. */
__device__ __forceinline__ float column_sum(const float (&chains)[4])
{
    float x = (chains[0] + chains[1]) + (chains[2] + chains[3]);
#pragma unroll
    for (int by = kWarp / kShares; by < kWarp; by *= 2) x += __shfl_xor_sync(kAll, x, by);
    return x;
}

} // namespace weir_cuda_gated_delta_rule
