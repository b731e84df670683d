/* kernels/cuda/attention.cu - paged causal attention on tensor cores, for formats marked READ or
 * BOTH (kernels/abi/kv_format.h). Order: online softmax over tiles of 32 positions, splits of 512
 * joined in ascending order; same bits in decode, prefill and any batch (docs/kernels.md). */
#include "kernels/abi/kv_format_text.h"
#include "kernels/cuda/attention_narrow.h"
#include "kernels/cuda/attention_wide.h"

namespace weir_cuda_attention {

/* ---- splits ---------------------------------------------------------------------------------- */
/* Where the partial of this split is, for the thread's row h. */
template <class S>
__device__ __forceinline__ void store_partial(
    const Call &call, const Unit &unit, const Rows &rows, const float (&value)[S::kPairs][2][4],
    const float (&sum)[4], int h, const Lane &lane
)
{
    const int32_t row = unit.first_row + lane.r * 16 + lane.g + h * 8;
    const int64_t index = (int64_t)(row / call.group) * unit.n_query_heads +
                          unit.table * call.group + row % call.group;
    float *const partial =
        unit.split_partials + (index * unit.plan_n_splits + unit.first_split - unit.plan_first_split
                              ) * total_floats(call);
    if (lane.t == 0 && lane.c == 0) partial[0] = rows.maximum[h], partial[1] = sum[h * 2];
#pragma unroll
    for (int n = 0; n < S::kPairs; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int d = S::dim_of(n, lane.c) + i * 8 + lane.t * 2;
            if (d < call.args.value_dim)
                partial[2 + d] = value[n][i][h * 2], partial[3 + d] = value[n][i][h * 2 + 1];
        }
}

/* Joins a split with the total of the thread's row h. The values are in the partials until the last
 * split, then in the output. */
template <class S>
__device__ __forceinline__ void join_split(
    const Call &call, const Unit &unit, Rows &rows, const float (&value)[S::kPairs][2][4],
    const float (&sum)[4], int h, bool is_first, bool is_end, const Lane &lane
)
{
    const int32_t row = unit.first_row + lane.r * 16 + lane.g + h * 8,
                  token = unit.segment.first_row + row / call.group;
    const int64_t head = (int64_t)unit.head * call.group + row % call.group,
                  index = token * call.args.n_heads + head;
    float *const partials =
        call.args.partials ? call.args.partials + index * total_floats(call) : nullptr;
    float *const to =
        call.is_last ? call.args.out + token * call.args.out_stride + head * call.args.value_dim
                     : partials + 2;
    const float *from = is_first && partials ? partials + 2 : to;
    const Join join = join_of(rows.total_maximum[h], rows.maximum[h]);
    const bool was_empty = rows.total_maximum[h] == kNothing;
    rows.total_maximum[h] = join.maximum;
    rows.total_sum[h] = joined(join, rows.total_sum[h], sum[h * 2]);
    const float scale = is_end && call.is_last ? 1.0f / rows.total_sum[h] : 1.0f;
#pragma unroll
    for (int n = 0; n < S::kPairs; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int d = S::dim_of(n, lane.c) + i / 2 * 8 + lane.t * 2 + i % 2;
            if (d < call.args.value_dim)
                to[d] = joined(join, was_empty ? 0.0f : from[d], value[n][i / 2][h * 2 + i % 2]) *
                        scale;
        }
    if (!is_end || lane.t != 0 || lane.c != 0) return;
    if (!call.is_last) partials[0] = rows.total_maximum[h], partials[1] = rows.total_sum[h];
    if (call.is_last && call.args.lse)
        call.args.lse[index] = lse_of(rows.total_maximum[h], rows.total_sum[h]);
}

/* 16 query rows (heads of a group) are one tensor tile; tiles of 32 positions arrive by
 * asynchronous copies while the previous one is used. Decode is bound by memory; prefill takes
 * 4 * (key_dim + value_dim) flops per row and position, or 6. Infinities in K or V give NaN. */
template <class S> __global__ void __launch_bounds__(kThreads, 2) attend(const Call call)
{
    weir_cuda::let_next_start();
    WEIR_DYNAMIC_SHARED(char, shared);
    const Unit unit = unit_of<S>(call);
    const Memory m = memory_of<S>(call.args.key_dim, call.args.value_dim);
    const Lane lane = lane_of<S>();
    /* A call without splits passes the total on. */
    const int32_t first_split = unit.n_splits > 0 ? unit.first_split : INT32_MAX / kSplit - 1;
    Range range = range_of(call, unit, first_split);
    load_pages(shared, m.pages, unit, first_split, range);
    weir_cuda::wait_for_previous();
    Rows rows;
    float value[S::kPairs][2][4], sum[4];
    stage_queries<S>(shared, m, call, unit);
    if (S::Format::kHasCodebook) stage_codebook<S>(shared, m, call);
    if constexpr (!S::kIsNarrow)
        clear_ends<S>(shared, m, (int)call.args.key_dim, (int)call.args.value_dim);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int32_t i = lane.r * 16 + lane.g + h * 8, row = unit.first_row + i;
        rows.last[h] = i < unit.n_rows ? unit.segment.n_past + row / call.group : -1;
        rows.total_maximum[h] = kNothing, rows.total_sum[h] = 0.0f;
        if (i >= unit.n_rows || !call.args.partials || call.first_split == 0) continue;
        const int64_t token = unit.segment.first_row + row / call.group,
                      head = (int64_t)unit.head * call.group + row % call.group;
        const float *partials =
            call.args.partials + (token * call.args.n_heads + head) * total_floats(call);
        rows.total_maximum[h] = partials[0], rows.total_sum[h] = partials[1];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; h++)
        rows.factor[h] =
            reinterpret_cast<const float *>(shared + m.factors)[lane.r * 16 + lane.g + h * 8];
    Queries<S> queries;
    if constexpr (S::kIsNarrow) load_queries<S>(queries, shared, m, lane);
    for (int32_t i = 0; i < max(unit.n_splits, 1); i++) {
        if (i > 0) {
            range = range_of(call, unit, first_split + i);
            load_pages(shared, m.pages, unit, first_split + i, range);
        }
        if constexpr (S::kIsNarrow)
            walk_narrow_split<S>(
                shared, m, call, range, unit.n_rows, rows, queries, value, sum, lane
            );
        else
            walk_wide_split<S>(shared, m, call, range, rows, value, sum, lane);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (rows.last[h] < 0) continue;
            if (unit.is_apart)
                store_partial<S>(call, unit, rows, value, sum, h, lane);
            else
                join_split<S>(
                    call, unit, rows, value, sum, h, i == 0, i + 1 >= unit.n_splits, lane
                );
        }
    }
    if (!S::Format::kHasCodebook || unit.is_apart || !call.is_last) return;
    __syncthreads(); /* the rows are written */
    for (int i = (int)threadIdx.x / kWarp; i < unit.n_rows; i += kThreads / kWarp) {
        const int32_t row = unit.first_row + i, token = unit.segment.first_row + row / call.group;
        rotate_back(
            call.args.out + token * call.args.out_stride +
                (unit.head * call.group + row % call.group) * call.args.value_dim,
            call
        );
    }
}

/* Joins the partials of a query row and head in ascending order, kThreads splits at a time. First a
 * thread finds how its split is joined, which depends on the maxima alone; then a thread joins a
 * dim, with values of kAtOnce splits loaded together. n_slices blocks share the dims of a row; one,
 * if the row is rotated back or there are partials, which all blocks read first. */
constexpr int kAtOnce = 16;
__global__ void __launch_bounds__(kThreads) join_partials(const Call call, int32_t n_slices)
{
    weir_cuda::let_next_start();
    __shared__ float2 factors[kThreads]; /* keep, add */
    __shared__ float sums[kThreads], highest[kThreads / kWarp];
    int64_t u = blockIdx.x / n_slices;
    float *split_partials;
    const int64_t s = find_segment(call, Share::Merge, &u, &split_partials);
    const Segment segment = call.given[s];
    const Plan plan = plan_of(call, segment);
    const int32_t n_query_heads = plan.n_heads * call.group;
    const int64_t token = segment.first_row + u / n_query_heads,
                  head = (int64_t)segment.first_head * call.group + u % n_query_heads;
    const int64_t index = token * call.args.n_heads + head, step = total_floats(call);
    const float *const partial = split_partials + u * plan.n_splits * step;
    float *const partials = call.args.partials ? call.args.partials + index * step : nullptr;
    const bool resumes = partials && call.first_split > 0;
    float *const to =
        call.is_last ? call.args.out + token * call.args.out_stride + head * call.args.value_dim
                     : partials + 2;
    weir_cuda::wait_for_previous();
    const int warp = (int)threadIdx.x / kWarp, lane = (int)threadIdx.x % kWarp,
              slice = (int)blockIdx.x % n_slices, width = (int)call.args.value_dim;
    float maximum = resumes ? partials[0] : kNothing, sum = resumes ? partials[1] : 0.0f;
    float value[2];
    int dim[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        dim[i] = (int)threadIdx.x + (slice + i) * kThreads;
        if (i > 0 && n_slices > 1) dim[i] = width;
        value[i] = resumes && dim[i] < width ? partials[2 + dim[i]] : 0.0f;
    }
    for (int32_t first = 0; first < plan.n_splits; first += kThreads) {
        const int n = min(plan.n_splits - first, kThreads);
        const bool is_there = (int)threadIdx.x < n;
        const float *const p = partial + (first + (int64_t)threadIdx.x) * step;
        const float own = is_there ? p[0] : kNothing, own_sum = is_there ? p[1] : 0.0f;
        float up_to = own; /* the maximum up to the thread's split */
#pragma unroll
        for (int by = 1; by < kWarp; by *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, up_to, (unsigned)by);
            if (lane >= by) up_to = fmaxf(up_to, before);
        }
        __syncthreads(); /* the splits before are joined */
        if (lane == kWarp - 1) highest[warp] = up_to;
        __syncthreads();
        float before = __shfl_up_sync(0xffffffffu, up_to, 1);
        if (lane == 0) before = kNothing;
#pragma unroll
        for (int w = 0; w < kThreads / kWarp; w++)
            if (w < warp) before = fmaxf(before, highest[w]);
        before = fmaxf(before, maximum);
        const Join join = join_of(before, own);
        factors[threadIdx.x] = make_float2(join.keep, join.add);
        sums[threadIdx.x] = own_sum;
#pragma unroll
        for (int w = 0; w < kThreads / kWarp; w++) maximum = fmaxf(maximum, highest[w]);
        __syncthreads();
        for (int at = 0; at < n; at += kAtOnce) {
            float values[kAtOnce][2];
#pragma unroll
            for (int j = 0; j < kAtOnce; j++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    values[j][i] = dim[i] < width
                                       ? partial[(first + min(at + j, n - 1)) * step + 2 + dim[i]]
                                       : 0.0f;
#pragma unroll
            for (int j = 0; j < kAtOnce; j++) {
                if (at + j >= n) break;
                const Join of = { maximum, factors[at + j].x, factors[at + j].y };
                sum = joined(of, sum, sums[at + j]);
#pragma unroll
                for (int i = 0; i < 2; i++) value[i] = joined(of, value[i], values[j][i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (dim[i] < width) to[dim[i]] = value[i] * (call.is_last ? 1.0f / sum : 1.0f);
    __syncthreads(); /* all have read the partials, and written the row */
    if (call.is_rotated && call.is_last && threadIdx.x < kWarp) rotate_back(to, call);
    if (threadIdx.x != 0 || slice != 0) return;
    if (!call.is_last) partials[0] = maximum, partials[1] = sum;
    if (call.is_last && call.args.lse) call.args.lse[index] = lse_of(maximum, sum);
}

/* ---- the row --------------------------------------------------------------------------------- */
bool is_read(weir_kv_format format) { return weir_kv_cuda_use(format) & WEIR_KV_CUDA_READ; }

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto *args = static_cast<const weir_attention_args *>(op_args);
    const weir_kv_pair others = { args->k_format, args->v_format },
                       first = weir_kv_pair_at(others, args->sinks, 0);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args->value_aliases_key) return "values that alias keys";
    const char *const why =
        weir_kv_pages_reject(others, args->sinks, args->key_dim, args->value_dim);
    if (why) return why;
    if (args->k_format != args->v_format || !is_read(args->k_format))
        return "reads KV in" WEIR_KV_CUDA_READ_TEXT;
    if (weir_kv_is_rotated(args->k_format) && (args->key_dim < 32 || args->value_dim < 32))
        return "rotated rows of 16 dims";
    if (first.k != others.k || first.v != others.v) return "reads all pages in one format";
    if (args->sink_logits) return "sink logits";
    if (args->softcap > 0) return "soft cap";
    if (args->key_dim > 256 || args->value_dim > 256) return "head wider than 256";
    if (args->value_dim % 8 != 0) return "value_dim % 8 != 0";
    for (int64_t s = 0; s < args->n_segments; s++)
        if (args->segments[s].logits) return "keeps no logits: attention_mass reads K";
    return nullptr;
}

bool is_sound(const weir_attention_args &args)
{
    if (args.n_kv_heads <= 0 || args.n_heads % args.n_kv_heads != 0 || args.key_dim <= 0 ||
        args.value_dim <= 0)
        return false;
    if (args.partials && (args.first_split < 0 || args.end_split < args.first_split)) return false;
    return weir_kv_segments_are_sound(args.segments, args.n_segments, args.n_kv_heads);
}

bool is_wide_head(const weir_attention_args &args)
{
    return args.key_dim > 128 || args.value_dim > 128;
}

Call call_of(const weir_attention_args &args)
{
    Call call = {};
    call.args = args;
    call.k_layout = weir_kv_layout_k(args.k_format, args.key_dim),
    call.v_layout = weir_kv_layout_v(args.v_format, args.value_dim);
    call.v_part = weir_kv_v_part(args.k_format, args.key_dim);
    call.group = (int32_t)(args.n_heads / args.n_kv_heads);
    call.window = args.window > 0 ? args.window : INT32_MAX;
    call.first_split = args.partials ? args.first_split * kSplitsOfOne : 0;
    call.end_split = args.partials && args.end_split < INT32_MAX / kSplitsOfOne
                         ? args.end_split * kSplitsOfOne
                         : INT32_MAX;
    call.wide_rows = !is_wide_head(args) ? 64 : weir_kv_is_lossy(args.k_format) ? kNarrowRows : 32;
    call.scale = args.scale * 1.44269504f;
    call.is_last = !args.partials || args.is_last;
    if (weir_kv_is_rotated(args.k_format)) set_turbo(call);
    return call;
}

size_t scratch(const void *op_args)
{
    const auto &args = *static_cast<const weir_attention_args *>(op_args);
    if (!is_sound(args)) return 0;
    const Call call = call_of(args);
    int64_t n = 0, most = 0; /* of a launch: the next one waits for its join */
    for (int64_t s = 0; s < args.n_segments; s++) {
        if (s % kMostGiven == 0) n = 0;
        n += plan_of(call, segment_of(args.segments[s])).n_split_partials;
        most = n > most ? n : most;
    }
    return (size_t)(most * total_floats(call)) * sizeof(float);
}

template <class S> void launch(const Call &call, int64_t n_units, cudaStream_t stream)
{
    constexpr int kMost = 99 << 10; /* of a block, on sm_86 and sm_89 */
    static_assert(!S::kIsNarrow || narrow_memory<S>().bytes <= kMost, "shared memory of a block");
    const int bytes = memory_of<S>(call.args.key_dim, call.args.value_dim).bytes;
    if (n_units == 0) return;
    if (bytes > 48 << 10 &&
        cudaFuncSetAttribute(attend<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
            cudaSuccess)
        return;
    WEIR_LAUNCH(attend<S>, (unsigned)n_units, kThreads, (size_t)bytes, stream, call);
}

/* Every block fits in the 99 KB of shared memory of sm_86 and sm_89: two stages of K and V if
 * possible, all rows in narrow blocks if wide ones do not fit. Blocks per SM for f16: decode of 128
 * 54 KB, 1 (sm_86) or 4 (sm_90), of 256 87 KB, 1 or 2; prefill of 128 69 KB, 1 or 3. */
template <class Format>
void launch_format(const Call &call, int64_t n_narrow, int64_t n_wide, cudaStream_t stream)
{
    if (is_wide_head(call.args)) {
        launch<Shape<Format, 256, 1, 4, 2>>(call, n_narrow, stream);
        if constexpr (!Format::kIsCoded) launch<Shape<Format, 256, 2, 2, 1>>(call, n_wide, stream);
    } else {
        launch<Shape<Format, 128, 1, 4, 2>>(call, n_narrow, stream);
        launch<Shape<Format, 128, 4, 1, Format::kIsCoded ? 1 : 2>>(call, n_wide, stream);
    }
}

/* For the segments that are given. */
weir_status launch_given(const Call &call, cudaStream_t stream)
{
    const weir_attention_args &args = call.args;
    int64_t n_narrow = 0, n_wide = 0, n_joins = 0;
    for (int64_t s = 0; s < args.n_segments; s++) {
        const Plan plan = plan_of(call, call.given[s]);
        n_narrow += units_of(plan, Share::Narrow), n_wide += units_of(plan, Share::Wide),
            n_joins += units_of(plan, Share::Merge);
    }
    if (n_narrow > INT32_MAX || n_wide > INT32_MAX || n_joins > INT32_MAX) return WEIR_EINVAL;
    switch (args.k_format) {
#define LAUNCH_NONE(name)
#define LAUNCH_WRITE(name)
#define LAUNCH_READ(name)                                                                          \
    case WEIR_KV_##name:                                                                           \
        launch_format<PageFormat<WEIR_KV_##name>>(call, n_narrow, n_wide, stream);                 \
        break;
#define LAUNCH_BOTH(name) LAUNCH_READ(name)
#define X(name, text, bits, scheme, coded, attention, device, cuda) LAUNCH_##cuda(name)
        WEIR_KV_FORMAT_MAP(X)
#undef X
    default: return WEIR_EUNSUPPORTED;
    }
    const int32_t n_slices = call.is_rotated || args.partials
                                 ? 1
                                 : (int32_t)((args.value_dim + kThreads - 1) / kThreads);
    if (n_joins > 0)
        WEIR_LAUNCH(
            join_partials, (unsigned)(n_joins * n_slices), kThreads, 0, stream, call, n_slices
        );
    return WEIR_OK;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_attention_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (!is_sound(args) || context->scratch_bytes < scratch(op_args)) return WEIR_EINVAL;
    Call call = call_of(args);
    call.scratch = static_cast<float *>(context->scratch);
    for (int64_t first = 0; first < args.n_segments; first += kMostGiven) {
        const int64_t left = args.n_segments - first;
        call.args.n_segments = left < kMostGiven ? left : kMostGiven;
        for (int64_t s = 0; s < call.args.n_segments; s++)
            call.given[s] = segment_of(args.segments[first + s]);
        const weir_status status = launch_given(call, stream);
        if (status != WEIR_OK) return status;
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_attention

/* Tolerance: as the single source; tensor cores also add with about 2 bits less than f32. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_attention;
const weir_kernel weir_kernel_cuda_attention = { WEIR_OP_ATTENTION,
                                                 WEIR_BACKEND_CUDA,
                                                 "cuda.attention",
                                                 2e-5,
                                                 5e-5,
                                                 weir_cuda_attention::reject,
                                                 weir_cuda_attention::scratch,
                                                 weir_cuda_attention::run,
                                                 0 };
}
