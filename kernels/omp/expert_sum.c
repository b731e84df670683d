/* kernels/omp/expert_sum.c - the weighted sum of what a row's experts computed. Reads 4 * n_terms
 * bytes per element and writes 4. */
#include "kernels/omp/lanes.h"

enum { BLOCK = 1024 }; /* columns per unit */

#pragma omp declare target
WEIR_INLINE void sum_block(
    float *dst, const float *src, const int32_t *rows, const float *weights, int64_t n_terms,
    int64_t dim, int64_t first, int64_t end, int tid
)
{
    for (int64_t j = 0; j < n_terms; j++) {
        const float *const from = src + rows[j] * dim;
        const float weight = weights[j];
        LANES
        for (int64_t i = first + tid; i < end; i += LANE_THREADS)
            dst[i] = j == 0 ? weight * from[i] : dst[i] + weight * from[i];
    }
}
#pragma omp end declare target

static weir_status WEIR_K(expert_sum)(const weir_kernel_context *context, const void *op_args)
{
    const weir_expert_sum_args *const args = op_args;
    float *const dst = args->dst;
    const float *const src = args->src, *const weights = args->weights;
    const int32_t *const rows = args->rows;
    const int64_t n_terms = args->n_terms, dim = args->dim;
    const int64_t n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, src, weights, rows)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t t = u / n_blocks, first = u % n_blocks * BLOCK,
                          end = first + BLOCK < dim ? first + BLOCK : dim;
            sum_block(
                dst + t * dim, src, rows + t * n_terms, weights + t * n_terms, n_terms, dim, first,
                end, lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: as many roundings as terms; terms may cancel. */
extern const weir_kernel WEIR_K_ROW(expert_sum);
const weir_kernel WEIR_K_ROW(expert_sum) = {
    .op = WEIR_OP_EXPERT_SUM,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("expert_sum"),
    .atol = 2e-5,
    .rtol = 1e-6,
    .run = WEIR_K(expert_sum),
};
