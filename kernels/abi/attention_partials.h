/* kernels/abi/attention_partials.h - attention of a query row over some of its positions, and how
 * two such results are merged (kernels/abi/ops/attention.h).
 *
 *   partials[0]      maximum m of the scores, times log2(e); -FLT_MAX: no positions
 *   partials[1]      l = sum of 2^(score - m)
 *   partials[2 + d]  o = sum of 2^(score - m) * V[d], not divided by l; turbo's V may be rotated
 *
 *   (m, l, o) + (m', l', o') = (M, l 2^(m-M) + l' 2^(m'-M), o 2^(m-M) + o' 2^(m'-M))
 *
 * with M = max(m, m'): associative and commutative except for rounding (Dao et al. 2022). */
#pragma once
#include <float.h>
#include <math.h>
#include <stdint.h>

static inline int64_t weir_attention_partials_floats(int64_t value_dim) { return 2 + value_dim; }

static inline void weir_attention_partials_clear(float *partials, int64_t value_dim)
{
    partials[0] = -FLT_MAX;
    for (int64_t i = 1; i < weir_attention_partials_floats(value_dim); i++) partials[i] = 0.0f;
}

/* Merges `from` into `into`; their positions must be disjoint. */
static inline void weir_attention_partials_join(float *into, const float *from, int64_t value_dim)
{
    if (from[0] == -FLT_MAX) return;
    const float highest = into[0] > from[0] ? into[0] : from[0];
    const float keep = exp2f(into[0] - highest), add = exp2f(from[0] - highest);
    for (int64_t i = 1; i < weir_attention_partials_floats(value_dim); i++)
        into[i] = into[i] * keep + from[i] * add;
    into[0] = highest;
}

/* The natural log-sum-exp of the scaled scores. */
static inline double weir_attention_partials_lse(const float *partials)
{
    return ((double)partials[0] + log2((double)partials[1])) * 0.69314718055994531;
}
