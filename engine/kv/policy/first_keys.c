/* engine/kv/policy/first_keys.c - positions inside the cache (Xiao et al. 2023): the rows that
 * are held have the positions 0 .. n - 1, and the query the next one, however long the text is.
 *
 *   key of row j of those that always stay = key at position j, turned by e positions        e:
 *   rows of the head that are gone
 * Attention depends on distances alone, and all distances are then those of the published form,
 * where the window's keys and the query are moved back instead. That would turn every row at every
 * eviction; here a handful is, from the keys as they were: no drift, whatever format they are coded
 * in. State: those keys, as the pages gave them before the first row went, so that a text computed
 * again or continued from kept pages has the same. Heads count their own rows. For methods that
 * leave gaps in several places (H2O as published) all rows behind a gap would have to be turned:
 * not built. */
#include <inttypes.h>
#include <string.h>

#include "engine/kv/policy/plan.h"
#include "engine/kv/policy/turn.h"

enum { TURNED = 64 /* rows at a time */ };

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

/* As long as some head has no more rows than those, none was dropped, and none can be now. */
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
                " cannot be read to turn them: %s",
                i / n_heads, i % n_heads, weir_status_text(status)
            );
    }
    state->n_held = n;
    return WEIR_OK;
}

void weir_policy_turn_keys(
    const weir_policy *policy, const weir_policy_state *state, const weir_policy_tile *tile,
    int64_t distance
)
{
    const int64_t dim = policy->shape.key_dim;
    const float *const keys = policy_first_keys(policy, state, tile->layer, tile->head);
    int64_t distances[TURNED];
    WEIR_ASSERT(tile->first >= 0 && tile->n >= 0 && tile->first + tile->n <= state->n_held);
    memcpy(tile->keys, keys + tile->first * dim, (size_t)(tile->n * dim) * sizeof(float));
    for (int64_t i = 0; i < TURNED; i++) distances[i] = distance;
    for (int64_t first = 0; first < tile->n; first += TURNED)
        weir_rows_rotate(
            tile->keys + first * dim, tile->n - first < TURNED ? tile->n - first : TURNED,
            distances, &policy->shape
        );
}
