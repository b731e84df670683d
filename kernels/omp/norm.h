/* kernels/omp/norm.h - the factor of a root-mean-square norm. */
#pragma once
#include "kernels/omp/lanes.h"

#include <math.h>

#pragma omp declare target
/* 1 / sqrt(mean of squares + eps) of `dim` elements whose squares the team has summed in parts,
 * this thread's in `sum`. The parts are added in order of threads; partial [LANE_THREADS] is in use
 * until the team's next barrier. */
WEIR_INLINE float norm_factor(float sum, int64_t dim, float eps, float *partial, int tid)
{
    partial[tid] = sum;
    TEAM_BARRIER
    float total = 0.0f;
    for (int t = 0; t < LANE_THREADS; t++) total += partial[t];
    return 1.0f / sqrtf(total / (float)dim + eps);
}
#pragma omp end declare target
