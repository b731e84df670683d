/* kernels/cuda/kv_write.cu - new K and V rows into their pages, as f32, f16, bf16 and q8_0. A block
 * writes kRows rows of a segment and a KV head, a warp groups of 32 dims of a row, a lane a dim:
 * q8_0's scale is a maximum over the warp. A segment is in host memory: a block reads it once.
 * Reads 4 bytes per element and writes what attention reads. Why an override: scalar.h.
 *
 * Rows of K are written with a token's stride, 2 to 64 bytes of each line: consecutive rows of a
 * prompt fill it in L2. */
#include "kernels/abi/ops.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_kv_write {

using namespace weir_cuda;

constexpr int kWarp = 32, kThreads = 128, kRows = 16, kGroup = WEIR_KV_GROUP,
              kTile = WEIR_TILE_TOKENS, kMostBlocks = 65535;
static_assert(kGroup == kWarp, "a lane has a dim of a group");
static_assert(WEIR_PAGE_TOKENS % kRows == 0, "a block has rows of one page");

/* K or V of a page. */
struct Part {
    weir_kv_layout layout;
    int64_t offset; /* in the page */
    weir_kv_format format;
};

struct Call {
    weir_kv_write_args args;
    Part k[2], v[2]; /* of most pages, of sinks */
};

__device__ __forceinline__ float finite(float x)
{
    x = x == x ? x : 0.0f;
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

__device__ __forceinline__ void store_plain(char *to, weir_kv_format format, int64_t at, float x)
{
    if (format == WEIR_KV_F32) reinterpret_cast<float *>(to)[at] = x;
    if (format == WEIR_KV_F16) reinterpret_cast<__half *>(to)[at] = __float2half_rn(x);
    if (format == WEIR_KV_BF16) reinterpret_cast<__nv_bfloat16 *>(to)[at] = __float2bfloat16_rn(x);
}

/* As kernels/ref/kv_codec.h, bit for bit: half away from zero is twice the magnitude, truncated,
 * plus one, halved. */
__device__ __forceinline__ signed char code_of(float value, float inverse)
{
    const float scaled = value * inverse;
    const int magnitude = min(((int)(fabsf(scaled) * 2.0f) + 1) / 2, 127);
    return (signed char)(scaled < 0.0f ? -magnitude : magnitude);
}

/* The offsets of a row's scale and first code of group `group`, and the stride between words of
 * codes. */
struct Place {
    int64_t scale, code, word_step;
};

template <bool IS_K>
__device__ __forceinline__ Place place_of(const Part &part, int64_t token, int64_t group)
{
    const weir_kv_layout &layout = part.layout;
    if (!IS_K)
        return { layout.scales + token * layout.scales_step + group * 2,
                 layout.codes + token * layout.codes_step + group * kGroup, 4 };
    const int64_t tile = token / kTile, t = token % kTile;
    return { layout.scales + tile * layout.scales_step + (group * kTile + t) * 2,
             layout.codes + tile * layout.codes_step + (group * (kGroup / 4) * kTile + t) * 4,
             kTile * 4 };
}

/* Writes rows [token, token + n) of a part, a group of a row per warp in turn; `rows` is the first
 * one's. */
template <bool IS_K>
__device__ __forceinline__ void write_rows(
    char *page, const Part &part, const float *rows, int64_t stride, int64_t dim, int64_t token,
    int n
)
{
    char *const to = page + part.offset;
    const int lane = threadIdx.x % kWarp, n_groups = (int)((dim + kGroup - 1) / kGroup);
    for (int unit = threadIdx.x / kWarp; unit < n * n_groups; unit += kThreads / kWarp) {
        const int64_t group = unit % n_groups, d = group * kGroup + lane,
                      own = token + unit / n_groups;
        const float x = d < dim ? rows[unit / n_groups * stride + d] : 0.0f;
        if (part.format != WEIR_KV_Q8_0) {
            const int64_t at =
                IS_K ? own / kTile * dim * kTile + d * kTile + own % kTile : own * dim + d;
            if (d < dim) store_plain(to, part.format, at, x);
            continue;
        }
        const Place at = place_of<IS_K>(part, own, group);
        const float value = finite(x), step = warp_max(fabsf(value)) / 127.0f,
                    inverse = step >= 0x1p-126f ? 1.0f / step : 0.0f;
        to[at.code + lane / 4 * at.word_step + lane % 4] = code_of(value, inverse);
        if (lane == 0) *reinterpret_cast<__half *>(to + at.scale) = __float2half_rn(step);
    }
}

/* Slots are cut at multiples of kRows, so a block writes to one page. */
__global__ void __launch_bounds__(kThreads) kv_write(const Call call)
{
    const weir_kv_write_args &args = call.args;
    const weir_kv_segment segment = args.segments[blockIdx.z];
    const int64_t table = blockIdx.y, past = segment.n_past, end = past + segment.n_rows;
    const int64_t cut = (past / kRows + blockIdx.x) * kRows, first = cut > past ? cut : past,
                  last = cut + kRows < end ? cut + kRows : end;
    if (first >= last || table >= (segment.n_heads > 0 ? segment.n_heads : args.n_kv_heads)) return;
    const int64_t page = first / WEIR_PAGE_TOKENS, token = first % WEIR_PAGE_TOKENS,
                  head = segment.first_head + table, t = segment.first_row + first - past;
    const int which = page < args.sinks.n_pages, n = (int)(last - first);
    char *const to = static_cast<char *>(segment.pages[table * segment.page_stride + page]);
    if (args.k)
        write_rows<true>(
            to, call.k[which], args.k + t * args.k_stride + head * args.key_dim, args.k_stride,
            args.key_dim, token, n
        );
    if (args.v)
        write_rows<false>(
            to, call.v[which], args.v + t * args.v_stride + head * args.value_dim, args.v_stride,
            args.value_dim, token, n
        );
}

bool is_written(weir_kv_format format) { return weir_kv_cuda_use(format) & WEIR_KV_CUDA_WRITE; }

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_kv_write_args *>(op_args);
    const weir_kv_pair pair = { args->k_format, args->v_format };
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (!is_written(pair.k) || !is_written(pair.v)) return "writes KV in" WEIR_KV_CUDA_WRITE_TEXT;
    if (args->sinks.n_pages > 0 &&
        (!is_written(args->sinks.pair.k) || !is_written(args->sinks.pair.v)))
        return "sinks of other formats";
    if (args->n_segments > kMostBlocks || args->n_kv_heads > kMostBlocks)
        return "more than 65535 segments or heads";
    return weir_kv_pages_reject(pair, args->sinks, args->key_dim, args->value_dim);
}

void lay_out(const weir_kv_write_args &args, weir_kv_pair pair, Part *k, Part *v)
{
    *k = { weir_kv_layout_k(pair.k, args.key_dim), 0, pair.k };
    *v = { weir_kv_layout_v(pair.v, args.value_dim), weir_kv_v_part(pair.k, args.key_dim), pair.v };
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    Call call = {};
    const auto &args = call.args = *static_cast<const weir_kv_write_args *>(op_args);
    int64_t longest = 0, most_heads = 0;
    if (!weir_kv_segments_are_sound(args.segments, args.n_segments, args.n_kv_heads))
        return WEIR_EINVAL;
    for (int64_t s = 0; s < args.n_segments; s++) {
        const int64_t heads = weir_kv_segment_heads(args.segments + s, args.n_kv_heads);
        longest = args.segments[s].n_rows > longest ? args.segments[s].n_rows : longest;
        most_heads = heads > most_heads ? heads : most_heads;
    }
    if (longest <= 0 || most_heads <= 0) return WEIR_OK;
    const weir_kv_pair others = { args.k_format, args.v_format };
    lay_out(args, others, &call.k[0], &call.v[0]);
    lay_out(args, args.sinks.n_pages > 0 ? args.sinks.pair : others, &call.k[1], &call.v[1]);
    /* One more if the first is cut. */
    const dim3 grid(
        blocks_for(longest, kRows) + 1, (unsigned)most_heads, (unsigned)args.n_segments
    );
    WEIR_LAUNCH(kv_write, grid, kThreads, 0, static_cast<cudaStream_t>(context->cuda_stream), call);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_kv_write

/* Tolerance: the codecs are defined to the bit. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_kv_write;
const weir_kernel weir_kernel_cuda_kv_write = {
    WEIR_OP_KV_WRITE,           WEIR_BACKEND_CUDA, "cuda.kv_write",        0.0, 0.0,
    weir_cuda_kv_write::reject, nullptr,           weir_cuda_kv_write::run
};
}
