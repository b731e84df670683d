/* kernels/omp/sigmoid_gate.c - x times the sigmoid of its gate: the output gate of gated attention.
 * Moves 12 bytes per element. */
#include "kernels/omp/lanes.h"

#pragma omp declare target
WEIR_INLINE void gate_head(float *head, const float *gate, int64_t dim, int tid)
{
    LANES
    for (int64_t i = tid; i < dim; i += LANE_THREADS) head[i] *= lane_sigmoid(gate[i]);
}
#pragma omp end declare target

static weir_status WEIR_K(sigmoid_gate)(const weir_kernel_context *context, const void *op_args)
{
    const weir_sigmoid_gate_args *const args = op_args;
    float *const x = args->x;
    const float *const gate = args->gate;
    const int64_t n_heads = args->n_heads, dim = args->dim, n_units = args->n_rows * n_heads;
    const int64_t x_stride = args->x_stride, x_head_stride = args->x_head_stride;
    const int64_t gate_stride = args->gate_stride, gate_head_stride = args->gate_head_stride;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, x, gate)
    {
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            gate_head(
                x + u / n_heads * x_stride + u % n_heads * x_head_stride,
                gate + u / n_heads * gate_stride + u % n_heads * gate_head_stride, dim,
                lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: the exponential is accurate to 2e-7, three roundings follow; below -87 the sigmoid
 * stays at 1e-38. */
extern const weir_kernel WEIR_K_ROW(sigmoid_gate);
const weir_kernel WEIR_K_ROW(sigmoid_gate) = {
    .op = WEIR_OP_SIGMOID_GATE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("sigmoid_gate"),
    .atol = 1e-30,
    .rtol = 1e-6,
    .run = WEIR_K(sigmoid_gate),
};
