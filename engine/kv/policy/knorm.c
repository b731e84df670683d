/* engine/kv/policy/knorm.c - short keys get attention (Devoto et al. 2024): score_j = -|k_j|.
 * State: none. Cost: one pass over the keys. */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static size_t tile_bytes(const weir_policy_shape *shape)
{
    return policy_scratch_size((size_t)(WEIR_POLICY_TILE * shape->key_dim), sizeof(float));
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)options;
    out->needs = WEIR_POLICY_KEYS;
    out->scratch = tile_bytes(shape);
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const int64_t dim = call->policy->shape.key_dim;
    float *const tile = policy_scratch(call, tile_bytes(&call->policy->shape));
    for (int64_t first = 0; first < at->n; first += WEIR_POLICY_TILE) {
        const int64_t n = at->n - first < WEIR_POLICY_TILE ? at->n - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, tile, NULL));
        for (int64_t i = 0; i < n; i++)
            scores[first + i] = -sqrtf(policy_dot(tile + i * dim, tile + i * dim, dim));
    }
    return WEIR_OK;
}

static const policy_default defaults[] = { { NULL, NULL } };
const weir_policy_ops policy_knorm = { .name = "knorm",
                                       .summary = "rows with short keys",
                                       .matrix_options = "",
                                       .defaults = defaults,
                                       .layout = layout,
                                       .score = score };
