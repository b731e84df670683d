// Merges partial results of attention (kernels/abi/attention_partials.h), to check what kernels
// write and continue from.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/abi/attention_partials.h"

namespace attention_partials {

inline void clear(float *partials, int64_t value_dim)
{
    partials[0] = -FLT_MAX;
    for (int64_t i = 1; i < weir_attention_partials_floats(value_dim); i++) partials[i] = 0.0f;
}

/* Merges `from` into `into`; their positions must be disjoint. */
inline void join(float *into, const float *from, int64_t value_dim)
{
    if (from[0] == -FLT_MAX) return;
    const float highest = into[0] > from[0] ? into[0] : from[0];
    const float keep = exp2f(into[0] - highest), add = exp2f(from[0] - highest);
    for (int64_t i = 1; i < weir_attention_partials_floats(value_dim); i++)
        into[i] = into[i] * keep + from[i] * add;
    into[0] = highest;
}

/* The natural log-sum-exp of the scaled scores. */
inline double lse(const float *partials)
{
    return (static_cast<double>(partials[0]) + log2(static_cast<double>(partials[1]))) *
           0.69314718055994531;
}

} // namespace attention_partials
