/* kernels/omp/swiglu.c - silu(gate) * up (Shazeer 2020). Moves 12 bytes per element, about 20
 * flops: bound by memory outside L2. */
#include "kernels/omp/lanes.h"

enum { BLOCK = 1024 }; /* columns per unit, so that one row keeps several threads busy */

#pragma omp declare target
WEIR_INLINE void multiply_block(
    float *dst, const float *gate, const float *up, int64_t first, int64_t end, int tid
)
{
    LANES
    for (int64_t i = first + tid; i < end; i += LANE_THREADS) dst[i] = lane_silu(gate[i]) * up[i];
}
#pragma omp end declare target

static weir_status WEIR_K(swiglu)(const weir_kernel_context *context, const void *op_args)
{
    const weir_swiglu_args *const args = op_args;
    float *const dst = args->dst;
    const float *const gate = args->gate, *const up = args->up;
    const int64_t dim = args->dim, dst_stride = args->dst_stride, gate_stride = args->gate_stride,
                  up_stride = args->up_stride;
    const int64_t n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, gate, up)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t r = u / n_blocks, first = u % n_blocks * BLOCK,
                          end = first + BLOCK < dim ? first + BLOCK : dim;
            multiply_block(
                dst + r * dst_stride, gate + r * gate_stride, up + r * up_stride, first, end,
                lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: the exponential is accurate to 2e-7, three roundings follow; below -87 silu is 0 to
 * 1e-36. */
extern const weir_kernel WEIR_K_ROW(swiglu);
const weir_kernel WEIR_K_ROW(swiglu) = {
    .op = WEIR_OP_SWIGLU,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("swiglu"),
    .atol = 1e-30,
    .rtol = 1e-6,
    .run = WEIR_K(swiglu),
};
