#include "engine/kv/policy/rotate.h"

#include <math.h>

void weir_rows_rotate(
    float *rows, int64_t n, const int64_t *distances, const weir_policy_shape *shape
)
{
    const int64_t n_bands = shape->rotary_dim / 2;
    for (int64_t i = 0; i < n; i++) {
        float *const row = rows + i * shape->key_dim;
        for (int64_t f = 0; f < n_bands; f++) {
            const double angle = shape->frequencies[f] * (double)distances[i], c = cos(angle),
                         s = sin(angle);
            float *const a = row + (shape->is_interleaved ? 2 * f : f), *const b =
                                                                            row +
                                                                            (shape->is_interleaved
                                                                                 ? 2 * f + 1
                                                                                 : f + n_bands);
            const double re = (double)*a, im = (double)*b;
            *a = (float)(re * c - im * s);
            *b = (float)(re * s + im * c);
        }
    }
}
