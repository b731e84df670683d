#include "engine/model/blocks/coda_gates.h"

#include <math.h>

static double length_of(const float *value, int64_t width)
{
    double sum = 0.0;
    for (int64_t i = 0; i < width; i++) sum += (double)value[i] * (double)value[i];
    return sqrt(sum);
}

void weir_gates_of_values(
    float *gates, float *mean, const float *values, int64_t n_rows, int64_t width, int64_t first,
    int64_t memory
)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t n_before = first + i;
        const double n = length_of(values + i * width, width);
        const bool has_mean = n_before > 0 && *mean > 0.0f;
        const double m = has_mean ? (double)*mean : n;
        gates[i] = m > 0.0 ? (float)log(n / m) : 0.0f;
        *mean = (float)(m + (n - m) / (double)(n_before < memory ? n_before + 1 : memory));
    }
}

bool weir_gates_is_mean(float mean) { return isfinite(mean) && mean >= 0.0f; }
