/* engine/kv/policy/first_keys.c - positions inside the cache (Xiao et al. 2023): the key of row j
 * of those that always stay is the one at position j, rotated by the number of evicted rows of its
 * head, always from the original key (docs/policies.md). */
#include <inttypes.h>
#include <string.h>

#include "engine/kv/policy/plan.h"
#include "engine/kv/policy/rotate.h"

enum { ROTATED = 64 /* Rows that are rotated at a time. */ };

int64_t weir_policy_n_held(const weir_policy_state *state) { return state->n_held; }

static weir_status hold_head(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_rows *rows,
    int64_t layer, int64_t head, int64_t n
)
{
    float *const keys = policy_first_keys(policy, state, layer, head);
    for (int64_t first = 0; first < n; first += WEIR_POLICY_TILE) {
        const weir_policy_tile tile = { .layer = layer,
                                        .head = head,
                                        .first = first,
                                        .n = n - first < WEIR_POLICY_TILE ? n - first
                                                                          : WEIR_POLICY_TILE,
                                        .keys = keys + first * policy->shape.key_dim };
        WEIR_TRY(rows->read(rows->context, &tile));
    }
    return WEIR_OK;
}

/* As long as some head has no more rows than those, no row was dropped, and none can be now. */
weir_status weir_policy_hold_keys(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_rows *rows,
    weir_error *error
)
{
    const int64_t n = policy_n_first(policy, rows), n_heads = policy->shape.n_kv_heads;
    if (policy->layout.first_keys == 0 || state->n_held > 0) return WEIR_OK;
    WEIR_ASSERT(n <= policy->layout.first_keys);
    for (int64_t i = 0; i < policy->shape.n_layers * n_heads; i++)
        if (rows->n_rows[i] < n) return WEIR_OK;
    for (int64_t i = 0; i < policy->shape.n_layers * n_heads; i++) {
        const weir_status status = hold_head(policy, state, rows, i / n_heads, i % n_heads, n);
        if (status != WEIR_OK)
            return weir_error_set(
                error, status,
                "the first KV rows of layer %" PRId64 ", head %" PRId64
                " cannot be read to rotate them: %s",
                i / n_heads, i % n_heads, weir_status_text(status)
            );
    }
    state->n_held = n;
    return WEIR_OK;
}

void weir_policy_rotate_keys(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_tile *tile,
    int64_t distance
)
{
    const int64_t dim = policy->shape.key_dim;
    const float *const keys = policy_first_keys(policy, state, tile->layer, tile->head);
    int64_t distances[ROTATED];
    WEIR_ASSERT(tile->first >= 0 && tile->n >= 0 && tile->first + tile->n <= state->n_held);
    memcpy(tile->keys, keys + tile->first * dim, (size_t)(tile->n * dim) * sizeof(float));
    for (int64_t i = 0; i < ROTATED; i++) distances[i] = distance;
    for (int64_t first = 0; first < tile->n; first += ROTATED)
        weir_rows_rotate(
            tile->keys + first * dim, tile->n - first < ROTATED ? tile->n - first : ROTATED,
            distances, &policy->shape
        );
}
