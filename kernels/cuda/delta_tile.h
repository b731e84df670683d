/* kernels/cuda/delta_tile.h - the gated delta rule where memory is the bound, many sequences of a
 * row or a few: a warp has a tile of the state, which goes from memory to registers and back by
 * 16-byte accesses, all in flight at once. Warps do not wait for each other. */
#pragma once
#include "kernels/cuda/delta_rows.h"

namespace weir_cuda_gated_delta_rule {

constexpr int kQuads = kTile / 4; /* 16-byte parts of a key's columns */

/* A warp's row in shared memory, q and k zero past key_dim. */
template <int CHUNKS> struct __align__(16) TileRow {
    float q[CHUNKS * kWarp], k[CHUNKS * kWarp], v[kTile];
};

/* A lane has four columns of the keys n 32 + share 4 + i. */
template <int CHUNKS> struct TileState {
    float4 at[CHUNKS][4];
};

__device__ __forceinline__ const float4 &quad_at(const float *row, int i)
{
    return *reinterpret_cast<const float4 *>(row + i);
}

/* S <- decay S + k_scale d k^T, out = q_scale S^T q of the lane's columns: the sums of `update` in
 * gated_delta_rule.cu, four columns at a time. */
template <int CHUNKS>
__device__ __forceinline__ void update_tile(
    TileState<CHUNKS> &state, float (&out)[4], const TileRow<CHUNKS> &row, const Factors &f,
    int quad, int share
)
{
    float chains[4][4] = {}; /* [column][i] */
    float d[4];
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        const float4 key4 = quad_at(row.k, n * kWarp + share * 4);
        const float key[4] = { key4.x, key4.y, key4.z, key4.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 &s = state.at[n][i];
            chains[0][i] = fmaf(s.x, key[i], chains[0][i]),
            chains[1][i] = fmaf(s.y, key[i], chains[1][i]);
            chains[2][i] = fmaf(s.z, key[i], chains[2][i]),
            chains[3][i] = fmaf(s.w, key[i], chains[3][i]);
        }
    }
    const float4 value4 = quad_at(row.v, quad * 4);
    const float value[4] = { value4.x, value4.y, value4.z, value4.w };
#pragma unroll
    for (int c = 0; c < 4; c++) {
        d[c] = correction(column_sum(chains[c]), value[c], f);
#pragma unroll
        for (int i = 0; i < 4; i++) chains[c][i] = 0.0f;
    }
    __syncwarp(); /* k is read again: registers for it would not do */
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        const float4 key4 = quad_at(row.k, n * kWarp + share * 4),
                     query4 = quad_at(row.q, n * kWarp + share * 4);
        const float key[4] = { key4.x, key4.y, key4.z, key4.w },
                    query[4] = { query4.x, query4.y, query4.z, query4.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 &s = state.at[n][i];
            s.x = fmaf(key[i], d[0], s.x * f.decay), s.y = fmaf(key[i], d[1], s.y * f.decay);
            s.z = fmaf(key[i], d[2], s.z * f.decay), s.w = fmaf(key[i], d[3], s.w * f.decay);
            chains[0][i] = fmaf(s.x, query[i], chains[0][i]),
            chains[1][i] = fmaf(s.y, query[i], chains[1][i]);
            chains[2][i] = fmaf(s.z, query[i], chains[2][i]),
            chains[3][i] = fmaf(s.w, query[i], chains[3][i]);
        }
    }
#pragma unroll
    for (int c = 0; c < 4; c++) out[c] = column_sum(chains[c]) * f.q_scale;
}

/* A lane's elements of the tile; keys past key_dim are zero. The state is used once per step: it
 * must not take the cache from the activations. */
template <int CHUNKS, bool IS_WRITTEN>
__device__ __forceinline__ void move_tile(
    TileState<CHUNKS> &state, float4 *memory, int key_dim, int quad, int share
)
{
    float4 *const own = memory + share * 4 * kQuads + quad;
    const int n_keys = key_dim - share * 4;
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = n * kWarp + i;
            if (IS_WRITTEN) {
                if (key < n_keys) __stcs(own + key * kQuads, state.at[n][i]);
            } else {
                state.at[n][i] =
                    key < n_keys ? __ldcs(own + key * kQuads) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
        }
}

/* All rows of a unit of one tile, by a warp that has `row` to itself. */
template <int CHUNKS>
__device__ __forceinline__ void scan_tile(
    const weir_gated_delta_rule_args &args, const Unit &unit, TileRow<CHUNKS> &row, int lane
)
{
    const int quad = lane % kQuads, share = lane / kQuads, n_rows = unit.sequence.n_rows;
    Staged<CHUNKS> staged = load_row<CHUNKS>(args, unit, 0, lane);
    TileState<CHUNKS> state;
    move_tile<CHUNKS, false>(state, unit.state, (int)args.key_dim, quad, share);
    for (int32_t r = 0; r < n_rows; r++) {
        const Factors f = factors_of<CHUNKS>(
            staged, { args.a_neg[unit.head], args.dt_bias[unit.head] }, (int)args.key_dim
        );
        if (r > 0) __syncwarp(); /* the row before is used */
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            row.q[i * kWarp + lane] = staged.q[i], row.k[i * kWarp + lane] = staged.k[i];
        if (lane < kTile) row.v[lane] = staged.v;
        __syncwarp();
        float sums[4]; /* in all lanes of a column: share c keeps column c */
        update_tile<CHUNKS>(state, sums, row, f, quad, share);
        float mine = sums[0];
#pragma unroll
        for (int c = 1; c < 4; c++) mine = share == c ? sums[c] : mine;
        if (share < 4 && quad * 4 + share < unit.width)
            args.out
                [((int64_t)(unit.sequence.first_row + r) * args.n_v_heads + unit.head) *
                     args.value_dim +
                 unit.tile * kTile + quad * 4 + share] = mine;
        staged = load_row<CHUNKS>(args, unit, r + 1, lane);
    }
    move_tile<CHUNKS, true>(state, unit.state, (int)args.key_dim, quad, share);
}

} // namespace weir_cuda_gated_delta_rule
