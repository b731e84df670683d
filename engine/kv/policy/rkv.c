/* engine/kv/policy/rkv.c - important rows that are not near-duplicates (Cai et al. 2025, R-KV):
 * score_j = lambda * imp_j - (1 - lambda) * red_j, imp: SnapKV's decode score, red: softmax_j of
 * the mean cosine with all keys, without the last column above tau (docs/policies.md). */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

enum {
    BLOCK = 64, /* keys that are multiplied with the others at a time */
    PIECE = 512 /* number of those others */
};

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

/* The last column above tau that was found for a row of C. */
typedef struct duplicate {
    int64_t column; /* -1: none yet */
    float cosine;
} duplicate;

static size_t redundancy_scratch(const weir_policy_shape *shape)
{
    const size_t n = (size_t)shape->max_rows;
    return policy_multiply_scratch(shape) + floats(shape->max_rows) +
           policy_scratch_size(n, sizeof(double)) + 2 * policy_scratch_size(n, sizeof(duplicate)) +
           floats(BLOCK * shape->key_dim) + floats(BLOCK * PIECE) +
           policy_scratch_size((size_t)shape->key_dim, sizeof(double));
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    out->needs = WEIR_POLICY_QUERIES | WEIR_POLICY_KEYS;
    out->ring = options->window;
    out->n_last = options->window;
    out->least_rows = options->window + 1;
    out->scratch = policy_window_scratch(shape, options->window) + 2 * floats(shape->max_rows) +
                   redundancy_scratch(shape);
}

/* ---- redundancy ------------------------------------------------------------------------------ */

typedef struct kinship {
    policy_call *call;
    const policy_head *at;
    float tau;
    policy_tile tile;
    float *inverse; /* [n] 1 / (length + 1e-8) */
    double *sums; /* [n] of the columns of C */
    /* [n] for each row: its last column above tau among those after it, and before it. */
    duplicate *after, *before;
    float *directions; /* [BLOCK, key_dim] */
    float *products; /* [BLOCK, PIECE] */
    double *all; /* [key_dim] the sum of all directions */
} kinship;

static kinship take_kinship(policy_call *call, const policy_head *at)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const size_t n = (size_t)shape->max_rows;
    return (kinship){ .call = call,
                      .at = at,
                      .tau = (float)call->policy->options.threshold,
                      .tile = policy_take_tile(call),
                      .inverse = policy_scratch(call, floats(shape->max_rows)),
                      .sums = policy_scratch(call, n * sizeof(double)),
                      .after = policy_scratch(call, n * sizeof(duplicate)),
                      .before = policy_scratch(call, n * sizeof(duplicate)),
                      .directions = policy_scratch(call, floats(BLOCK * shape->key_dim)),
                      .products = policy_scratch(call, floats(BLOCK * PIECE)),
                      .all = policy_scratch(call, (size_t)shape->key_dim * sizeof(double)) };
}

/* Computes lengths, and the sum of all directions. */
static weir_status measure_keys(const kinship *k)
{
    const int64_t dim = k->call->policy->shape.key_dim;
    for (int64_t d = 0; d < dim; d++) k->all[d] = 0;
    for (int64_t first = 0; first < k->at->n; first += WEIR_POLICY_TILE) {
        const int64_t n = k->at->n - first < WEIR_POLICY_TILE ? k->at->n - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(k->call, k->at, first, n, k->tile.keys, NULL));
        for (int64_t i = 0; i < n; i++) {
            const float *const key = k->tile.keys + i * dim;
            const float inverse = 1.0f / (sqrtf(policy_dot(key, key, dim)) + 1e-8f);
            k->inverse[first + i] = inverse;
            for (int64_t d = 0; d < dim; d++) k->all[d] += (double)(key[d] * inverse);
        }
    }
    return WEIR_OK;
}

/* Cosines of keys [first, first + n) with `n_directions` directions, to k->products. */
static weir_status find_cosines(const kinship *k, int64_t first, int64_t n, int64_t n_directions)
{
    const weir_policy_products products = { .first = first,
                                            .n = n,
                                            .n_vectors = n_directions,
                                            .stride = PIECE,
                                            .vectors = k->directions,
                                            .out = k->products };
    WEIR_TRY(policy_multiply(k->call, k->at, &products, &k->tile));
    for (int64_t v = 0; v < n_directions; v++)
        for (int64_t i = 0; i < n; i++) k->products[v * PIECE + i] *= k->inverse[first + i];
    return WEIR_OK;
}

/* Sums of the columns without their own entry. */
static weir_status sum_columns(const kinship *k)
{
    const int64_t dim = k->call->policy->shape.key_dim;
    for (int64_t d = 0; d < dim; d++) k->directions[d] = (float)k->all[d];
    for (int64_t first = 0; first < k->at->n; first += PIECE) {
        const int64_t n = k->at->n - first < PIECE ? k->at->n - first : PIECE;
        WEIR_TRY(find_cosines(k, first, n, 1));
        for (int64_t i = 0; i < n; i++) {
            const double length = 1.0 / (double)k->inverse[first + i] - 1e-8,
                         own = length * (double)k->inverse[first + i];
            k->sums[first + i] = (double)k->products[i] - own * own;
        }
    }
    return WEIR_OK;
}

static weir_status load_directions(const kinship *k, int64_t first, int64_t n)
{
    const int64_t dim = k->call->policy->shape.key_dim;
    WEIR_TRY(policy_read(k->call, k->at, first, n, k->directions, NULL));
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < dim; d++) k->directions[i * dim + d] *= k->inverse[first + i];
    return WEIR_OK;
}

static bool any_above(const float *x, int64_t n, float tau)
{
    int count = 0;
    for (int64_t i = 0; i < n; i++) count += x[i] > tau;
    return count > 0;
}

/* Compares row j with rows [first, end) before it, from the last back. */
static void relate(const kinship *k, int64_t j, const float *cosines, int64_t first, int64_t end)
{
    if (!any_above(cosines, end - first, k->tau)) return;
    for (int64_t i = end - 1; i >= first; i--) {
        const float cosine = cosines[i - first];
        if (!(cosine > k->tau)) continue;
        if (k->after[i].column < 0) k->after[i] = (duplicate){ .column = j, .cosine = cosine };
        if (k->before[j].column < 0) k->before[j] = (duplicate){ .column = i, .cosine = cosine };
    }
}

static bool any_open(const duplicate *found, const duplicate *or_found, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        if (found[i].column < 0 && (or_found == NULL || or_found[i].column < 0)) return true;
    return false;
}

/* C is symmetric: one product of i < j gives row i a column after it and row j one before it.
 * Blocks of rows j from the last, each with all rows before it, from the last; a row's first hit is
 * its last column. Ends when all have theirs; n * n / 2 products if keys are all unlike. */
static weir_status find_duplicates(const kinship *k)
{
    for (int64_t i = 0; i < k->at->n; i++) k->after[i].column = k->before[i].column = -1;
    for (int64_t block = (k->at->n - 1) / BLOCK * BLOCK; block >= 0; block -= BLOCK) {
        const int64_t end = block + BLOCK < k->at->n ? block + BLOCK : k->at->n;
        bool is_loaded = false;
        for (int64_t first = (end - 1) / PIECE * PIECE; first >= 0; first -= PIECE) {
            const int64_t past = first + PIECE < end ? first + PIECE : end;
            if (!any_open(k->after, NULL, first, past) &&
                !any_open(k->after, k->before, block, end))
                continue;
            if (!is_loaded) WEIR_TRY(load_directions(k, block, end - block));
            is_loaded = true;
            WEIR_TRY(find_cosines(k, first, past - first, end - block));
            for (int64_t j = end - 1; j >= block; j--)
                relate(k, j, k->products + (j - block) * PIECE, first, j < past ? j : past);
        }
    }
    return WEIR_OK;
}

/* The last column above tau of row i; with tau below 0 the diagonal counts. Column 0 if there is
 * none. */
static duplicate last_of(const kinship *k, int64_t i, float with_first)
{
    if (k->after[i].column >= 0) return k->after[i];
    if (k->tau < 0) return (duplicate){ .column = i, .cosine = 0 };
    if (k->before[i].column >= 0) return k->before[i];
    return (duplicate){ .column = 0, .cosine = i > 0 ? with_first : 0 };
}

static weir_status spare_duplicates(const kinship *k)
{
    WEIR_TRY(load_directions(k, 0, 1));
    for (int64_t first = 0; first < k->at->n; first += PIECE) {
        const int64_t n = k->at->n - first < PIECE ? k->at->n - first : PIECE;
        WEIR_TRY(find_cosines(k, first, n, 1));
        for (int64_t i = 0; i < n; i++) {
            const duplicate last = last_of(k, first + i, k->products[i]);
            k->sums[last.column] -= (double)last.cosine;
        }
    }
    return WEIR_OK;
}

/* Computes red [n]. */
static weir_status redundancy(policy_call *call, const policy_head *at, float *red)
{
    const kinship k = take_kinship(call, at);
    WEIR_TRY(measure_keys(&k));
    WEIR_TRY(sum_columns(&k));
    WEIR_TRY(find_duplicates(&k));
    WEIR_TRY(spare_duplicates(&k));
    for (int64_t j = 0; j < at->n; j++) red[j] = (float)(k.sums[j] / (double)at->n);
    policy_softmax(red, at->n);
    return WEIR_OK;
}

weir_status policy_rkv_parts(
    policy_call *call, const policy_head *at, float *importance, float *red
)
{
    const weir_policy_options *const options = &call->policy->options;
    int64_t n_queries;
    WEIR_TRY(policy_window_sums(call, at, options->window, true, red, &n_queries));
    policy_pool_max(importance, red, at->n - options->window, options->kernel);
    for (int64_t j = 0; j < at->n - options->window && n_queries > 0; j++)
        importance[j] /= (float)n_queries;
    return redundancy(call, at, red);
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_options *const options = &call->policy->options;
    const float lambda = (float)options->lambda;
    float *const importance = policy_scratch(call, floats(call->policy->shape.max_rows));
    float *const red = policy_scratch(call, floats(call->policy->shape.max_rows));
    WEIR_TRY(policy_rkv_parts(call, at, importance, red));
    for (int64_t j = 0; j < at->n; j++)
        scores[j] =
            j < at->n - options->window ? lambda * importance[j] - (1 - lambda) * red[j] : INFINITY;
    return WEIR_OK;
}

static const policy_default defaults[] = { { "window", "8" },        { "kernel", "7" },
                                           { "lambda", "0.1" },      { "threshold", "0.5" },
                                           { "trigger", "delayed" }, { NULL, NULL } };
const weir_policy_ops policy_rkv = { .name = "rkv",
                                     .summary = "important rows without near-duplicates",
                                     .matrix_options = "",
                                     .defaults = defaults,
                                     .layout = layout,
                                     .score = score };
