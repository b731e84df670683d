/* kernels/cuda/attention_plan.h - how a call of attention is divided into blocks of threads: used
 * on the host for the launch and the scratch, and by every block to find its share.
 *
 * A unit is (segment, KV head of its range, up to ROWS query rows, a split or all splits). Query
 * row = token * group + head of the group. */
#pragma once
#include <cfloat>

#include "kernels/abi/ops.h"
#include "kernels/cuda/cuda.h"

namespace weir_cuda_attention {

constexpr int kTile = WEIR_TILE_TOKENS, kPage = WEIR_PAGE_TOKENS, kWarp = 32;
/* A split of the op is several here. */
constexpr int kSplit = 512, kSplitsOfOne = WEIR_ATTENTION_SPLIT / kSplit;
static_assert(WEIR_ATTENTION_SPLIT % kSplit == 0, "calls begin and end with splits of the op");
/* Up to this many query rows of a KV head are one row of tensor tiles. */
constexpr int kNarrowRows = 16;
/* Up to this many, splits are separate units, to occupy the machine. */
constexpr int kApartRows = 64;
constexpr float kNothing = -FLT_MAX; /* the maximum of an empty set of scores */

/* A segment, as kernels need it. The op's list and page tables are in host memory, where each read
 * of a warp costs the link 20 ns (measured: 64 blocks that read one segment, 10 us). So segments
 * are parameters, kMostGiven of a launch; more go to further launches. */
struct Segment {
    const char *const *pages;
    int32_t page_stride, first_row, n_rows, n_past, first_head, n_heads;
};
constexpr int kMostGiven = 64;

struct Call {
    weir_attention_args args;
    weir_kv_layout k_layout, v_layout;
    int64_t v_part;
    float *scratch;
    int32_t group, window, wide_rows; /* wide_rows: of a wide unit */
    int32_t first_split, end_split; /* of kSplit */
    float scale; /* times log2(e) */
    uint32_t k_signs[8], v_signs[8], codebook[16]; /* turbo: bits of D, centroids as two f16 */
    float k_orthonormal, v_orthonormal;
    bool is_last, is_rotated; /* is_rotated: V stays rotated */
    Segment given[kMostGiven]; /* [args.n_segments] of the launch */
};

__host__ __device__ inline Segment segment_of(const weir_kv_segment &s)
{
    return { reinterpret_cast<const char *const *>(s.pages),
             (int32_t)s.page_stride,
             s.first_row,
             s.n_rows,
             s.n_past,
             s.first_head,
             s.n_heads };
}

static_assert(sizeof(Call) + sizeof(int64_t) <= 4096, "a launch has 4 KB of arguments");

struct Plan {
    /* n_heads: KV heads; n_rows: query rows of each; n_blocks: blocks of rows. */
    int32_t first_split, n_splits, n_heads, n_rows, n_blocks;
    int64_t n_units, n_split_partials; /* n_split_partials: in the scratch */
    bool is_narrow, is_apart;
};

__host__ __device__ inline int64_t total_floats(const Call &call)
{
    return 2 + call.args.value_dim;
}

__host__ __device__ inline Plan plan_of(const Call &call, const Segment &segment)
{
    Plan plan = {};
    if (segment.n_rows <= 0) return plan;
    const int32_t first =
        segment.n_past >= call.window ? (segment.n_past - call.window + 1) / kSplit : 0;
    const int32_t end = (segment.n_past + segment.n_rows - 1) / kSplit + 1;
    plan.first_split = first > call.first_split ? first : call.first_split;
    plan.n_splits = (end < call.end_split ? end : call.end_split) - plan.first_split;
    if (plan.n_splits < 0) plan.n_splits = 0;
    plan.n_heads = segment.n_heads > 0 ? segment.n_heads : (int32_t)call.args.n_kv_heads;
    plan.n_rows = segment.n_rows * call.group;
    plan.is_narrow = plan.n_rows <= kNarrowRows || call.wide_rows == kNarrowRows;
    plan.is_apart = plan.n_splits > 1 && plan.n_rows <= kApartRows;
    const int32_t rows = plan.is_narrow ? kNarrowRows : call.wide_rows;
    plan.n_blocks = (plan.n_rows + rows - 1) / rows;
    plan.n_units = (int64_t)plan.n_blocks * plan.n_heads * (plan.is_apart ? plan.n_splits : 1);
    plan.n_split_partials = plan.is_apart ? (int64_t)plan.n_rows * plan.n_heads * plan.n_splits : 0;
    return plan;
}

/* Which of a segment's units a kernel runs. */
enum class Share { Narrow, Wide, Merge };
__host__ __device__ inline int64_t units_of(const Plan &plan, Share share)
{
    if (share == Share::Merge) return plan.is_apart ? (int64_t)plan.n_rows * plan.n_heads : 0;
    return plan.is_narrow == (share == Share::Narrow) ? plan.n_units : 0;
}

/* The segment that unit `unit` of the launch belongs to; `unit` becomes its index in it,
 * `split_partials` the start of the segment's scratch. A warp checks 32 segments at a time. */
__device__ inline int64_t find_segment(
    const Call &call, Share share, int64_t *unit, float **split_partials
)
{
    const int lane = (int)(threadIdx.x % kWarp);
    int64_t scratch = 0;
    *split_partials = call.scratch;
    if (call.args.n_segments == 1) return 0;
    for (int64_t first = 0;; first += kWarp) {
        int64_t n = 0, floats = 0;
        if (first + lane < call.args.n_segments) {
            const Plan plan = plan_of(call, call.given[first + lane]);
            n = units_of(plan, share), floats = plan.n_split_partials * total_floats(call);
        }
        int64_t units_to = n, floats_to = floats; /* of the lanes up to this one */
        for (int by = 1; by < kWarp; by *= 2) {
            const int64_t units = __shfl_up_sync(0xffffffffu, units_to, (unsigned)by),
                          more = __shfl_up_sync(0xffffffffu, floats_to, (unsigned)by);
            if (lane >= by) units_to += units, floats_to += more;
        }
        const unsigned past = __ballot_sync(0xffffffffu, *unit < units_to);
        const int found = past ? __ffs((int)past) - 1 : kWarp - 1;
        const int64_t before = __shfl_sync(0xffffffffu, units_to - n, found),
                      all = __shfl_sync(0xffffffffu, units_to, found);
        scratch += __shfl_sync(0xffffffffu, past ? floats_to - floats : floats_to, found);
        *unit -= past ? before : all;
        if (!past) continue;
        *split_partials = call.scratch + scratch;
        return first + found;
    }
}

/* ---- joining splits -------------------------------------------------------------------------- */
/* How (maximum, sum, value) of a split joins a total: kernels/abi/attention_partials.h, always by
 * these expressions. An empty total is zero and an empty split is left out. */
struct Join {
    float maximum, keep, add;
};
__device__ __forceinline__ Join join_of(float total_maximum, float maximum)
{
    const float higher = total_maximum > maximum ? total_maximum : maximum;
    return { higher, exp2f(total_maximum - higher),
             maximum == kNothing ? 0.0f : exp2f(maximum - higher) };
}
/* Of a sum or a value. */
__device__ __forceinline__ float joined(const Join &join, float total, float value)
{
    return fmaf(total, join.keep, join.add > 0.0f ? value * join.add : 0.0f);
}
/* Natural log-sum-exp. */
__device__ __forceinline__ float lse_of(float maximum, float sum)
{
    return maximum * 0.69314718f + logf(sum);
}

} // namespace weir_cuda_attention
