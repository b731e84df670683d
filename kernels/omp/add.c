/* kernels/omp/add.c - adds rows to rows. Moves 12 bytes per element. */
#include "kernels/omp/lanes.h"

enum { BLOCK = 4096 }; /* columns per unit */

static weir_status WEIR_K(add)(const weir_kernel_context *context, const void *op_args)
{
    const weir_add_args *const args = op_args;
    float *const               dst = args->dst;
    const float *const         src = args->src;
    const int64_t              dim = args->dim, dst_stride = args->dst_stride, src_stride = args->src_stride;
    const int64_t              n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

#pragma omp target teams is_device_ptr(dst, src) device(context -> omp_device) num_teams(lane_teams(context, n_units))                     \
    thread_limit(lane_threads(context))
    {
#pragma omp parallel num_threads(LANE_THREADS)
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t r = u / n_blocks, first = u % n_blocks * BLOCK, end = first + BLOCK < dim ? first + BLOCK : dim;
            LANES
            for (int64_t i = first + lane_thread(); i < end; i += LANE_THREADS) dst[r * dst_stride + i] += src[r * src_stride + i];
        }
    }
    return WEIR_OK;
}

/* Tolerance: one rounding, the same one: exact. */
extern const weir_kernel WEIR_K_ROW(add);
const weir_kernel        WEIR_K_ROW(add) = {
           .op = WEIR_OP_ADD,
           .backend = WEIR_BACKEND_OMP,
           .name = WEIR_K_NAME("add"),
           .atol = 0.0,
           .rtol = 0.0,
           .run = WEIR_K(add),
};
