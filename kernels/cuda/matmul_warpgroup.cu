/* kernels/cuda/matmul_warpgroup.cu - products of bf16 and f16 weights with many rows, on sm_90a:
 * the order and the bits of matmul_halves.cu, by wgmma (decision 0093).
 *
 * A block computes places, 64 outputs for each of its warpgroups by some rows, one after another.
 * One more warp copies both operands, which lie as wgmma reads them, into a ring of stages, a step
 * of 64 inputs each. Few rows are divided into slices of places, and the block that is done last
 * with a place joins its slices. A row of the table of its own: the other one, which has the same
 * bits, can be pinned instead. Bounds: docs/kernels.md. */
#include "kernels/cuda/matmul_warpgroup.h"

namespace weir_cuda_matmul_warpgroup {

__device__ unsigned done_slices[kMostBlocks]; /* of places that blocks divide; zero between */

#ifdef WEIR_HAS_WARPGROUPS

/* A warp: a lane copies a panel's part of every stage, or a run's; past the end the last one. */
template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void copy_stages(const group &g, const plan &w, ring<SHAPE> r)
{
    const int lane = (int)threadIdx.x, of_runs = lane - SHAPE::kPanels;
    const bool is_panel = of_runs < 0, is_there = of_runs < SHAPE::kRuns;
    const int bytes = is_panel ? kPanelBytes : kRunBytes,
              to = is_panel ? lane * kPanelBytes : SHAPE::kRunsAt + of_runs * kRunBytes;
    walk<SHAPE> at;
    for (at.open(w); at.next(g, w);) {
        const product &p = g.p[at.own];
        const int64_t last_panel = (p.n_out - 1) / kPanel, last_run = (p.n_rows - 1) / kRunRows,
                      panel = at.panel + lane, run = at.run + of_runs;
        const uint8_t *from =
            is_panel ? p.weight + (panel < last_panel ? panel : last_panel) * p.panel_bytes
                     : (IS_F16 ? p.x.f16 : p.x.bf16) +
                           (run < last_run ? run : last_run) * p.steps * kRunBytes;
        const int64_t end = at.end_step(p);
        int64_t step = at.first_step(p);
        from += step * bytes;
        for (; step < end; step++) {
            weir_cuda::wait_for_phase(r.empty + r.now, r.parity ^ 1);
            if (lane == 0) weir_cuda::arrive_expecting(r.full + r.now, SHAPE::kStageBytes);
            __syncwarp();
            if (is_there)
                weir_cuda::copy_bulk(r.stage() + to, from, (unsigned)bytes, r.full + r.now);
            from += bytes;
            r.advance();
        }
    }
}

/* Writes a warpgroup's sums of a place: rows 2t and 2t + 1 of every 8, outputs g and g + 8 of the
 * warp's 16. */
template <class SHAPE>
__device__ __forceinline__ void put_sums(
    const product &p, const walk<SHAPE> &at, const typename SHAPE::sums &sums
)
{
    const int warp = (int)threadIdx.x / kWarp - kGroupWarps, g = (int)threadIdx.x % kWarp / 4,
              t = (int)threadIdx.x % 4;
    const int64_t output = at.panel * kPanel + warp * 16 + g, row = at.run * kRunRows + 2 * t;
#pragma unroll
    for (int part = 0; part < SHAPE::kParts; part++)
#pragma unroll
        for (int i = 0; i < SHAPE::kSums; i++) {
            const int64_t own = row + part * SHAPE::kPartRows + i / 4 * 8 + i % 2;
            if (own >= p.n_rows) continue;
            const float scale = p.row_scales ? p.row_scales[own] : 1.0f; /* a power of two */
            put(p, own, output + i / 2 % 2 * 8, sums[part][i] * scale);
        }
}

/* The thread's sums of a slice of a divided place. */
template <class SHAPE>
__device__ __forceinline__ float4 *partial_of(const plan &w, const walk<SHAPE> &at, int slice)
{
    return w.partial + (at.slot(w) * (int64_t)w.n_slices + slice) * SHAPE::kPartial +
           (threadIdx.x - kWarpgroup);
}

/* After the block's slices of a divided place were written: true if all are there now, and then
 * their sum is in `total`. */
template <class SHAPE>
__device__ __forceinline__ bool join(
    typename SHAPE::sums &total, const plan &w, const walk<SHAPE> &at, unsigned *shared_count
)
{
    static_assert(SHAPE::kParts == 1, "the shapes that divide have one");
    constexpr int kAll = SHAPE::kGroups * kWarpgroup;
    __threadfence();
    weir_cuda::barrier_of<kAll>(1);
    if (threadIdx.x == kWarpgroup) {
        unsigned *const done = done_slices + at.slot(w), own = (unsigned)(at.last - at.first),
                        n = atomicAdd(done, own) + own;
        if (n == w.n_slices) *done = 0;
        *shared_count = n;
        __threadfence();
    }
    weir_cuda::barrier_of<kAll>(1);
    const bool is_last = *shared_count == w.n_slices;
    weir_cuda::barrier_of<kAll>(1);
    if (!is_last) return false;
#pragma unroll
    for (int i = 0; i < SHAPE::kSums; i++) total[0][i] = 0;
#pragma unroll 1
    for (unsigned slice = 0; slice < w.n_slices; slice++) {
        const float4 *const from = partial_of(w, at, (int)slice);
#pragma unroll
        for (int i = 0; i < SHAPE::kSums / 4; i++) {
            const float4 sums = __ldcg(from + i * kAll);
            total[0][4 * i] += sums.x, total[0][4 * i + 1] += sums.y;
            total[0][4 * i + 2] += sums.z, total[0][4 * i + 3] += sums.w;
        }
    }
    return true;
}

/* Queues the products of a stage with a part of its rows. */
template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void multiply_part(
    float (&sums)[SHAPE::kSums], const uint8_t *stage, int part, bool keeps
)
{
    const int number = (int)threadIdx.x / kWarpgroup - 1;
    const weir_cuda::matrix weights = weir_cuda::matrix_of(
                                stage + number * (kGroupOutputs / kPanel) * kPanelBytes
                            ),
                            inputs = weir_cuda::matrix_of(
                                stage + SHAPE::kRunsAt +
                                part * SHAPE::kPartRows * WEIR_CUDA_HALF_ROW
                            );
    weir_cuda::fence_products();
#pragma unroll
    for (int k = 0; k < 4; k++)
        weir_cuda::multiply<IS_F16, SHAPE::kPartRows>(
            sums, weir_cuda::inputs_from(weights, k), weir_cuda::inputs_from(inputs, k),
            k > 0 || keeps
        );
    weir_cuda::commit_products();
}

/* What to do with a slice's sums of a part: add them to the total, or write them to scratch. */
template <class SHAPE>
__device__ __forceinline__ void end_slice(
    typename SHAPE::sums &total, const typename SHAPE::sums &sums, int part, float4 *to
)
{
    if constexpr (!SHAPE::kDivides) to = nullptr;
    if (!to) {
#pragma unroll
        for (int i = 0; i < SHAPE::kSums; i++) total[part][i] += sums[part][i];
        return;
    }
#pragma unroll
    for (int i = 0; i < SHAPE::kSums / 4; i++)
        __stcg(
            to + i * SHAPE::kGroups * kWarpgroup, make_float4(
                                                      sums[part][4 * i], sums[part][4 * i + 1],
                                                      sums[part][4 * i + 2], sums[part][4 * i + 3]
                                                  )
        );
}

/* A slice, `n` stages, by a warpgroup: products of a stage are computed while those of the next
 * are queued. At the slice's end it waits; the products of other warpgroups go on. */
template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void multiply_slice(
    typename SHAPE::sums &total, typename SHAPE::sums &sums, ring<SHAPE> &r, int n, float4 *to
)
{
    constexpr int kParts = SHAPE::kParts;
    int before = 0;
    const auto release = [&] {
        if (threadIdx.x % kWarp == 0) weir_cuda::arrive(r.empty + before);
    };
    for (int step = 0; step < n; step++) {
        weir_cuda::wait_for_phase(r.full + r.now, r.parity);
#pragma unroll
        for (int part = 0; part < kParts; part++)
            multiply_part<IS_F16, SHAPE>(sums[part], r.stage(), part, step > 0);
        if (step > 0) {
            weir_cuda::wait_for_products<kParts>();
            release();
        }
        before = r.now;
        r.advance();
    }
    if (kParts == 2) {
        weir_cuda::wait_for_products<1>();
        end_slice<SHAPE>(total, sums, 0, to);
    }
    weir_cuda::wait_for_products<0>();
    release();
    end_slice<SHAPE>(total, sums, kParts - 1, to);
}

template <bool IS_F16, class SHAPE>
__device__ __forceinline__ void multiply_stages(
    const group &g, const plan &w, ring<SHAPE> r, unsigned *shared_count
)
{
    typename SHAPE::sums sums = {}, total;
    walk<SHAPE> at;
    for (at.open(w); at.next(g, w);) {
        const product &p = g.p[at.own];
        const bool is_divided = SHAPE::kDivides && !at.is_whole;
#pragma unroll
        for (int i = 0; i < SHAPE::kSums * SHAPE::kParts; i++)
            total[i / SHAPE::kSums][i % SHAPE::kSums] = 0;
        for (int slice = at.first; slice < at.last; slice++) {
            const int64_t left = p.steps - slice * p.slice_steps;
            multiply_slice<IS_F16, SHAPE>(
                total, sums, r, (int)(left < p.slice_steps ? left : p.slice_steps),
                is_divided ? partial_of(w, at, slice) : nullptr
            );
        }
        if constexpr (SHAPE::kDivides)
            if (is_divided && !join(total, w, at, shared_count)) continue;
        put_sums<SHAPE>(p, at, total);
    }
}

#endif

template <bool IS_F16, class SHAPE>
__global__ void __launch_bounds__(SHAPE::kThreads, 1)
    many(const __grid_constant__ group g, const __grid_constant__ plan w)
{
#ifdef WEIR_HAS_WARPGROUPS
    WEIR_SWIZZLED_SHARED(uint8_t, shared);
    ring<SHAPE> r;
    r.open(shared);
    if (threadIdx.x == 0) r.begin();
    weir_cuda::begin_kernel();
    __syncthreads();
    if (threadIdx.x < kWarpgroup) {
        weir_cuda::give_registers<SHAPE::kCopyRegisters>();
        /* One warp: others would wait for phases that pass without them, and might miss one. */
        if (threadIdx.x < kWarp) copy_stages<IS_F16, SHAPE>(g, w, r);
    } else {
        weir_cuda::take_registers<SHAPE::kSumRegisters>();
        multiply_stages<IS_F16, SHAPE>(
            g, w, r, reinterpret_cast<unsigned *>(shared + SHAPE::kJoinedAt)
        );
    }
#else
    __trap(); /* sm_90 without 90a (toolchain/gpu.bzl), or its PTX: not a wrong answer */
#endif
}

/* ---- the launch ------------------------------------------------------------------------------ */
using wide = shape<2, 192, 2, 5, false>;
using tall = shape<3, 128, 1, 5, false>;
using divided = shape<kDividedOutputs / kGroupOutputs, kRunRows, 1, 8, true>;

template <class SHAPE> plan plan_of(group &g, const call &c)
{
    const unsigned across = (unsigned)tiles_of(g.p[0].n_rows, SHAPE::kRows);
    return { share_blocks(g, SHAPE::kOutputs) * across, across, (unsigned)g.p[0].n_slices,
             c.joint_sums };
}
inline unsigned blocks_of_device()
{
    const auto most = (unsigned)weir_cuda::device_facts().multiprocessors;
    return most < (unsigned)kMostBlocks ? most : (unsigned)kMostBlocks;
}
/* Estimated time: a stage takes `stage` ns of a block, joining divided places `join`. */
template <class SHAPE> double cost_of(group &g, const call &c, double stage, double join)
{
    const unsigned places = plan_of<SHAPE>(g, c).n_places, blocks = blocks_of_device();
    const double rounds =
        SHAPE::kDivides ? (double)places / blocks : (double)((places + blocks - 1) / blocks);
    return rounds * (double)g.p[0].steps * stage + join;
}

template <bool IS_F16, class SHAPE> void launch(group &g, const call &c)
{
    const plan w = plan_of<SHAPE>(g, c);
    const unsigned n = SHAPE::kDivides ? w.n_places * w.n_slices : w.n_places,
                   blocks = n < blocks_of_device() ? n : blocks_of_device();
    const auto kernel = many<IS_F16, SHAPE>;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHAPE::kBytes);
    WEIR_LAUNCH(kernel, blocks, SHAPE::kThreads, SHAPE::kBytes, c.stream, g, w);
}

template <bool IS_F16> void launch_cheapest(group &g, const call &c)
{
    const double of_wide = cost_of<wide>(g, c, 630, 0), of_tall = cost_of<tall>(g, c, 710, 0),
                 of_divided = cost_of<divided>(g, c, 440, 10000);
    if (g.p[0].n_rows <= kMostFewRows && of_divided < of_wide && of_divided < of_tall)
        launch<IS_F16, divided>(g, c);
    else if (of_tall < of_wide)
        launch<IS_F16, tall>(g, c);
    else
        launch<IS_F16, wide>(g, c);
}

/* ---- the row --------------------------------------------------------------------------------- */
const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    if (caps->cuda_capability / 10 != 9) return "needs sm_90";
    if (const char *why = weir_cuda_matmul::reject(caps, op_args)) return why;
    if (args.n_rows <= kLeastManyRows) return "at most 32 rows";
    for (int32_t o = 0; o < args.n_outputs; o++) {
        const weir_dtype kept = args.outputs[o].weight->dtype;
        if (!weir_cuda_is_half(kept)) return "weights are neither bf16 nor f16";
        if (kept != args.outputs[0].weight->dtype) return "weights of two types";
    }
    return nullptr;
}

/* Parts of scratch: activations, their scales; with base NULL only their sum is valid. */
size_t place(activations *x, const weir_matmul_args &args, char *base)
{
    const auto rows = (size_t)(tiles_of(args.n_rows, kRunRows) * kRunRows);
    const size_t halves = rows * (size_t)x->steps * WEIR_CUDA_HALF_ROW;
    const bool is_f16 = args.n_outputs > 0 && args.outputs[0].weight->dtype == WEIR_F16;
    if (base && is_f16)
        x->f16 = reinterpret_cast<uint8_t *>(base),
        x->inverses = reinterpret_cast<float *>(base + halves);
    else if (base)
        x->bf16 = reinterpret_cast<uint8_t *>(base);
    return halves + rows * sizeof(float);
}
activations activations_of(const weir_matmul_args &args)
{
    activations x = {};
    x.n_rows = args.n_rows, x.steps = tiles_of(args.n_in, WEIR_CUDA_STEP), x.run = kRun;
    return x;
}

size_t scratch(const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    activations x = activations_of(args);
    return place(&x, args, nullptr) + joint_bytes(args);
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    if (context->scratch_bytes < scratch(op_args)) return WEIR_EINVAL;
    if (args.n_outputs <= 0) return WEIR_OK;
    activations x = activations_of(args);
    auto *const base = static_cast<char *>(context->scratch);
    const size_t end = place(&x, args, base);
    const call c = { args, reinterpret_cast<float4 *>(base + end),
                     static_cast<cudaStream_t>(context->cuda_stream) };
    prepare(args, x, c.stream);
    group g = {};
    for (int32_t o = 0; o < args.n_outputs; o++) {
        product &p = g.p[g.n++] = product_of(args, args.outputs[o], x);
        p.row_scales = x.inverses;
    }
    if (x.f16)
        launch_cheapest<true>(g, c);
    else
        launch_cheapest<false>(g, c);
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_matmul_warpgroup

/* Tolerance: that of cuda.matmul. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_matmul_warpgroup;
const weir_kernel weir_kernel_cuda_matmul_warpgroup = { WEIR_OP_MATMUL,
                                                        WEIR_BACKEND_CUDA,
                                                        "cuda.matmul_warpgroup",
                                                        2e-5,
                                                        2e-5,
                                                        weir_cuda_matmul_warpgroup::reject,
                                                        weir_cuda_matmul_warpgroup::scratch,
                                                        weir_cuda_matmul_warpgroup::run,
                                                        0 };
}
