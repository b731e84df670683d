/* engine/kv/policy/snapkv.c - rows that the last w queries attend to, with their neighbours (Li et
 * al. 2024, SnapKV), in three published forms: kvpress, original, decode (docs/policies.md). The
 * last w rows stay. State: the last w rotated queries; chunks give what a whole prompt gives. */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static size_t sums_bytes(const weir_policy_shape *shape, int64_t n)
{
    return policy_scratch_size((size_t)(n * shape->max_rows), sizeof(float));
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    const int64_t group = shape->n_heads / shape->n_kv_heads;
    out->needs = WEIR_POLICY_QUERIES | WEIR_POLICY_KEYS;
    out->ring = options->window;
    out->n_last = options->window;
    out->least_rows = options->window + 1;
    out->scratch = policy_window_scratch(shape, options->window) + sums_bytes(shape, group) +
                   sums_bytes(shape, 1);
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_options *const options = &call->policy->options;
    const int64_t group = policy_group(call->policy), n = at->n - options->window;
    const bool is_decode = options->variant == WEIR_SNAPKV_DECODE;
    const int64_t n_members = is_decode ? 1 : group;
    float *const sums = policy_scratch(call, sums_bytes(&call->policy->shape, group));
    float *const pooled = policy_scratch(call, sums_bytes(&call->policy->shape, 1));
    int64_t n_queries;
    WEIR_TRY(policy_window_sums(call, at, options->window, is_decode, sums, &n_queries));
    const bool is_mean = options->variant != WEIR_SNAPKV_ORIGINAL;
    const float divisor = is_mean && n_queries > 0 ? (float)(n_queries * n_members) : 1.0f;
    for (int64_t j = 0; j < at->n; j++) scores[j] = j < n ? 0 : INFINITY;
    for (int64_t m = 0; m < n_members; m++) {
        if (is_decode)
            policy_pool_max(pooled, sums, n, options->kernel);
        else
            policy_pool_mean(pooled, sums + m * at->n, n, options->kernel);
        for (int64_t j = 0; j < n; j++) scores[j] += pooled[j] / divisor;
    }
    return WEIR_OK;
}

#define SNAPKV(text, what, in_matrix, list)                                                        \
    { .name = (text),                                                                              \
      .summary = (what),                                                                           \
      .matrix_options = (in_matrix),                                                               \
      .defaults = (list),                                                                          \
      .layout = layout,                                                                            \
      .score = score }

static const policy_default kvpress[] = {
    { "window", "64" }, { "kernel", "5" }, { "variant", "kvpress" }, { NULL, NULL }
};
const weir_policy_ops policy_snapkv = SNAPKV(
    "snapkv", "rows that the last queries attend to, with their neighbours", "window=16", kvpress
);

static const policy_default original[] = {
    { "window", "32" }, { "kernel", "5" }, { "variant", "original" }, { NULL, NULL }
};
const weir_policy_ops policy_snapkv_original =
    SNAPKV("snapkv_original", "SnapKV with the sums of its first release", NULL, original);

static const policy_default decode[] = { { "window", "8" },
                                         { "kernel", "7" },
                                         { "variant", "decode" },
                                         { "trigger", "strict" },
                                         { NULL, NULL } };
const weir_policy_ops policy_snapkv_decode =
    SNAPKV("snapkv_decode", "SnapKV as used for comparisons during decoding", NULL, decode);
