/* kernels/omp/add.c - adds rows to rows. Moves 12 bytes per element. */
#include "kernels/omp/lanes.h"

enum { BLOCK = 4096 }; /* columns per unit */

#pragma omp declare target
WEIR_INLINE void add_block(float *dst, const float *src, int64_t first, int64_t end, int tid)
{
    LANES
    for (int64_t i = first + tid; i < end; i += LANE_THREADS) dst[i] += src[i];
}
#pragma omp end declare target

static weir_status WEIR_K(add)(const weir_kernel_context *context, const void *op_args)
{
    const weir_add_args *const args = op_args;
    float *const dst = args->dst;
    const float *const src = args->src;
    const int64_t dim = args->dim, dst_stride = args->dst_stride, src_stride = args->src_stride;
    const int64_t n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, src)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t r = u / n_blocks, first = u % n_blocks * BLOCK,
                          end = first + BLOCK < dim ? first + BLOCK : dim;
            add_block(dst + r * dst_stride, src + r * src_stride, first, end, lane_thread());
        }
    }
    return WEIR_OK;
}

/* Tolerance: both round once, in the same way: exact. */
extern const weir_kernel WEIR_K_ROW(add);
const weir_kernel WEIR_K_ROW(add) = {
    .op = WEIR_OP_ADD,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("add"),
    .atol = 0.0,
    .rtol = 0.0,
    .run = WEIR_K(add),
};
