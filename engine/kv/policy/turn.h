/* engine/kv/policy/turn.h - rotated rows moved to other positions, for policies with positions inside the
 * cache. */
#pragma once
#include "engine/kv/policy/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows [n, key_dim], in place: row i is turned by distances[i] positions (negative: back). Angles
 * and products in double, one rounding. A key turned again and again drifts: keep the original of
 * one that moves often. Rotation keeps RoPE's magnitude. */
void weir_rows_rotate(
    float *rows, int64_t n, const int64_t *distances, const weir_policy_shape *shape
);

#ifdef __cplusplus
}
#endif
