/* kernels/omp/coda_combine.c - the end of differential attention (Ye et al. 2024; CoDA-GQA-L):
 * signal minus a share of the noise, then the norm of the head. Moves 12 * head_dim bytes per row
 * and head. One team per (row, KV head), whose heads are adjacent; a fixed order of summation. */
#include "kernels/omp/norm.h"

#pragma omp declare target
/* partial [LANE_THREADS] is shared by the team. */
WEIR_INLINE void combine_head(
    float *restrict dst, const float *restrict signal, const float *restrict noise,
    const float *restrict weight, float share, int64_t dim, float eps, float *partial, int tid
)
{
    float sum = 0.0f;
    LANES_SUM(sum)
    for (int64_t i = tid; i < dim; i += LANE_THREADS) {
        const float r = signal[i] - share * noise[i];
        dst[i] = r;
        sum += r * r;
    }
    if (!weight) return;
    const float scale = norm_factor(sum, dim, eps, partial, tid);
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS) dst[i] = dst[i] * scale * weight[i];
    TEAM_BARRIER
}
#pragma omp end declare target

static weir_status WEIR_K(coda_combine)(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_combine_args *const args = op_args;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->head_dim <= 0)
        return WEIR_EINVAL;
    float *const dst = args->dst;
    const float *const src = args->src, *const lambda = args->lambda, *const bias = args->bias,
                       *const weight = args->weight;
    const int64_t n_kv_heads = args->n_kv_heads, group = args->n_heads / n_kv_heads,
                  dim = args->head_dim;
    const int64_t lambda_stride = args->lambda_stride, n_units = args->n_rows * n_kv_heads;
    const float eps = args->eps;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, src, lambda, bias, weight)
    {
        float partial[LANE_THREADS];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t t = u / n_kv_heads, first = u % n_kv_heads * group;
            for (int64_t i = 0; i < group; i++) {
                const float *const signal = src + (u * 2 * group + i) * dim;
                const float x = lambda[t * lambda_stride + first + i] + bias[first + i];
                combine_head(
                    dst + (u * group + i) * dim, signal, signal + group * dim, weight,
                    lane_sigmoid(x), dim, eps, partial, lane_thread()
                );
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: the difference may cancel, and the norm then amplifies its rounding: absolute for
 * heads whose parts differ by about their length. */
extern const weir_kernel WEIR_K_ROW(coda_combine);
const weir_kernel WEIR_K_ROW(coda_combine) = {
    .op = WEIR_OP_CODA_COMBINE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("coda_combine"),
    .atol = 2e-6,
    .rtol = 4e-6,
    .run = WEIR_K(coda_combine),
};
