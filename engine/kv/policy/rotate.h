/* engine/kv/policy/rotate.h - rotates keys to other positions, for policies with positions inside
 * the cache. */
#pragma once
#include "engine/kv/policy/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rotates rows [n, key_dim] in place, row i by distances[i] positions (negative: back). Angles and
 * products in double, one rounding. Repeated rotation drifts: keep the original of a key that moves
 * often. Rotation keeps RoPE's magnitude. */
void weir_rows_rotate(
    float *rows, int64_t n, const int64_t *distances, const weir_policy_shape *shape
);

#ifdef __cplusplus
}
#endif
