/* engine/kv/policy/calibration_internal.h - the statistics in memory; shared by their reader,
 * writer and accumulator. */
#pragma once
#include "engine/kv/policy/calibration.h"

struct weir_calibration {
    int64_t n_layers, n_heads, n_kv_heads, head_dim, n_bands;
    float theta, magnitude;
    bool has_identity; /* the following fields are known */
    uint64_t model[2];
    uint64_t n_queries;
    int64_t rotary_dim;
    bool is_after_norm, is_interleaved;
    size_t bytes;
    float *budget_scale; /* [layers] */
    float *frequencies; /* [bands] */
    /* [layers, heads, 3 * bands + head_dim - rotary_dim]: re, im, length, plain; the last part
     * with has_identity */
    float *heads;
};

/* Sets all numbers to 0 and the sizes from `sizes`. Returns EINVAL if a size does not fit,
 * ENOMEM. */
WEIR_MUST_CHECK weir_status
calibration_take(weir_calibration **out, const weir_calibration *sizes, weir_error *error);
float *calibration_head(const weir_calibration *calibration, int64_t layer, int64_t query_head);
/* Returns NULL, or what is wrong with the numbers. */
const char *calibration_reject(const weir_calibration *calibration);
