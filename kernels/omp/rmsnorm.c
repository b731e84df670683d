/* kernels/omp/rmsnorm.c - root-mean-square norm over rows (Zhang & Sennrich 2019), with the
 * residual addition in the same pass. Moves 8 * dim bytes per row and group (16 with the addition),
 * 3 flops per element. One team per (row, group) and a fixed order of summation. */
#include "kernels/omp/norm.h"

#pragma omp declare target
/* One group by one team; thread `tid` owns elements tid, tid + LANE_THREADS, ...; partial
 * [LANE_THREADS] is shared by the team. */
WEIR_INLINE void norm_group(
    float *dst, float *src, const float *add, const float *weight, int64_t dim, float eps,
    float *partial, int tid
)
{
    float sum = 0.0f;
    if (add) {
        LANES_SUM(sum)
        for (int64_t i = tid; i < dim; i += LANE_THREADS) {
            const float x = src[i] + add[i];
            src[i] = x;
            sum += x * x;
        }
    } else {
        LANES_SUM(sum)
        for (int64_t i = tid; i < dim; i += LANE_THREADS) sum += src[i] * src[i];
    }
    const float scale = norm_factor(sum, dim, eps, partial, tid);
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS) dst[i] = src[i] * scale * weight[i];
    TEAM_BARRIER
}
#pragma omp end declare target

static weir_status WEIR_K(rmsnorm)(const weir_kernel_context *context, const void *op_args)
{
    const weir_rmsnorm_args *const args = op_args;
    if (args->dim <= 0 || (args->add && args->n_groups != 1)) return WEIR_EINVAL;
    float *const dst = args->dst, *const src = args->src;
    const float *const weight = args->weight, *const add = args->add;
    const int64_t n_groups = args->n_groups, dim = args->dim, n_units = args->n_rows * n_groups;
    const int64_t dst_stride = args->dst_stride, dst_group_stride = args->dst_group_stride;
    const int64_t src_stride = args->src_stride, src_group_stride = args->src_group_stride,
                  add_stride = args->add_stride;
    const float eps = args->eps;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, src, weight, add)
    {
        float partial[LANE_THREADS];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t r = u / n_groups, g = u % n_groups;
            norm_group(
                dst + r * dst_stride + g * dst_group_stride,
                src + r * src_stride + g * src_group_stride, add ? add + r * add_stride : NULL,
                weight, dim, eps, partial, lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: a sum of squares has relative error of about 1e-7 in any order, the root halves it,
 * three roundings follow. */
extern const weir_kernel WEIR_K_ROW(rmsnorm);
const weir_kernel WEIR_K_ROW(rmsnorm) = {
    .op = WEIR_OP_RMSNORM,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("rmsnorm"),
    .atol = 1e-7,
    .rtol = 2e-6,
    .run = WEIR_K(rmsnorm),
};
