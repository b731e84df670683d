/* engine/kv/policy/lagkv.c - rows that differ from the rows after them (Liang et al. 2025, LagKV):
 * partitions of `lag` rows, each scaled by the minima and maxima of the next one. Rows score by the
 * rank of their deviation, of keys and of values (docs/policies.md). */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    const int64_t dims = shape->key_dim + shape->value_dim;
    out->needs = WEIR_POLICY_KEYS | WEIR_POLICY_VALUES;
    out->least_rows = options->sinks + 2 * options->lag;
    out->scratch = floats(WEIR_POLICY_TILE * shape->key_dim) +
                   floats(WEIR_POLICY_TILE * shape->value_dim) + 2 * floats(dims) +
                   2 * floats(options->lag);
}

/* One side, keys or values. */
typedef struct side {
    float *tile, *least, *factor; /* [tile, dim], [dim], [dim]: x' = (x - least) * factor */
    float *spread; /* [lag] */
    int64_t dim;
} side;

static void include(side *s, int64_t n, bool is_first)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < s->dim; d++) {
            const float x = s->tile[i * s->dim + d];
            s->least[d] = is_first && i == 0 ? x : fminf(s->least[d], x);
            s->factor[d] = is_first && i == 0
                               ? x
                               : fmaxf(s->factor[d], x); /* the maximum until the factor is known */
        }
}

/* x' = (x - min_ref) / (max_ref - min_ref) per channel; a constant channel has no information:
 * 0. */
static void finish(side *s)
{
    for (int64_t d = 0; d < s->dim; d++)
        s->factor[d] = s->factor[d] > s->least[d] ? 1.0f / (s->factor[d] - s->least[d]) : 0.0f;
}

static float deviation(const side *s, const float *row)
{
    float sum = 0, squares = 0;
    for (int64_t d = 0; d < s->dim; d++) sum += (row[d] - s->least[d]) * s->factor[d];
    const float mean = sum / (float)s->dim;
    for (int64_t d = 0; d < s->dim; d++) {
        const float difference = (row[d] - s->least[d]) * s->factor[d] - mean;
        squares += difference * difference;
    }
    return s->dim > 1 ? sqrtf(squares / (float)(s->dim - 1)) : 0;
}

static void rank(float *ranks, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t below = 0;
        for (int64_t j = 0; j < n; j++) below += x[j] < x[i] || (x[j] == x[i] && j < i);
        ranks[i] = (float)below / (float)n;
    }
}

/* Reads the reference [first, first + lag) into least and factor. */
static weir_status read_reference(
    policy_call *call, const policy_head *at, int64_t first, int64_t lag, side *k, side *v
)
{
    for (int64_t i = 0; i < lag; i += WEIR_POLICY_TILE) {
        const int64_t n = lag - i < WEIR_POLICY_TILE ? lag - i : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first + i, n, k->tile, v->tile));
        include(k, n, i == 0);
        include(v, n, i == 0);
    }
    finish(k);
    finish(v);
    return WEIR_OK;
}

/* score_j = rank of (u^K_j + u^V_j) / 2 in the partition / lag, u: softmax over the partition of
 * the sample deviation of x'_j. */
static weir_status score_partition(
    policy_call *call, const policy_head *at, int64_t first, int64_t lag, side *k, side *v,
    float *scores
)
{
    for (int64_t i = 0; i < lag; i += WEIR_POLICY_TILE) {
        const int64_t n = lag - i < WEIR_POLICY_TILE ? lag - i : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first + i, n, k->tile, v->tile));
        for (int64_t j = 0; j < n; j++) {
            k->spread[i + j] = deviation(k, k->tile + j * k->dim);
            v->spread[i + j] = deviation(v, v->tile + j * v->dim);
        }
    }
    policy_softmax(k->spread, lag);
    policy_softmax(v->spread, lag);
    for (int64_t j = 0; j < lag; j++) k->spread[j] = (k->spread[j] + v->spread[j]) / 2;
    rank(scores + first, k->spread, lag);
    return WEIR_OK;
}

static side take_side(policy_call *call, int64_t dim, float *bounds, float *spread)
{
    float *const tile = policy_scratch(call, (size_t)(WEIR_POLICY_TILE * dim) * sizeof(float));
    return (side
    ){ .tile = tile, .least = bounds, .factor = bounds + dim, .spread = spread, .dim = dim };
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const int64_t sinks = call->policy->options.sinks, lag = call->policy->options.lag;
    float *const bounds = policy_scratch(call, 2 * floats(shape->key_dim + shape->value_dim));
    float *const spread = policy_scratch(call, floats(lag));
    side k = take_side(call, shape->key_dim, bounds, spread);
    side v = take_side(
        call, shape->value_dim, bounds + 2 * shape->key_dim, policy_scratch(call, floats(lag))
    );
    for (int64_t j = 0; j < at->n; j++) scores[j] = 1;
    for (int64_t first = sinks; first + 2 * lag <= at->n; first += lag) {
        WEIR_TRY(read_reference(call, at, first + lag, lag, &k, &v));
        WEIR_TRY(score_partition(call, at, first, lag, &k, &v, scores));
    }
    return WEIR_OK;
}

static const policy_default defaults[] = { { "sinks", "4" }, { "lag", "128" }, { NULL, NULL } };
const weir_policy_ops policy_lagkv = { .name = "lagkv",
                                       .summary = "rows that differ from the rows after them",
                                       .matrix_options = "lag=32",
                                       .defaults = defaults,
                                       .layout = layout,
                                       .score = score };
