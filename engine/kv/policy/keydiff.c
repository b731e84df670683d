/* engine/kv/policy/keydiff.c - keys that differ from the others (Park et al. 2025, KeyDiff): anchor
 * = mean_j k_j / |k_j|, score_j = -cos(k_j, anchor). State: none. Cost: two passes over the keys
 * (docs/policies.md). */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static size_t keys_bytes(const weir_policy_shape *shape, int64_t n)
{
    return policy_scratch_size((size_t)n * (size_t)shape->key_dim, sizeof(float));
}

static size_t rows_bytes(const weir_policy_shape *shape)
{
    return policy_scratch_size((size_t)shape->max_rows, 4);
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    out->needs = WEIR_POLICY_KEYS;
    out->scratch = keys_bytes(shape, WEIR_POLICY_TILE) +
                   policy_scratch_size((size_t)shape->key_dim, sizeof(double) + sizeof(float));
    if (options->block > 0)
        out->scratch += keys_bytes(shape, shape->max_rows) + 4 * rows_bytes(shape);
}

static float length(const float *x, int64_t n) { return sqrtf(policy_dot(x, x, n)); }

/* Adds the keys' directions to anchor [dim]; in double, since all rows are summed. */
static void add_directions(double *anchor, const float *keys, int64_t n, int64_t dim)
{
    for (int64_t i = 0; i < n; i++) {
        const float inverse = 1.0f / fmaxf(length(keys + i * dim, dim), 1e-12f);
        for (int64_t d = 0; d < dim; d++) anchor[d] += (double)(keys[i * dim + d] * inverse);
    }
}

static void score_keys(
    float *scores, const float *keys, const float *anchor, int64_t n, int64_t dim
)
{
    const float anchor_length = fmaxf(length(anchor, dim), 1e-8f);
    for (int64_t i = 0; i < n; i++) {
        const float *const key = keys + i * dim;
        scores[i] =
            -policy_dot(key, anchor, dim) / (fmaxf(length(key, dim), 1e-8f) * anchor_length);
    }
}

static void finish_anchor(float *anchor, const double *sum, int64_t n, int64_t dim)
{
    for (int64_t d = 0; d < dim; d++) anchor[d] = (float)(sum[d] / (double)n);
}

typedef struct anchors {
    double *sum;
    float *mean;
} anchors;

static anchors take_anchors(policy_call *call)
{
    const size_t dim = (size_t)call->policy->shape.key_dim;
    double *const sum = policy_scratch(call, dim * (sizeof(double) + sizeof(float)));
    for (size_t d = 0; d < dim; d++) sum[d] = 0;
    return (anchors){ .sum = sum, .mean = (float *)(sum + dim) };
}

static weir_status score_plain(policy_call *call, const policy_head *at, float *scores)
{
    const int64_t dim = call->policy->shape.key_dim;
    float *const tile = policy_scratch(call, keys_bytes(&call->policy->shape, WEIR_POLICY_TILE));
    const anchors anchor = take_anchors(call);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t first = 0; first < at->n; first += WEIR_POLICY_TILE) {
            const int64_t n = at->n - first < WEIR_POLICY_TILE ? at->n - first : WEIR_POLICY_TILE;
            WEIR_TRY(policy_read(call, at, first, n, tile, NULL));
            if (pass == 0)
                add_directions(anchor.sum, tile, n, dim);
            else
                score_keys(scores + first, tile, anchor.mean, n, dim);
        }
        finish_anchor(anchor.mean, anchor.sum, at->n, dim);
    }
    return WEIR_OK;
}

/* ---- block by block -------------------------------------------------------------------------- */

typedef struct candidates {
    float *keys; /* [n, dim] */
    int32_t *slots; /* [n] ascending */
    float *scores;
    uint32_t *order;
    int32_t *best;
    int64_t n;
} candidates;

static weir_status append(
    policy_call *call, const policy_head *at, candidates *c, int64_t begin, int64_t end
)
{
    const int64_t dim = call->policy->shape.key_dim;
    for (int64_t first = begin; first < end; first += WEIR_POLICY_TILE) {
        const int64_t n = end - first < WEIR_POLICY_TILE ? end - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, c->keys + c->n * dim, NULL));
        for (int64_t i = 0; i < n; i++) c->slots[c->n++] = (int32_t)(first + i);
    }
    return WEIR_OK;
}

static void score_candidates(policy_call *call, candidates *c, anchors anchor)
{
    const int64_t dim = call->policy->shape.key_dim;
    for (int64_t d = 0; d < dim; d++) anchor.sum[d] = 0;
    add_directions(anchor.sum, c->keys, c->n, dim);
    finish_anchor(anchor.mean, anchor.sum, c->n, dim);
    score_keys(c->scores, c->keys, anchor.mean, c->n, dim);
}

static void drop_worst(policy_call *call, const policy_head *at, candidates *c)
{
    const int64_t dim = call->policy->shape.key_dim;
    const policy_head all = { .n = c->n, .n_first = at->n_first };
    policy_sort_keys(c->order, c->scores, &all, &call->plan->n_nan);
    policy_cut cut = policy_cut_keys(c->order, c->n, at->budget);
    c->n = policy_take(c->best, c->order, c->n, &cut);
    for (int64_t i = 0; i < c->n; i++) {
        c->slots[i] = c->slots[c->best[i]];
        for (int64_t d = 0; d < dim; d++) c->keys[i * dim + d] = c->keys[c->best[i] * dim + d];
    }
}

/* As in the paper: the rows that are kept so far and the next block are scored together, so a
 * dropped row never comes back. */
static weir_status score_blocks(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const anchors anchor = take_anchors(call);
    candidates c = { .keys = policy_scratch(call, keys_bytes(shape, shape->max_rows)) };
    c.slots = policy_scratch(call, rows_bytes(shape));
    c.scores = policy_scratch(call, rows_bytes(shape));
    c.order = policy_scratch(call, rows_bytes(shape));
    c.best = policy_scratch(call, rows_bytes(shape));
    int64_t end = at->budget;
    WEIR_TRY(append(call, at, &c, 0, end));
    while (end < at->n) {
        const int64_t begin = end;
        end = end + call->policy->options.block < at->n ? end + call->policy->options.block : at->n;
        WEIR_TRY(append(call, at, &c, begin, end));
        score_candidates(call, &c, anchor);
        if (end < at->n) drop_worst(call, at, &c);
    }
    for (int64_t j = 0; j < at->n; j++) scores[j] = -INFINITY;
    for (int64_t i = 0; i < c.n; i++) scores[c.slots[i]] = c.scores[i];
    return WEIR_OK;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    return call->policy->options.block > 0 && at->n > at->budget ? score_blocks(call, at, scores)
                                                                 : score_plain(call, at, scores);
}

static const policy_default defaults[] = { { "block", "0" }, { NULL, NULL } };
const weir_policy_ops policy_keydiff = { .name = "keydiff",
                                         .summary = "rows whose keys are unlike the others",
                                         .matrix_options = "",
                                         .defaults = defaults,
                                         .layout = layout,
                                         .score = score };
