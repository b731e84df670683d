/* kernels/omp/conv1d.c - short causal convolution per channel, then silu; raw inputs that the next
 * call needs go to the history. Unit: (segment, block of channels), rows in order; a lane owns its
 * channels: no barrier. 8 bytes per element and call, 2 * n_taps flops, one exponential. */
#include "kernels/omp/lanes.h"

enum {
    /* AHEAD: rows to prefetch; a block of a row is too short for the hardware's prefetch. */
    BLOCK = 256,
    TAPS_MAX = 8,
    AHEAD = 4
};

#pragma omp declare target
/* weights[j][c] = taps[c][j]; lane by lane. `n_taps` is a constant for usual values. */
WEIR_INLINE void stage_taps(
    float (*restrict weights)[BLOCK], const float *restrict taps, const int64_t n_taps, int64_t n,
    int tid
)
{
    LANES
    for (int64_t c = tid; c < n; c += LANE_THREADS)
        for (int64_t j = 0; j < n_taps; j++) weights[j][c] = taps[c * n_taps + j];
}

/* Channels [first, first + n) of one segment. taps [C, n_taps]; weights [TAPS_MAX][BLOCK], sums
 * [BLOCK] in team memory, lane by lane. */
WEIR_INLINE void convolve(
    float *dst, const float *src, float *history, const float *taps, const float *bias,
    int64_t n_rows, int64_t n_channels, int64_t n_taps, bool is_linear, int64_t first, int64_t n,
    float (*restrict weights)[BLOCK], float *restrict sums, int tid
)
{
    if (n_taps == 4)
        stage_taps(weights, taps + first * 4, 4, n, tid);
    else
        stage_taps(weights, taps + first * n_taps, n_taps, n, tid);
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t c = 0; r + AHEAD < n_rows && c < n; c += 16)
            PREFETCH(src + (r + AHEAD) * n_channels + first + c);
        LANES
        for (int64_t c = tid; c < n; c += LANE_THREADS)
            sums[c] = bias != NULL ? bias[first + c] : 0.0f;
        for (int64_t j = 0; j < n_taps; j++) {
            const int64_t row = r - n_taps + 1 + j;
            const float *const u =
                (row >= 0 ? src + row * n_channels : history + (row + n_taps - 1) * n_channels) +
                first;
            LANES
            for (int64_t c = tid; c < n; c += LANE_THREADS) sums[c] += weights[j][c] * u[c];
        }
        LANES
        for (int64_t c = tid; c < n; c += LANE_THREADS)
            dst[r * n_channels + first + c] = is_linear ? sums[c] : lane_silu(sums[c]);
    }
    for (int64_t i = 0; i < n_taps - 1;
         i++) { /* ascending: an entry is read before it is overwritten */
        const int64_t row = n_rows - n_taps + 1 + i;
        const float *const u =
            (row >= 0 ? src + row * n_channels : history + (row + n_taps - 1) * n_channels) + first;
        for (int64_t c = tid; c < n; c += LANE_THREADS) history[i * n_channels + first + c] = u[c];
    }
}
#pragma omp end declare target

static weir_status WEIR_K(conv1d)(const weir_kernel_context *context, const void *op_args)
{
    const weir_conv1d_args *const args = op_args;
    if (args->n_taps < 1 || args->n_taps > TAPS_MAX) return WEIR_EINVAL;
    float *const dst = args->dst;
    const float *const src = args->src, *const taps = args->taps, *const bias = args->bias;
    const weir_recurrent_segment *const segments = args->segments;
    const int64_t n_channels = args->n_channels, n_taps = args->n_taps,
                  n_blocks = (n_channels + BLOCK - 1) / BLOCK;
    const bool is_linear = args->is_linear;
    const int64_t n_units = args->n_segments * n_blocks;
    if (n_units <= 0) return WEIR_OK;

    TEAMS(n_units, dst, src, taps, bias, segments)
    {
        float weights[TAPS_MAX][BLOCK], sums[BLOCK];
        TEAM_LANES
        for (int64_t u = lane_first_unit(); u < n_units; u += lane_unit_step()) {
            const weir_recurrent_segment *const segment = segments + u / n_blocks;
            const int64_t first = u % n_blocks * BLOCK,
                          n = n_channels - first < BLOCK ? n_channels - first : BLOCK;
            if (segment->n_rows <= 0) continue;
            convolve(
                dst + segment->first_row * n_channels, src + segment->first_row * n_channels,
                segment->conv_history, taps, bias, segment->n_rows, n_channels, n_taps, is_linear,
                first, n, weights, sums, lane_thread()
            );
        }
    }
    return WEIR_OK;
}

/* Tolerance: up to 8 products in f32, which may cancel. */
extern const weir_kernel WEIR_K_ROW(conv1d);
const weir_kernel WEIR_K_ROW(conv1d) = {
    .op = WEIR_OP_CONV1D,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("conv1d"),
    .atol = 1e-6,
    .rtol = 4e-6,
    .run = WEIR_K(conv1d),
};
