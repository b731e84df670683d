/* kernels/cuda/gated_delta_rule.cu - the gated delta rule (Yang et al. 2024) as a scan over tokens,
 * the state in registers: one barrier per four rows. Sums over key_dim have an order that depends
 * on key_dim alone, so any cut into calls gives the same bits (docs/kernels.md). */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_gated_delta_rule {

using weir_cuda::warp_sum;

constexpr int kWarp = 32, kThreads = 128, kRows = kThreads / kWarp, kTile = WEIR_DELTA_LANES;
constexpr int kColumns = 4; /* per warp; 8 lanes share one */
constexpr unsigned kAll = 0xffffffffu;

struct Factors {
    float decay, beta, k_scale, q_scale;
};

/* Rows of q and k, zero past key_dim, and of the tile of v. */
template <int CHUNKS> struct Rows {
    __align__(16) float q[kRows][CHUNKS * kWarp];
    __align__(16) float k[kRows][CHUNKS * kWarp];
    float v[kRows][kTile];
    Factors factors[kRows];
};

/* A block's share: (segment, V head, tile of 16 value dims). 8 lanes of a warp share a column of
 * the state, key_dim / 8 elements in registers each. One row: 8 bytes per element, bound by memory;
 * many rows: 7 flops per element and row, some 120 cycles of latency each. */
struct Unit {
    weir_recurrent_segment segment; /* a copy: the array is host memory */
    int64_t head, k_head, tile;
    int width; /* value dims of the tile that exist */
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
    const Unit &unit, int warp, int lane
)
{
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        rows.q[warp][i * kWarp + lane] = staged.q[i], rows.k[warp][i * kWarp + lane] = staged.k[i];
        q_squares = fmaf(staged.q[i], staged.q[i], q_squares),
        k_squares = fmaf(staged.k[i], staged.k[i], k_squares);
    }
    if (lane < kTile) rows.v[warp][lane] = staged.v;
    q_squares = warp_sum(q_squares), k_squares = warp_sum(k_squares);
    if (lane != 0) return;
    const float x = staged.a + args.dt_bias[unit.head], softplus = x > 20.0f ? x : log1pf(expf(x));
    rows.factors[warp] = { expf(args.a_neg[unit.head] * softplus), 1.0f / (1.0f + expf(-staged.b)),
                           1.0f / sqrtf(k_squares + 1e-6f),
                           1.0f / sqrtf((q_squares + 1e-6f) * (float)args.key_dim) };
}

/* The lanes of a column are kColumns apart. A lane has added in four chains, (0 + 1) + (2 + 3);
 * here lanes are added pairwise. */
__device__ __forceinline__ float column_sum(const float (&chains)[4])
{
    float x = (chains[0] + chains[1]) + (chains[2] + chains[3]);
#pragma unroll
    for (int by = kColumns; by < kWarp; by *= 2) x += __shfl_xor_sync(kAll, x, by);
    return x;
}

/* One row: S <- decay S + k_scale d k^T with d = beta (v - decay k_scale S^T k). Returns q_scale
 * S^T q. `share`: the lane's keys of each 32, in groups of four. */
template <int CHUNKS>
__device__ __forceinline__ float step(
    float (&state)[CHUNKS][4], const float *q, const float *k, float v, const Factors &f, int share
)
{
    float4 key[CHUNKS];
    float chains[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        key[n] = *reinterpret_cast<const float4 *>(k + n * kWarp + share * 4);
        chains[0] = fmaf(state[n][0], key[n].x, chains[0]),
        chains[1] = fmaf(state[n][1], key[n].y, chains[1]);
        chains[2] = fmaf(state[n][2], key[n].z, chains[2]),
        chains[3] = fmaf(state[n][3], key[n].w, chains[3]);
    }
    const float predicted = column_sum(chains) * (f.decay * f.k_scale),
                d = (v - predicted) * (f.beta * f.k_scale);
#pragma unroll
    for (int i = 0; i < 4; i++) chains[i] = 0.0f;
#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        const float4 query = *reinterpret_cast<const float4 *>(q + n * kWarp + share * 4);
        state[n][0] = fmaf(key[n].x, d, state[n][0] * f.decay),
        state[n][1] = fmaf(key[n].y, d, state[n][1] * f.decay);
        state[n][2] = fmaf(key[n].z, d, state[n][2] * f.decay),
        state[n][3] = fmaf(key[n].w, d, state[n][3] * f.decay);
        chains[0] = fmaf(state[n][0], query.x, chains[0]),
        chains[1] = fmaf(state[n][1], query.y, chains[1]);
        chains[2] = fmaf(state[n][2], query.z, chains[2]),
        chains[3] = fmaf(state[n][3], query.w, chains[3]);
    }
    return column_sum(chains) * f.q_scale;
}

template <int CHUNKS>
__global__ void __launch_bounds__(kThreads) scan(const weir_gated_delta_rule_args args)
{
    weir_cuda::begin_kernel();
    __shared__ Rows<CHUNKS> rows[2];
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp,
              column = warp * kColumns + lane % kColumns;
    const int share = lane / kColumns;
    const int64_t n_tiles = (args.value_dim + kTile - 1) / kTile, u = blockIdx.x;
    Unit unit;
    unit.segment = args.segments[u / (args.n_v_heads * n_tiles)];
    unit.head = u / n_tiles % args.n_v_heads, unit.tile = u % n_tiles;
    unit.k_head = args.tiled_heads ? unit.head % args.n_k_heads
                                   : unit.head / (args.n_v_heads / args.n_k_heads);
    unit.width = (int)min(args.value_dim - unit.tile * kTile, (int64_t)kTile);
    const int32_t n_rows = unit.segment.n_rows;
    if (n_rows <= 0) return; /* the whole block */
    float *const kept =
        unit.segment.state + (unit.head * n_tiles + unit.tile) * args.key_dim * kTile + column;
    float *const out =
        args.out + ((int64_t)unit.segment.first_row * args.n_v_heads + unit.head) * args.value_dim +
        unit.tile * kTile + column;
    float state[CHUNKS][4];
    auto staged = load_row<CHUNKS>(args, unit, warp, lane);
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = n * kWarp + share * 4 + i;
            state[n][i] = key < (int)args.key_dim ? kept[key * kTile] : 0.0f;
        }
    store_row<CHUNKS>(rows[0], staged, args, unit, warp, lane);
    staged = load_row<CHUNKS>(args, unit, kRows + warp, lane);
    __syncthreads();
    for (int32_t first = 0; first < n_rows; first += kRows) {
        const Rows<CHUNKS> &now = rows[first / kRows % 2];
        for (int r = 0; r < min(kRows, n_rows - first); r++) {
            const float x =
                step<CHUNKS>(state, now.q[r], now.k[r], now.v[r][column], now.factors[r], share);
            if (share == 0 && column < unit.width)
                out[(first + r) * args.n_v_heads * args.value_dim] = x;
        }
        if (first + kRows >= n_rows) break;
        store_row<CHUNKS>(rows[(first / kRows + 1) % 2], staged, args, unit, warp, lane);
        staged = load_row<CHUNKS>(args, unit, first + 2 * kRows + warp, lane);
        __syncthreads(); /* the next rows are loaded, and all threads are done with these */
    }
#pragma unroll
    for (int n = 0; n < CHUNKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = n * kWarp + share * 4 + i;
            if (key < (int)args.key_dim) kept[key * kTile] = state[n][i];
        }
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_gated_delta_rule_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->channel_decay) return "one decay per head";
    return args->key_dim > 256 ? "key_dim > 256" : nullptr;
}

template <int CHUNKS>
void launch(const weir_gated_delta_rule_args &args, int64_t n_units, cudaStream_t stream)
{
    WEIR_LAUNCH(scan<CHUNKS>, (unsigned)n_units, kThreads, 0, stream, args);
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_gated_delta_rule_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (args.n_k_heads <= 0 || args.n_v_heads % args.n_k_heads != 0 || args.key_dim <= 0 ||
        args.value_dim <= 0)
        return WEIR_EINVAL;
    if (args.key_dim > 256) return WEIR_EUNSUPPORTED;
    const int64_t n_units =
        args.n_segments * args.n_v_heads * ((args.value_dim + kTile - 1) / kTile);
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
