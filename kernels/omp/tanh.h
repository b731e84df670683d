/* kernels/omp/tanh.h - hyperbolic tangent of lanes, for soft caps. */
#pragma once
#include "kernels/omp/lanes.h"

#pragma omp declare target
/* tanh x with relative error 5e-7: a series below 0.35, where 1 - 2 / (1 + e^2x) would lose
 * digits. */
WEIR_INLINE lane_float lane_tanh(lane_float x)
{
    const lane_float z = x * x,
                     exponent = lane_select(x > 43.0f, (lane_float)43.0f, x) * 2.88539008f;
    const lane_float series =
        ((((-8.8632355e-3f * z + 2.1869489e-2f) * z - 5.3968254e-2f) * z + 1.3333333e-1f) * z -
         3.3333333e-1f) *
            (z * x) +
        x;
    const lane_float whole = 1.0f - 2.0f / (1.0f + lane_exp2(exponent));
    return lane_select(z < 0.1225f, series, whole);
}
#pragma omp end declare target
