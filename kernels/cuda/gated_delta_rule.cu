/* kernels/cuda/gated_delta_rule.cu - the gated delta rule (Yang et al. 2024) as a scan over tokens,
 * the state in registers: one barrier per four rows, which other warps load meanwhile. Sums over
 * key_dim have an order that depends on key_dim alone, so any cut into calls gives the same bits
 * (docs/kernels.md). */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_gated_delta_rule {

using weir_cuda::warp_sum;

/* Four warps update the state, four load the rows after. A thread that updates has two columns, the
 * same of two tiles; 8 lanes of a warp share a column. */
constexpr int kWarp = 32, kUpdaters = 4, kLoaders = 4, kThreads = (kUpdaters + kLoaders) * kWarp;
constexpr int kRows = kLoaders, kTile = WEIR_DELTA_LANES, kTiles = 2;
constexpr int kColumns = kTile / kUpdaters; /* per warp and tile */
constexpr unsigned kAll = 0xffffffffu;

struct __align__(16) Factors {
    float decay, beta, k_scale, q_scale;
};

/* Rows of q and k, zero past key_dim, and of the two tiles of v. */
template <int CHUNKS> struct Rows {
    __align__(16) float q[kRows][CHUNKS * kWarp];
    __align__(16) float k[kRows][CHUNKS * kWarp];
    float v[kRows][kTiles * kTile];
    Factors factors[kRows];
};

/* The tiles of the state on their way between memory, whose rows are of 16 columns, and registers;
 * padded, so that the lanes of a warp are in different banks. */
template <int CHUNKS> struct Tiles {
    float at[kTiles][CHUNKS * kWarp * (kTile + 1)];
    static __device__ __forceinline__ int place(int key, int column)
    {
        return key * kTile + key / 4 * 4 + column;
    }
};
template <int CHUNKS> union Shared {
    Rows<CHUNKS> rows[2];
    Tiles<CHUNKS> tiles; /* before the first row, after the last */
};

/* A block's share: (segment, V head, two tiles of 16 value dims), key_dim / 8 elements of a column
 * in a thread's registers. One row: 8 bytes per element, bound by memory; many rows: 7 flops per
 * element and row, bound by the latency of a row's sums. */
struct Unit {
    weir_recurrent_segment segment; /* a copy: the array is host memory */
    int64_t head, k_head, tile;
    int width, n_tiles; /* value dims of the tiles that exist; these */
    float4 *state;
    float a_neg, dt_bias;
};

__device__ __forceinline__ Unit unit_of(const weir_gated_delta_rule_args &args, int64_t u)
{
    const int64_t n_tiles = (args.value_dim + kTile - 1) / kTile,
                  n_pairs = (n_tiles + kTiles - 1) / kTiles;
    Unit unit;
    unit.segment = args.segments[u / (args.n_v_heads * n_pairs)];
    unit.head = u / n_pairs % args.n_v_heads, unit.tile = u % n_pairs * kTiles;
    unit.k_head = args.tiled_heads ? unit.head % args.n_k_heads
                                   : unit.head / (args.n_v_heads / args.n_k_heads);
    unit.width = (int)min(args.value_dim - unit.tile * kTile, (int64_t)(kTiles * kTile));
    unit.n_tiles = (int)min(n_tiles - unit.tile, (int64_t)kTiles);
    unit.state = reinterpret_cast<float4 *>(
        unit.segment.state + (unit.head * n_tiles + unit.tile) * args.key_dim * kTile
    );
    unit.a_neg = args.a_neg[unit.head], unit.dt_bias = args.dt_bias[unit.head];
    return unit;
}

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
    if (row >= unit.segment.n_rows) return staged;
    const int64_t at = (int64_t)unit.segment.first_row + row,
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

template <int CHUNKS>
__device__ __forceinline__ void store_row(
    Rows<CHUNKS> &rows, const Staged<CHUNKS> &staged, const weir_gated_delta_rule_args &args,
    const Unit &unit, int row, int lane
)
{
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        rows.q[row][i * kWarp + lane] = staged.q[i], rows.k[row][i * kWarp + lane] = staged.k[i];
        q_squares = fmaf(staged.q[i], staged.q[i], q_squares),
        k_squares = fmaf(staged.k[i], staged.k[i], k_squares);
    }
    rows.v[row][lane] = staged.v;
    q_squares = warp_sum(q_squares), k_squares = warp_sum(k_squares);
    if (lane != 0) return;
    const float x = staged.a + unit.dt_bias, softplus = x > 20.0f ? x : log1pf(expf(x));
    rows.factors[row] = { expf(unit.a_neg * softplus), weir_cuda::sigmoid(staged.b),
                          rsqrtf(k_squares + 1e-6f),
                          rsqrtf((q_squares + 1e-6f) * (float)args.key_dim) };
}

/* Elements of a column, of each of the thread's tiles: keys n 32 + share 4 + i. */
template <int CHUNKS> struct State {
    float at[kTiles][CHUNKS][4];
};

/* The lanes of a column are kColumns apart. A lane has added in four chains, (0 + 1) + (2 + 3);
 * here lanes are added pairwise. */
__device__ __forceinline__ float column_sum(const float (&chains)[4])
{
    float x = (chains[0] + chains[1]) + (chains[2] + chains[3]);
#pragma unroll
    for (int by = kColumns; by < kWarp; by *= 2) x += __shfl_xor_sync(kAll, x, by);
    return x;
}

/* One row: S <- decay S + k_scale d k^T with d = beta (v - decay k_scale S^T k); out = q_scale
 * S^T q. `share`: the lane's keys of each 32, in groups of four. */
template <int CHUNKS>
__device__ __forceinline__ void update(
    State<CHUNKS> &state, float (&out)[kTiles], const Rows<CHUNKS> &rows, int row, int column,
    int share
)
{
    const Factors f = rows.factors[row];
    float4 key[CHUNKS];
    float chains[kTiles][4] = {};
    float d[kTiles];
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        key[n] = *reinterpret_cast<const float4 *>(&rows.k[row][n * kWarp + share * 4]);
#pragma unroll
        for (int t = 0; t < kTiles; t++) {
            chains[t][0] = fmaf(state.at[t][n][0], key[n].x, chains[t][0]),
            chains[t][1] = fmaf(state.at[t][n][1], key[n].y, chains[t][1]);
            chains[t][2] = fmaf(state.at[t][n][2], key[n].z, chains[t][2]),
            chains[t][3] = fmaf(state.at[t][n][3], key[n].w, chains[t][3]);
        }
    }
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
        const float predicted = column_sum(chains[t]) * (f.decay * f.k_scale);
        d[t] = (rows.v[row][t * kTile + column] - predicted) * (f.beta * f.k_scale);
#pragma unroll
        for (int i = 0; i < 4; i++) chains[t][i] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        const float4 query = *reinterpret_cast<const float4 *>(&rows.q[row][n * kWarp + share * 4]);
#pragma unroll
        for (int t = 0; t < kTiles; t++) {
            float(&s)[4] = state.at[t][n];
            s[0] = fmaf(key[n].x, d[t], s[0] * f.decay),
            s[1] = fmaf(key[n].y, d[t], s[1] * f.decay);
            s[2] = fmaf(key[n].z, d[t], s[2] * f.decay),
            s[3] = fmaf(key[n].w, d[t], s[3] * f.decay);
            chains[t][0] = fmaf(s[0], query.x, chains[t][0]),
            chains[t][1] = fmaf(s[1], query.y, chains[t][1]);
            chains[t][2] = fmaf(s[2], query.z, chains[t][2]),
            chains[t][3] = fmaf(s[3], query.w, chains[t][3]);
        }
    }
#pragma unroll
    for (int t = 0; t < kTiles; t++) out[t] = column_sum(chains[t]) * f.q_scale;
}

/* All threads of a block wait for each other: for the rows of a group, and for those that still use
 * the group before. */
__device__ __forceinline__ void exchange() { __syncthreads(); }

/* All threads copy the tiles, 16 bytes at a time. */
template <int CHUNKS, bool IS_WRITTEN>
__device__ __forceinline__ void move_tiles(Tiles<CHUNKS> &tiles, const Unit &unit, int key_dim)
{
    constexpr int kVectors = kTile / 4; /* of a key's row */
    for (int t = 0; t < unit.n_tiles; t++)
        for (int i = (int)threadIdx.x; i < key_dim * kVectors; i += kThreads) {
            float4 &at = *reinterpret_cast<float4 *>(
                &tiles.at[t][Tiles<CHUNKS>::place(i / kVectors, i % kVectors * 4)]
            );
            float4 &kept = unit.state[t * key_dim * kVectors + i];
            if (IS_WRITTEN)
                kept = at;
            else
                at = kept;
        }
}

/* A thread's elements of the tiles; keys past key_dim are zero. */
template <int CHUNKS, bool IS_WRITTEN>
__device__ __forceinline__ void exchange_state(
    State<CHUNKS> &state, Tiles<CHUNKS> &tiles, const Unit &unit, int key_dim, int column, int share
)
{
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
        for (int e = 0; e < CHUNKS * 4; e++) {
            const int key = e / 4 * kWarp + share * 4 + e % 4;
            const bool is_there = key < key_dim && t < unit.n_tiles;
            float &at = tiles.at[t][Tiles<CHUNKS>::place(key, column)],
                  &own = state.at[t][e / 4][e % 4];
            if (!IS_WRITTEN)
                own = is_there ? at : 0.0f;
            else if (is_there)
                at = own;
        }
}

/* Stores row `row` of each group, which other warps use while this one has the next on its way. */
template <int CHUNKS>
__device__ __forceinline__ void load_rows(
    Shared<CHUNKS> &shared, const weir_gated_delta_rule_args &args, const Unit &unit, int row,
    int lane
)
{
    const int32_t n_rows = unit.segment.n_rows;
    auto staged = load_row<CHUNKS>(args, unit, row, lane);
    auto next = load_row<CHUNKS>(args, unit, kRows + row, lane);
    move_tiles<CHUNKS, false>(shared.tiles, unit, (int)args.key_dim);
    exchange();
    exchange(); /* the state is in registers */
    store_row<CHUNKS>(shared.rows[0], staged, args, unit, row, lane);
    exchange();
    for (int32_t first = 0; first + kRows < n_rows; first += kRows) {
        staged = next;
        next = load_row<CHUNKS>(args, unit, first + 2 * kRows + row, lane);
        store_row<CHUNKS>(shared.rows[(first / kRows + 1) % 2], staged, args, unit, row, lane);
        exchange();
    }
    exchange(); /* all rows are used */
    exchange(); /* the state is in shared memory */
    move_tiles<CHUNKS, true>(shared.tiles, unit, (int)args.key_dim);
}

/* Uses the rows that load_rows stores. */
template <int CHUNKS, int UNROLLED>
__device__ __forceinline__ void use_rows(
    Shared<CHUNKS> &shared, const weir_gated_delta_rule_args &args, const Unit &unit, int column,
    int share
)
{
    const int32_t n_rows = unit.segment.n_rows;
    const int64_t stride = args.n_v_heads * args.value_dim;
    float *const out =
        args.out + ((int64_t)unit.segment.first_row * args.n_v_heads + unit.head) * args.value_dim +
        unit.tile * kTile + column;
    State<CHUNKS> state;
    move_tiles<CHUNKS, false>(shared.tiles, unit, (int)args.key_dim);
    exchange();
    exchange_state<CHUNKS, false>(state, shared.tiles, unit, (int)args.key_dim, column, share);
    exchange();
    exchange();
    for (int32_t first = 0; first < n_rows; first += kRows) {
        const Rows<CHUNKS> &now = shared.rows[first / kRows % 2];
        float mine
            [kTiles] = {}; /* all lanes of a column have its sums: lane r keeps those of row r */
        const auto next = [&](int r) {
            float x[kTiles];
            update<CHUNKS>(state, x, now, r, column, share);
#pragma unroll
            for (int t = 0; t < kTiles; t++) mine[t] = share == r ? x[t] : mine[t];
        };
        if (first + kRows <= n_rows) {
#pragma unroll UNROLLED
            for (int r = 0; r < kRows; r++) next(r);
        } else {
            for (int r = 0; r < n_rows - first; r++) next(r);
        }
#pragma unroll
        for (int t = 0; t < kTiles; t++)
            if (share < kRows && first + share < n_rows && t * kTile + column < unit.width)
                out[(first + share) * stride + t * kTile] = mine[t];
        if (first + kRows < n_rows) exchange();
    }
    exchange();
    exchange_state<CHUNKS, true>(state, shared.tiles, unit, (int)args.key_dim, column, share);
    exchange();
    move_tiles<CHUNKS, true>(shared.tiles, unit, (int)args.key_dim);
}

/* BLOCKS of it run on a multiprocessor. One has registers for all rows of a group. */
template <int CHUNKS, int BLOCKS>
__global__ void __launch_bounds__(kThreads, BLOCKS) scan(const weir_gated_delta_rule_args args)
{
    __shared__ Shared<CHUNKS> shared;
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp;
    weir_cuda::let_next_start();
    const Unit unit =
        unit_of(args, blockIdx.x); /* of segments and weights: no kernel writes them */
    weir_cuda::wait_for_previous();
    if (unit.segment.n_rows <= 0) return; /* the whole block */
    if (warp >= kUpdaters)
        load_rows<CHUNKS>(shared, args, unit, warp - kUpdaters, lane);
    else
        use_rows<CHUNKS, BLOCKS == 1 ? kRows : 1>(
            shared, args, unit, warp * kColumns + lane % kColumns, lane / kColumns
        );
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_gated_delta_rule_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->channel_decay) return "one decay per head";
    for (int64_t i = 0; i < args->n_segments; i++)
        if (!weir_cuda::is_aligned(args->segments[i].state)) return "state not 16-byte aligned";
    return args->key_dim > 256 ? "key_dim > 256" : nullptr;
}

template <int CHUNKS>
void launch(const weir_gated_delta_rule_args &args, int64_t n_units, cudaStream_t stream)
{
    constexpr int kMostBlocks = CHUNKS > 4 ? 1 : 2;
    if (n_units <= weir_cuda::device_facts().multiprocessors)
        WEIR_LAUNCH((scan<CHUNKS, 1>), (unsigned)n_units, kThreads, 0, stream, args);
    else
        WEIR_LAUNCH((scan<CHUNKS, kMostBlocks>), (unsigned)n_units, kThreads, 0, stream, args);
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_gated_delta_rule_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_k_heads <= 0 || args.n_v_heads % args.n_k_heads != 0 || args.key_dim <= 0 ||
        args.value_dim <= 0)
        return WEIR_EINVAL;
    if (args.key_dim > 256) return WEIR_EUNSUPPORTED;
    constexpr int64_t kWidth = kTiles * kTile;
    const int64_t n_units =
        args.n_segments * args.n_v_heads * ((args.value_dim + kWidth - 1) / kWidth);
    if (n_units <= 0) return WEIR_OK;
    if (n_units > INT32_MAX) return WEIR_EINVAL;
    if (args.key_dim <= 32)
        launch<1>(args, n_units, stream);
    else if (args.key_dim <= 64)
        launch<2>(args, n_units, stream);
    else if (args.key_dim <= 128)
        launch<4>(args, n_units, stream);
    else
        launch<8>(args, n_units, stream);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_gated_delta_rule

/* Tolerance: as the single source's. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_gated_delta_rule;
const weir_kernel weir_kernel_cuda_gated_delta_rule = { WEIR_OP_GATED_DELTA_RULE,
                                                        WEIR_BACKEND_CUDA,
                                                        "cuda.gated_delta_rule.scan",
                                                        1e-5,
                                                        2e-5,
                                                        weir_cuda_gated_delta_rule::reject,
                                                        nullptr,
                                                        weir_cuda_gated_delta_rule::run,
                                                        0 };
}
