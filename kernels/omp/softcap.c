/* kernels/omp/softcap.c - cap * tanh(x / cap) in place. Moves 8 bytes per element, one
 * exponential. */
#include "kernels/omp/tanh.h"

enum { BLOCK = 1024 }; /* columns per unit */

#pragma omp declare target
WEIR_INLINE void cap_block(float *x, int64_t n, float cap, int tid)
{
    for (int64_t i = tid * LANE_WIDTH; i < n; i += LANE_THREADS * LANE_WIDTH)
        lane_store_part(x + i, lane_tanh(lane_load_part(x + i, n - i) / cap) * cap, n - i);
}
#pragma omp end declare target

static weir_status WEIR_K(softcap)(const weir_kernel_context *context, const void *op_args)
{
    const weir_softcap_args *const args = op_args;
    float *const x = args->x;
    const float cap = args->cap;
    const int64_t dim = args->dim, stride = args->stride;
    const int64_t n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, x)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t first = u % n_blocks * BLOCK, left = dim - first;
            cap_block(
                x + u / n_blocks * stride + first, left < BLOCK ? left : BLOCK, cap, lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: tanh is accurate to 5e-7, three roundings follow. */
extern const weir_kernel WEIR_K_ROW(softcap);
const weir_kernel WEIR_K_ROW(softcap) = {
    .op = WEIR_OP_SOFTCAP,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("softcap"),
    .atol = 1e-30,
    .rtol = 2e-6,
    .run = WEIR_K(softcap),
};
