/* kernels/abi/attention_carry.h - what is known of a query row over some positions, and how two
 * such parts become one (kernels/abi/ops.h, attention).
 *
 *   carry[0]        maximum m of the scores, times log2(e); -FLT_MAX: of nothing
 *   carry[1]        l = sum of 2^(score - m)
 *   carry[2 + d]    o = sum of 2^(score - m) * V[d], not divided; turbo's V as the kernel keeps it:
 *                   rotated, or not
 * (m, l, o) + (m', l', o') = (M, l 2^(m-M) + l' 2^(m'-M), o 2^(m-M) + o' 2^(m'-M)), M = max(m, m'):
 * associative and commutative but for rounding (Dao et al. 2022; spec: tiles on any device, in any
 * order). */
#pragma once
#include <float.h>
#include <math.h>
#include <stdint.h>

static inline int64_t weir_attention_carry_floats(int64_t value_dim) { return 2 + value_dim; }

static inline void weir_attention_carry_clear(float *carry, int64_t value_dim)
{
    carry[0] = -FLT_MAX;
    for (int64_t i = 1; i < weir_attention_carry_floats(value_dim); i++) carry[i] = 0.0f;
}

/* `into` covers the positions of both. They were disjoint. */
static inline void weir_attention_carry_join(float *into, const float *from, int64_t value_dim)
{
    if (from[0] == -FLT_MAX) return;
    const float highest = into[0] > from[0] ? into[0] : from[0];
    const float keep = exp2f(into[0] - highest), add = exp2f(from[0] - highest);
    for (int64_t i = 1; i < weir_attention_carry_floats(value_dim); i++)
        into[i] = into[i] * keep + from[i] * add;
    into[0] = highest;
}

/* Natural log-sum-exp of the scaled scores. */
static inline double weir_attention_carry_lse(const float *carry)
{
    return ((double)carry[0] + log2((double)carry[1])) * 0.69314718055994531;
}
