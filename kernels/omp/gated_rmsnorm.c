/* kernels/omp/gated_rmsnorm.c - norm, then gate: the output norm of Gated DeltaNet (Yang et al.
 * 2024); or gate, then norm: that of Mamba-2 (Dao & Gu 2024). Moves 12 * dim bytes per row, 20 with
 * the gate first; rows are heads of 64 to 256 elements, many per token, or groups of heads. One
 * team per row, a fixed order of summation. */
#include "kernels/omp/norm.h"

#pragma omp declare target
/* partial [LANE_THREADS] is shared by the team. */
WEIR_INLINE void norm_row(
    float *dst, const float *src, const float *gate, const float *weight, int64_t dim, float eps,
    float *partial, int tid
)
{
    float sum = 0.0f;
    LANES_SUM(sum)
    for (int64_t i = tid; i < dim; i += LANE_THREADS) sum += src[i] * src[i];
    const float scale = norm_factor(sum, dim, eps, partial, tid);
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS)
        dst[i] = weight[i] * (src[i] * scale) * lane_silu(gate[i]);
    TEAM_BARRIER
}

/* A lane reads only what it stored itself. */
WEIR_INLINE void gate_row(
    float *dst, const float *src, const float *gate, const float *weight, int64_t dim, float eps,
    float *partial, int tid
)
{
    float sum = 0.0f;
    LANES_SUM(sum)
    for (int64_t i = tid; i < dim; i += LANE_THREADS) {
        const float x = src[i] * lane_silu(gate[i]);
        dst[i] = x;
        sum += x * x;
    }
    const float scale = norm_factor(sum, dim, eps, partial, tid);
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS) dst[i] = weight[i] * (dst[i] * scale);
    TEAM_BARRIER
}
#pragma omp end declare target

static weir_status WEIR_K(gated_rmsnorm)(const weir_kernel_context *context, const void *op_args)
{
    const weir_gated_rmsnorm_args *const args = op_args;
    if (args->dim <= 0 || args->n_weights < 1) return WEIR_EINVAL;
    float *const dst = args->dst;
    const float *const src = args->src, *const gate = args->gate, *const weight = args->weight;
    const int64_t n_rows = args->n_rows, dim = args->dim, n_weights = args->n_weights;
    const float eps = args->eps;
    const bool gate_first = args->gate_first;
    if (n_rows <= 0) return WEIR_OK;

    TEAMS(n_rows, dst, src, gate, weight)
    {
        float partial[LANE_THREADS];
        TEAM_LANES
        for (int64_t r = lane_first_unit(); r < n_rows; r += lane_unit_step()) {
            const float *const by = weight + r % n_weights * dim;
            const int tid = lane_thread();
            if (gate_first)
                gate_row(dst + r * dim, src + r * dim, gate + r * dim, by, dim, eps, partial, tid);
            else
                norm_row(dst + r * dim, src + r * dim, gate + r * dim, by, dim, eps, partial, tid);
        }
    }
    return WEIR_OK;
}

/* Tolerance: as rmsnorm, and silu's exponential adds 2e-7. */
extern const weir_kernel WEIR_K_ROW(gated_rmsnorm);
const weir_kernel WEIR_K_ROW(gated_rmsnorm) = {
    .op = WEIR_OP_GATED_RMSNORM,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("gated_rmsnorm"),
    .atol = 1e-7,
    .rtol = 3e-6,
    .run = WEIR_K(gated_rmsnorm),
};
