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
#include <stdint.h>

static inline int64_t weir_attention_partials_floats(int64_t value_dim) { return 2 + value_dim; }
