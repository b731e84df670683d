/* kernels/omp/glu.c - gated linear units (Shazeer 2020), ReLU squared without a gate. Moves 12
 * bytes per element, about 20 flops: bound by memory outside L2. */
#include "kernels/omp/lanes.h"

enum { BLOCK = 1024 }; /* columns per unit, so that one row keeps several threads busy */

#pragma omp declare target
/* 0.5 x (1 + tanh(z)) = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3) */
WEIR_INLINE float gelu(float x)
{
    return x / (1.0f + lane_exp(-1.59576912f * x * (1.0f + 0.044715f * x * x)));
}

WEIR_INLINE float gated(float gate, float up, const weir_glu_kind kind, float limit)
{
    if (kind == WEIR_GLU_GEGLU) return gelu(gate) * up;
    if (kind == WEIR_GLU_SWIGLU) return lane_silu(gate) * up;
    if (kind == WEIR_GLU_BILINEAR) return gate * up;
    if (kind == WEIR_GLU_RELU2) return gate > 0.0f ? gate * gate : 0.0f;
    const float g = gate < limit ? gate : limit, below = up < limit ? up : limit,
                u = below > -limit ? below : -limit;
    return g / (1.0f + lane_exp(-1.702f * g)) * (u + 1.0f);
}

WEIR_INLINE void multiply_block(
    float *dst, const float *gate, const float *up, int64_t first, int64_t end,
    const weir_glu_kind kind, float limit, int tid
)
{
    LANES
    for (int64_t i = first + tid; i < end; i += LANE_THREADS)
        dst[i] = gated(gate[i], up[i], kind, limit);
}
#pragma omp end declare target

static weir_status WEIR_K(glu)(const weir_kernel_context *context, const void *op_args)
{
    const weir_glu_args *const args = op_args;
    float *const dst = args->dst;
    const float *const gate = args->gate, *const up = args->up;
    const int64_t dim = args->dim, dst_stride = args->dst_stride, gate_stride = args->gate_stride,
                  up_stride = args->up_stride;
    const weir_glu_kind kind = args->kind;
    const float limit = args->limit;
    const int64_t n_blocks = (dim + BLOCK - 1) / BLOCK, n_units = args->n_rows * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, gate, up)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const int64_t r = u / n_blocks, first = u % n_blocks * BLOCK,
                          end = first + BLOCK < dim ? first + BLOCK : dim;
            float *const to = dst + r * dst_stride;
            const float *const g = gate + r * gate_stride, *const x = up + r * up_stride;
            const int tid = lane_thread();
            switch (kind) {
            case WEIR_GLU_SWIGLU:
                multiply_block(to, g, x, first, end, WEIR_GLU_SWIGLU, limit, tid);
                break;
            case WEIR_GLU_GEGLU:
                multiply_block(to, g, x, first, end, WEIR_GLU_GEGLU, limit, tid);
                break;
            case WEIR_GLU_BILINEAR:
                multiply_block(to, g, x, first, end, WEIR_GLU_BILINEAR, limit, tid);
                break;
            case WEIR_GLU_CLAMPED:
                multiply_block(to, g, x, first, end, WEIR_GLU_CLAMPED, limit, tid);
                break;
            case WEIR_GLU_RELU2: /* up is not read: it may be NULL */
                multiply_block(to, g, g, first, end, WEIR_GLU_RELU2, limit, tid);
                break;
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: the exponential is accurate to 2e-7, three roundings follow; below -87 silu is 0 to
 * 1e-36. Rounding in gelu's exponent, 11 at x = -4, multiplies the error of values below 1e-4. */
extern const weir_kernel WEIR_K_ROW(glu);
const weir_kernel WEIR_K_ROW(glu) = {
    .op = WEIR_OP_GLU,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("glu"),
    .atol = 1e-9,
    .rtol = 2e-6,
    .run = WEIR_K(glu),
};
