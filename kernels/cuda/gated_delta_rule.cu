/* kernels/cuda/gated_delta_rule.cu - the gated delta rule (Yang et al. 2024) as a scan over tokens,
 * the state in registers. Here are sequences of many rows: one barrier per four rows, which other
 * warps load meanwhile; of few: delta_tile.h. Sums over key_dim have an order that depends on
 * key_dim alone, so any cut into calls gives the same bits (docs/kernels.md). */
#include "kernels/cuda/delta_rows.h"
#include "kernels/cuda/delta_tile.h"

namespace weir_cuda_gated_delta_rule {

using namespace weir_cuda;

/* Four warps update the state, four load the rows after. A thread that updates has two columns, the
 * same of two tiles; 8 lanes of a warp share a column. */
constexpr int kUpdaters = 4, kLoaders = 4, kThreads = (kUpdaters + kLoaders) * kWarp;
constexpr int kWarps = kThreads / kWarp, kRows = kLoaders, kTiles = 2;
constexpr int kColumns = kTile / kUpdaters; /* per warp and tile */
static_assert(kColumns * kShares == kWarp, "a warp's columns");
constexpr int kTileWarps = 2, kTileThreads = kTileWarps * kWarp; /* where all warps have tiles */
constexpr int kMostAlone = 4; /* sequences of a launch that has long ones only */

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
    TileRow<CHUNKS> of_warps[kWarps];
};

template <int CHUNKS>
__device__ __forceinline__ void store_row(
    Rows<CHUNKS> &rows, const Staged<CHUNKS> &staged, const Gates &gates, int key_dim, int row,
    int lane
)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        rows.q[row][i * kWarp + lane] = staged.q[i], rows.k[row][i * kWarp + lane] = staged.k[i];
    rows.v[row][lane] = staged.v;
    const Factors factors = factors_of<CHUNKS>(staged, gates, key_dim);
    if (lane == 0) rows.factors[row] = factors;
}

/* Elements of a column, of each of the thread's tiles: keys n 32 + share 4 + i. */
template <int CHUNKS> struct State {
    float at[kTiles][CHUNKS][4];
};

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
        d[t] = correction(column_sum(chains[t]), rows.v[row][t * kTile + column], f);
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
    Shared<CHUNKS> &shared, const weir_gated_delta_rule_args &args, const Unit &unit,
    const Gates &gates, int row, int lane
)
{
    const int32_t n_rows = unit.sequence.n_rows;
    auto staged = load_row<CHUNKS>(args, unit, row, lane);
    auto next = load_row<CHUNKS>(args, unit, kRows + row, lane);
    move_tiles<CHUNKS, false>(shared.tiles, unit, (int)args.key_dim);
    exchange();
    exchange(); /* the state is in registers */
    store_row<CHUNKS>(shared.rows[0], staged, gates, (int)args.key_dim, row, lane);
    exchange();
    for (int32_t first = 0; first + kRows < n_rows; first += kRows) {
        staged = next;
        next = load_row<CHUNKS>(args, unit, first + 2 * kRows + row, lane);
        store_row<CHUNKS>(
            shared.rows[(first / kRows + 1) % 2], staged, gates, (int)args.key_dim, row, lane
        );
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
    const int32_t n_rows = unit.sequence.n_rows;
    const int64_t stride = args.n_v_heads * args.value_dim;
    float *const out =
        args.out +
        ((int64_t)unit.sequence.first_row * args.n_v_heads + unit.head) * args.value_dim +
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

/* Tile `tile` of the heads of a sequence, or none, for a warp. */
template <int CHUNKS>
__device__ __forceinline__ void scan_tile_of(
    const weir_gated_delta_rule_args &args, const Sequence &sequence, int tile,
    TileRow<CHUNKS> &row, int lane
)
{
    const int n_tiles = tiles_of(args.value_dim);
    const bool is_there = tile < (int)args.n_v_heads * n_tiles;
    const Unit unit = unit_of(args, sequence, is_there ? tile / n_tiles : 0, tile % n_tiles, 1);
    weir_cuda::wait_for_previous();
    if (is_there) scan_tile<CHUNKS>(args, unit, row, lane);
}

/* A warp has a tile of any sequence. Blocks are small: the next one starts as soon as two warps
 * have ended. */
template <int CHUNKS>
__global__ void __launch_bounds__(kTileThreads, CHUNKS > 4 ? 4 : 8) scan_tiles(
    const weir_gated_delta_rule_args args,
    const __grid_constant__ Sequences<kMostSequences> sequences
)
{
    __shared__ TileRow<CHUNKS> rows[kTileWarps];
    weir_cuda::let_next_start();
    const int warp = (int)threadIdx.x / kWarp, per = tile_blocks(args, kTileWarps);
    scan_tile_of<CHUNKS>(
        args, sequences.at[(int)blockIdx.x / per], (int)blockIdx.x % per * kTileWarps + warp,
        rows[warp], (int)threadIdx.x % kWarp
    );
}

/* Long sequences have a block for (head, two tiles), others for kThreads / kWarp tiles. BLOCKS of
 * it run on a multiprocessor; one has registers for all rows of a group, and no others. */
template <int CHUNKS, int BLOCKS, int MOST>
__global__ void __launch_bounds__(kThreads, BLOCKS)
    scan(const weir_gated_delta_rule_args args, const __grid_constant__ Sequences<MOST> sequences)
{
    __shared__ Shared<CHUNKS> shared;
    weir_cuda::let_next_start();
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp,
              n_pairs = (tiles_of(args.value_dim) + kTiles - 1) / kTiles;
    const BlockOf of = block_of(
        sequences, (int)blockIdx.x, (int)args.n_v_heads * n_pairs, tile_blocks(args, kWarps)
    );
    if (of.is_long) {
        const Unit unit = unit_of(
            args, sequences.at[of.sequence], of.block / n_pairs, of.block % n_pairs * kTiles, kTiles
        );
        const Gates gates = { args.a_neg[unit.head], args.dt_bias[unit.head] }; /* weights */
        prefetch_state(unit, (int)args.key_dim, (int)threadIdx.x, kThreads);
        weir_cuda::wait_for_previous();
        if (warp >= kUpdaters)
            load_rows<CHUNKS>(shared, args, unit, gates, warp - kUpdaters, lane);
        else
            use_rows<CHUNKS, BLOCKS == 1 ? kRows : 1>(
                shared, args, unit, warp * kColumns + lane % kColumns, lane / kColumns
            );
    } else if constexpr (MOST > kMostAlone) {
        scan_tile_of<CHUNKS>(
            args, sequences.at[of.sequence], of.block * kWarps + warp, shared.of_warps[warp], lane
        );
    }
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

/* From how many rows on a sequence is long: measured. A block with two tiles takes less time for a
 * row than a warp with one, but where the multiprocessors are full of such warps, they do more rows
 * at a time. */
int64_t long_rows(const weir_gated_delta_rule_args &args)
{
    constexpr int64_t kFull = 12; /* warps with tiles on a multiprocessor */
    const int64_t n_tiles = tiles_of(args.value_dim), n_pairs = (n_tiles + kTiles - 1) / kTiles,
                  n_heads = args.n_segments * args.n_v_heads, n = device_facts().multiprocessors;
    if (n_heads * n_pairs <= n) return 4; /* a multiprocessor for each block */
    return n_heads * n_tiles < n * kFull ? 16 : 32;
}

template <int CHUNKS>
void launch(
    const weir_gated_delta_rule_args &args, const Sequences<kMostSequences> &sequences,
    cudaStream_t stream
)
{
    constexpr int kMostBlocks = CHUNKS > 4 ? 1 : 2;
    const int n_pairs = (tiles_of(args.value_dim) + kTiles - 1) / kTiles, n = sequences.n,
              n_long = sequences.n_long, n_units = n_long * (int)args.n_v_heads * n_pairs;
    if (n_long == 0) {
        WEIR_LAUNCH(
            scan_tiles<CHUNKS>, (unsigned)(n * tile_blocks(args, kTileWarps)), kTileThreads, 0,
            stream, args, sequences
        );
    } else if (n == n_long && n <= kMostAlone && n_units <= device_facts().multiprocessors) {
        Sequences<kMostAlone> alone = { n, n, {} };
        for (int i = 0; i < n; i++) alone.at[i] = sequences.at[i];
        WEIR_LAUNCH(
            (scan<CHUNKS, 1, kMostAlone>), (unsigned)n_units, kThreads, 0, stream, args, alone
        );
    } else {
        WEIR_LAUNCH(
            (scan<CHUNKS, kMostBlocks, kMostSequences>),
            (unsigned)(n_units + (n - n_long) * tile_blocks(args, kWarps)), kThreads, 0, stream,
            args, sequences
        );
    }
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_gated_delta_rule_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_k_heads <= 0 || args.n_v_heads % args.n_k_heads != 0 || args.key_dim <= 0 ||
        args.value_dim <= 0)
        return WEIR_EINVAL;
    if (args.key_dim > 256) return WEIR_EUNSUPPORTED;
    if (args.n_v_heads > INT32_MAX / kMostSequences / tiles_of(args.value_dim)) return WEIR_EINVAL;
    const int64_t n_rows = long_rows(args);
    for (int64_t s = 0; s < args.n_segments;) {
        Sequences<kMostSequences> sequences = {};
        s = take_sequences(
            &sequences, args.segments, s, args.n_segments, n_rows, &weir_recurrent_segment::state
        );
        if (sequences.n == 0 || args.n_v_heads == 0) continue;
        if (args.key_dim <= 32)
            launch<1>(args, sequences, stream);
        else if (args.key_dim <= 64)
            launch<2>(args, sequences, stream);
        else if (args.key_dim <= 128)
            launch<4>(args, sequences, stream);
        else
            launch<8>(args, sequences, stream);
    }
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
