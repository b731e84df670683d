/* kernels/omp/coda_queries.c - signal and noise queries (Ye et al. 2024; CoDA-GQA-L): every head's
 * query as it is, and rotated by the head's angles. Unit: (head, ROWS rows), which share sines and
 * cosines. Moves 12 * head_dim bytes per row and head. */
#include "kernels/omp/lanes.h"

enum { ROWS = 16, PAIRS_MAX = 256 };

#pragma omp declare target
/* Pairs are adjacent. sine, cosine [n_pairs] are shared by the team; a thread reads what it
 * wrote. */
WEIR_INLINE void find_turns(
    float *restrict sine, float *restrict cosine, const float *restrict theta, int64_t n_pairs,
    int tid
)
{
    LANES
    for (int64_t i = tid; i < n_pairs; i += LANE_THREADS) {
        float s, c;
        lane_sine_cosine(theta[i], &s, &c);
        sine[i] = s;
        cosine[i] = c;
    }
}

WEIR_INLINE void turn_row(
    float *restrict signal, float *restrict noise, const float *restrict q,
    const float *restrict sine, const float *restrict cosine, int64_t n_pairs, int tid
)
{
    LANES
    for (int64_t i = tid; i < n_pairs; i += LANE_THREADS) {
        const float a = q[2 * i], b = q[2 * i + 1];
        signal[2 * i] = a;
        signal[2 * i + 1] = b;
        noise[2 * i] = a * cosine[i] - b * sine[i];
        noise[2 * i + 1] = a * sine[i] + b * cosine[i];
    }
}
#pragma omp end declare target

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_coda_queries_args *const args = op_args;
    (void)caps;
    return args->head_dim > 2 * PAIRS_MAX ? "head_dim > 512" : NULL;
}

static weir_status WEIR_K(coda_queries)(const weir_kernel_context *context, const void *op_args)
{
    const weir_coda_queries_args *const args = op_args;
    if (args->n_kv_heads <= 0 || args->n_heads % args->n_kv_heads != 0 || args->head_dim <= 0 ||
        args->head_dim % 2 != 0)
        return WEIR_EINVAL;
    if (reject(NULL, args)) return WEIR_EUNSUPPORTED;
    float *const dst = args->dst;
    const float *const q = args->q, *const theta = args->theta;
    const int64_t n_rows = args->n_rows, n_heads = args->n_heads,
                  group = n_heads / args->n_kv_heads, dim = args->head_dim;
    const int64_t q_stride = args->q_stride, n_units = (n_rows + ROWS - 1) / ROWS * n_heads;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, q, theta)
    {
        float sine[PAIRS_MAX], cosine[PAIRS_MAX];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t h = u % n_heads, first = u / n_heads * ROWS,
                          end = first + ROWS < n_rows ? first + ROWS : n_rows;
            find_turns(sine, cosine, theta + h * dim / 2, dim / 2, lane_thread());
            for (int64_t t = first; t < end; t++) {
                float *const signal =
                    dst + (t * 2 * n_heads + h / group * 2 * group + h % group) * dim;
                turn_row(
                    signal, signal + group * dim, q + t * q_stride + h * dim, sine, cosine, dim / 2,
                    lane_thread()
                );
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: sine and cosine are accurate to 2e-7; a rotated value may cancel, so the bound is
 * absolute in units of the pair's length. */
extern const weir_kernel WEIR_K_ROW(coda_queries);
const weir_kernel WEIR_K_ROW(coda_queries) = {
    .op = WEIR_OP_CODA_QUERIES,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("coda_queries"),
    .atol = 2e-6,
    .rtol = 1e-6,
    .reject = reject,
    .run = WEIR_K(coda_queries),
};
