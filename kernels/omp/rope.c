/* kernels/omp/rope.c - rotary position embedding (Su et al. 2021), half split and pairs. The angle
 * is the f32 product of position and frequency, as in training: up to the context length, in
 * radians. Sines and cosines are computed once per row and pair and shared by all heads. */
#include "kernels/omp/lanes.h"

enum { PAIRS = 128 }; /* at a time in team memory */

#pragma omp declare target
/* Of cos and sin at a position, with the temperature of queries. */
WEIR_INLINE float magnitude_at(float magnitude, float scale, int32_t length, int32_t position)
{
    if (length <= 0) return magnitude;
    const int32_t n_lengths = position / length;
    return magnitude * (1.0f + scale * lane_log((float)(1 + n_lengths)));
}

/* Pairs [first, first + n) of one row, all heads. sine, cosine [PAIRS] are shared by the team. */
WEIR_INLINE void rotate(
    float *row, const float *frequencies, float position, float magnitude, int64_t n_heads,
    int64_t head_stride, int64_t half, int64_t first, int64_t n, const bool pairs,
    float *restrict sine, float *restrict cosine, int tid
)
{
    LANES
    for (int64_t i = tid; i < n; i += LANE_THREADS) {
        float s, c;
        lane_sine_cosine(position * frequencies[first + i], &s, &c);
        sine[i] = s * magnitude;
        cosine[i] = c * magnitude;
    }
    TEAM_BARRIER
    for (int64_t h = 0; h < n_heads; h++) {
        float *const x = row + h * head_stride;
        LANES
        for (int64_t i = tid; i < n; i += LANE_THREADS) {
            float *const a = x + (pairs ? 2 * (first + i) : first + i), *const b = pairs ? a + 1
                                                                                         : a + half;
            const float u = *a, v = *b;
            *a = u * cosine[i] - v * sine[i];
            *b = v * cosine[i] + u * sine[i];
        }
    }
    TEAM_BARRIER
}
#pragma omp end declare target

static weir_status WEIR_K(rope)(const weir_kernel_context *context, const void *op_args)
{
    const weir_rope_args *const args = op_args;
    if (args->rotary_dim < 0 || args->rotary_dim % 2 != 0) return WEIR_EINVAL;
    float *const x = args->x;
    const int32_t *const positions = args->positions;
    const float *const frequencies = args->frequencies;
    const int64_t n_rows = args->n_rows, n_heads = args->n_heads, half = args->rotary_dim / 2;
    const int64_t row_stride = args->row_stride, head_stride = args->head_stride;
    const float magnitude = args->magnitude, temperature_scale = args->temperature_scale;
    const int32_t temperature_length = args->temperature_length;
    const bool pairs = args->pairing == WEIR_ROPE_PAIRS;
    if (n_rows <= 0) return WEIR_OK;

    TEAMS(n_rows, x, positions, frequencies)
    {
        float sine[PAIRS], cosine[PAIRS];
        TEAM_LANES
        for (int64_t r = lane_first_unit(); r < n_rows; r += lane_unit_step()) {
            const float own =
                magnitude_at(magnitude, temperature_scale, temperature_length, positions[r]);
            for (int64_t first = 0; first < half; first += PAIRS) {
                const int64_t n = half - first < PAIRS ? half - first : PAIRS;
                float *const row = x + r * row_stride;
                const float position = (float)positions[r];
                if (pairs)
                    rotate(
                        row, frequencies, position, own, n_heads, head_stride, half, first, n, true,
                        sine, cosine, lane_thread()
                    );
                else
                    rotate(
                        row, frequencies, position, own, n_heads, head_stride, half, first, n,
                        false, sine, cosine, lane_thread()
                    );
            }
        }
    }
    return WEIR_OK;
}

/* Tolerance: sine and cosine are accurate to 2e-7; a rotated value may cancel, so the bound is
 * absolute in units of the pair's length. */
extern const weir_kernel WEIR_K_ROW(rope);
const weir_kernel WEIR_K_ROW(rope) = {
    .op = WEIR_OP_ROPE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("rope"),
    .atol = 2e-6,
    .rtol = 2e-6,
    .run = WEIR_K(rope),
};
