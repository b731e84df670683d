/* kernels/cuda/kv_write.cu - new K and V rows to their pages, in formats marked WRITE or BOTH. A
 * block has kRows rows of a segment and a KV head, a warp groups of 32 dims of a row, a lane a dim:
 * q8_0's scale is a maximum over the warp. Why an override: scalar.h (docs/kernels.md). */
#include "kernels/abi/kv_format_text.h"
#include "kernels/abi/ops.h"
#include "kernels/cuda/kv_schemes.h"
#include "kernels/cuda/scalar.h"

namespace weir_cuda_kv_write {

using namespace weir_cuda;

constexpr int kWarp = 32, kThreads = 128, kRows = 16, kGroup = WEIR_KV_GROUP, kMostBlocks = 65535;
static_assert(kGroup == kWarp, "a lane has a dim of a group");
static_assert(WEIR_PAGE_TOKENS % kRows == 0, "a block has rows of one page");

/* K or V of a page. */
struct Part {
    weir_kv_layout layout;
    int64_t offset; /* in the page */
    weir_kv_format format;
};

/* Segments are in host memory, where each read costs the link (docs/decisions/0094): those of a
 * launch are among its arguments. */
constexpr int kMostSegments = 40;

struct Call {
    weir_kv_write_args args;
    Part k[2], v[2]; /* of most pages, of sinks */
    weir_kv_segment segments[kMostSegments];
};
static_assert(sizeof(Call) <= 4096, "a launch has 4 KB of arguments");

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
        switch (part.format) {
#define WRITE_NONE(name, scheme)
#define WRITE_READ(name, scheme)
#define WRITE_WRITE(name, scheme)                                                                  \
    case WEIR_KV_##name:                                                                           \
        SchemeRows<WEIR_KV_##scheme, WEIR_KV_##name>::write<IS_K>(                                 \
            to, part.layout, dim, own, group, lane, x                                              \
        );                                                                                         \
        break;
#define WRITE_BOTH(name, scheme) WRITE_WRITE(name, scheme)
#define X(name, text, bits, scheme, coded, attention, device, cuda) WRITE_##cuda(name, scheme)
            WEIR_KV_FORMAT_MAP(X)
#undef X
#undef WRITE_NONE
#undef WRITE_READ
#undef WRITE_WRITE
#undef WRITE_BOTH
        default: break;
        }
    }
}

/* Slots are cut at multiples of kRows, so a block writes to one page. The page table is in host
 * memory: a thread reads the block's entry. Rows of K have a token's stride, 2 to 64 bytes of each
 * line: consecutive rows of a prompt fill it in L2. */
__global__ void __launch_bounds__(kThreads) kv_write(const Call call)
{
    const weir_kv_write_args &args = call.args;
    weir_cuda::let_next_start();
    __shared__ char *to;
    const weir_kv_segment &segment = call.segments[blockIdx.z];
    const int64_t table = blockIdx.y, past = segment.n_past, end = past + segment.n_rows;
    const int64_t cut = (past / kRows + blockIdx.x) * kRows, first = cut > past ? cut : past,
                  last = cut + kRows < end ? cut + kRows : end;
    if (first >= last || table >= (segment.n_heads > 0 ? segment.n_heads : args.n_kv_heads)) {
        weir_cuda::wait_for_previous();
        return;
    }
    const int64_t page = first / WEIR_PAGE_TOKENS, token = first % WEIR_PAGE_TOKENS,
                  head = segment.first_head + table, t = segment.first_row + first - past;
    const int which = page < args.sinks.n_pages, n = (int)(last - first);
    if (threadIdx.x == 0)
        to = static_cast<char *>(segment.pages[table * segment.page_stride + page]);
    weir_cuda::wait_for_previous();
    __syncthreads();
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
    if (args->value_dim == 0) return "pages without a V part";
    if (!is_written(pair.k) || !is_written(pair.v)) return "writes KV in" WEIR_KV_CUDA_WRITE_TEXT;
    if (args->sinks.n_pages > 0 &&
        (!is_written(args->sinks.pair.k) || !is_written(args->sinks.pair.v)))
        return "sinks of other formats";
    if (args->n_kv_heads > kMostBlocks) return "more than 65535 heads";
    return weir_kv_write_reject(args);
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
    if (!weir_kv_segments_are_sound(args.segments, args.n_segments, args.n_kv_heads))
        return WEIR_EINVAL;
    const weir_kv_pair others = { args.k_format, args.v_format };
    lay_out(args, others, &call.k[0], &call.v[0]);
    lay_out(args, args.sinks.n_pages > 0 ? args.sinks.pair : others, &call.k[1], &call.v[1]);
    for (int64_t first = 0; first < args.n_segments; first += kMostSegments) {
        int64_t longest = 0, most_heads = 0;
        int n = 0;
        for (; n < kMostSegments && first + n < args.n_segments; n++) {
            const weir_kv_segment &segment = call.segments[n] = args.segments[first + n];
            const int64_t heads = weir_kv_segment_heads(&segment, args.n_kv_heads);
            longest = segment.n_rows > longest ? segment.n_rows : longest;
            most_heads = heads > most_heads ? heads : most_heads;
        }
        if (longest <= 0 || most_heads <= 0) continue;
        /* One more if the first is cut. */
        const dim3 grid(blocks_for(longest, kRows) + 1, (unsigned)most_heads, (unsigned)n);
        WEIR_LAUNCH(
            kv_write, grid, kThreads, 0, static_cast<cudaStream_t>(context->cuda_stream), call
        );
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_kv_write

/* Tolerance: the codecs are defined to the bit. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_kv_write;
const weir_kernel weir_kernel_cuda_kv_write = {
    WEIR_OP_KV_WRITE,           WEIR_BACKEND_CUDA, "cuda.kv_write",         0.0, 0.0,
    weir_cuda_kv_write::reject, nullptr,           weir_cuda_kv_write::run, 0
};
}
