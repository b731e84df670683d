/* engine/kv/policy/state.c - a policy's state of one sequence: one block without pointers, so a
 * fork is a memcpy. New rows have values 0; values of evicted rows are removed. Layout:
 * docs/policies.md. */
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/policy/plan.h"

/* lengths int64 [layers, sets]; values f32 [layers, sets, row_values, max_rows]; ring f32 [layers,
 * ring, query heads, key_dim]: position p in entry p % ring; sums f64 [layers, sums]; keys f32
 * [layers, KV heads, first_keys, key_dim], before rotation. Sets: one per layer or per KV head. */
typedef struct parts {
    size_t lengths, values, ring, sums, keys, end; /* offsets */
} parts;

static bool add_part(size_t *at, size_t size, int64_t a, int64_t b, int64_t c, int64_t d)
{
    size_t bytes = size;
    return weir_mul_size(&bytes, bytes, (size_t)a) && weir_mul_size(&bytes, bytes, (size_t)b) &&
           weir_mul_size(&bytes, bytes, (size_t)c) && weir_mul_size(&bytes, bytes, (size_t)d) &&
           weir_align_size(&bytes, bytes, 8) && weir_add_size(at, *at, bytes);
}

static bool parts_of(parts *out, const weir_policy_shape *shape, const policy_layout *layout)
{
    const int64_t n_layers = shape->n_layers, n_sets = layout->is_per_layer ? 1 : shape->n_kv_heads;
    size_t at = sizeof(weir_policy_state);
    out->lengths = at;
    if (!add_part(&at, sizeof(int64_t), n_layers, n_sets, 1, 1)) return false;
    out->values = at;
    if (!add_part(&at, sizeof(float), n_layers, n_sets, layout->row_values, shape->max_rows))
        return false;
    out->ring = at;
    if (!add_part(&at, sizeof(float), n_layers, layout->ring, shape->n_heads, shape->key_dim))
        return false;
    out->sums = at;
    if (!add_part(&at, sizeof(double), n_layers, layout->sums, 1, 1)) return false;
    out->keys = at;
    if (!add_part(
            &at, sizeof(float), n_layers, shape->n_kv_heads, layout->first_keys, shape->key_dim
        ))
        return false;
    out->end = at;
    return true;
}

bool policy_state_size(size_t *bytes, const weir_policy_shape *shape, const policy_layout *layout)
{
    parts p;
    if (!parts_of(&p, shape, layout)) return false;
    *bytes = p.end;
    return true;
}

static parts parts_in(const weir_policy *policy)
{
    parts p = { 0 };
    WEIR_ASSERT(parts_of(&p, &policy->shape, &policy->layout)); /* was checked when it was opened */
    return p;
}

int64_t policy_n_sets(const weir_policy *policy)
{
    return policy->layout.is_per_layer ? 1 : policy->shape.n_kv_heads;
}

int64_t policy_group(const weir_policy *policy)
{
    return policy->shape.n_heads / policy->shape.n_kv_heads;
}

static int64_t set_of(const weir_policy *policy, int64_t layer, int64_t head)
{
    return policy->layout.is_per_layer ? layer : layer * policy->shape.n_kv_heads + head;
}

int64_t *policy_lengths(const weir_policy *policy, const weir_policy_state *state)
{
    return (int64_t *)((char *)(uintptr_t)state + parts_in(policy).lengths);
}

int64_t policy_n_values(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head
)
{
    return policy_lengths(policy, state)[set_of(policy, layer, head)];
}

float *policy_values(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head,
    int64_t which
)
{
    float *const values = (float *)((char *)(uintptr_t)state + parts_in(policy).values);
    return values + (set_of(policy, layer, head) * policy->layout.row_values + which) *
                        policy->shape.max_rows;
}

double *policy_sums(const weir_policy *policy, const weir_policy_state *state, int64_t layer)
{
    return (double *)((char *)(uintptr_t)state + parts_in(policy).sums) +
           layer * policy->layout.sums;
}

float *policy_first_keys(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head
)
{
    float *const keys = (float *)((char *)(uintptr_t)state + parts_in(policy).keys);
    return keys + (layer * policy->shape.n_kv_heads + head) * policy->layout.first_keys *
                      policy->shape.key_dim;
}

/* [query heads, key_dim] */
static float *ring_entry(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t position
)
{
    float *const ring = (float *)((char *)(uintptr_t)state + parts_in(policy).ring);
    return ring + (layer * policy->layout.ring + position % policy->layout.ring) *
                      policy->shape.n_heads * policy->shape.key_dim;
}

int64_t policy_n_queries(const weir_policy *policy, const weir_policy_state *state)
{
    return state->n_observed < policy->layout.ring ? state->n_observed : policy->layout.ring;
}

const float *policy_query(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t back,
    int64_t query_head
)
{
    WEIR_DASSERT(back >= 0 && back < policy_n_queries(policy, state));
    return ring_entry(policy, state, layer, state->next_position - 1 - back) +
           query_head * policy->shape.key_dim;
}

size_t weir_policy_state_bytes(const weir_policy *policy) { return policy->state_bytes; }

void weir_policy_reset(const weir_policy *policy, weir_policy_state *state)
{
    memset(state, 0, policy->state_bytes);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Removes values of rows past the end (after a rewind); those of new rows are 0. */
static void grow(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        int64_t *const n = &policy_lengths(policy, state)[set_of(policy, o->layer, set)];
        const int64_t n_rows = o->n_rows[set], n_old = n_rows - o->n_queries;
        WEIR_ASSERT(n_old >= 0 && n_rows <= policy->shape.max_rows);
        if (*n > n_old) *n = n_old;
        for (int64_t i = 0; i < policy->layout.row_values; i++)
            memset(
                policy_values(policy, state, o->layer, set, i) + *n, 0,
                (size_t)(n_rows - *n) * sizeof(float)
            );
        *n = n_rows;
    }
}

static void remember_queries(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    const int64_t n = o->n_queries < policy->layout.ring ? o->n_queries : policy->layout.ring,
                  dim = policy->shape.key_dim;
    WEIR_ASSERT(o->queries.n >= n);
    for (int64_t i = 0; i < n; i++) {
        float *const entry =
            ring_entry(policy, state, o->layer, o->first_position + o->n_queries - n + i);
        for (int64_t h = 0; h < policy->shape.n_heads; h++)
            memcpy(
                entry + h * dim,
                o->queries.data + h * o->queries.head_stride +
                    (o->queries.n - n + i) * o->queries.row_stride,
                (size_t)dim * sizeof(float)
            );
    }
}

void weir_policy_observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *observation
)
{
    WEIR_ASSERT(
        observation->layer >= 0 && observation->layer < policy->shape.n_layers &&
        observation->n_queries > 0
    );
    if (policy->layout.row_values > 0) grow(policy, state, observation);
    if (policy->layout.ring > 0) remember_queries(policy, state, observation);
    if (policy->options.ops->observe != NULL)
        policy->options.ops->observe(policy, state, observation);
}

void weir_policy_advance(
    const weir_policy *policy, weir_policy_state *state, int64_t n_queries, int64_t next_position
)
{
    (void)policy;
    const bool is_next = state->next_position == next_position - n_queries;
    state->n_observed = (is_next ? state->n_observed : 0) + n_queries;
    state->next_position = next_position;
    state->n_forwards++;
}

void weir_policy_follow(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_plan *plan
)
{
    for (int64_t layer = 0; policy->layout.row_values > 0 && layer < policy->shape.n_layers;
         layer++)
        for (int64_t set = 0; set < policy_n_sets(policy); set++) {
            const int64_t head = layer * policy->shape.n_kv_heads + set;
            const int32_t *const keep = plan->keep + head * policy->shape.max_rows;
            int64_t *const n = &policy_lengths(policy, state)[set_of(policy, layer, set)];
            WEIR_ASSERT(plan->n_keep[head] <= *n);
            *n = plan->n_keep[head];
            for (int64_t i = 0; i < policy->layout.row_values; i++) {
                float *const values = policy_values(policy, state, layer, set, i);
                for (int64_t row = 0; row < *n; row++) values[row] = values[keep[row]];
            }
        }
}
