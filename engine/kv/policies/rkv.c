/* engine/kv/policies/rkv.c - important rows that are no near-duplicates (Cai et al. 2025, R-KV):
 *
 *   imp_j = SnapKV's decode score                       C = cosines of all keys, zero diagonal; in each row i the entry of the last column above
 *                                                       tau is set to 0 (column 0 if there is none): the newest of a kind is not to blame
 *   red_j = softmax_j(mean_i C_ij), over all rows       score_j = lambda * imp_j - (1 - lambda) * red_j
 * The last w rows stay. Keys are the rotated ones of the cache. State: the last w queries. Cost: n * n dot products in tiles, O(n) memory. */
#include <math.h>

#include "engine/kv/policies/policy_ops.h"

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static size_t tile_bytes(const weir_policy_shape *shape) { return floats(WEIR_POLICY_TILE * shape->key_dim); }

static void layout(policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape)
{
    out->needs = WEIR_POLICY_QUERIES | WEIR_POLICY_KEYS;
    out->ring = options->window;
    out->n_last = options->window;
    out->least_rows = options->window + 1;
    out->scratch = policy_window_scratch(shape, options->window) + 2 * floats(shape->max_rows) + 2 * tile_bytes(shape) +
                   policy_scratch_size((size_t)shape->max_rows, sizeof(double));
}

static weir_status read_directions(policy_call *call, const policy_head *at, int64_t first, int64_t n, float *tile)
{
    const int64_t dim = call->policy->shape.key_dim;
    WEIR_TRY(policy_read(call, at, first, n, tile, NULL));
    for (int64_t i = 0; i < n; i++) {
        float *const key = tile + i * dim;
        const float  length = sqrtf(policy_dot(key, key, dim)) + 1e-8f;
        for (int64_t d = 0; d < dim; d++) key[d] /= length;
    }
    return WEIR_OK;
}

/* What a row of C has been seen to hold: of its last column above tau, or of column 0. */
typedef struct duplicate {
    int64_t column;
    float   cosine;
} duplicate;

/* Columns [first, first + n) of one row of C. */
static void add_row(double *sums, duplicate *last, const float *key, int64_t row, const float *columns, int64_t first, int64_t n, float tau,
                    int64_t dim)
{
    for (int64_t j = 0; j < n; j++) {
        const float cosine = first + j == row ? 0 : policy_dot(key, columns + j * dim, dim);
        sums[first + j] += (double)cosine;
        if (first + j == 0 || cosine > tau) *last = (duplicate){ .column = first + j, .cosine = cosine };
    }
}

/* red [n] over tiles of rows and of columns; read again for each tile of rows, which n * n products outweigh. */
static weir_status redundancy(policy_call *call, const policy_head *at, float *red)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const float                    tau = (float)call->policy->options.threshold;
    float *const                   rows = policy_scratch(call, tile_bytes(shape));
    float *const                   columns = policy_scratch(call, tile_bytes(shape));
    double *const                  sums = policy_scratch(call, (size_t)shape->max_rows * sizeof(double));
    duplicate                      last[WEIR_POLICY_TILE];
    for (int64_t j = 0; j < at->n; j++) sums[j] = 0;
    for (int64_t row = 0; row < at->n; row += WEIR_POLICY_TILE) {
        const int64_t n_rows = at->n - row < WEIR_POLICY_TILE ? at->n - row : WEIR_POLICY_TILE;
        WEIR_TRY(read_directions(call, at, row, n_rows, rows));
        for (int64_t column = 0; column < at->n; column += WEIR_POLICY_TILE) {
            const int64_t n = at->n - column < WEIR_POLICY_TILE ? at->n - column : WEIR_POLICY_TILE;
            WEIR_TRY(read_directions(call, at, column, n, columns));
            for (int64_t i = 0; i < n_rows; i++)
                add_row(sums, &last[i], rows + i * shape->key_dim, row + i, columns, column, n, tau, shape->key_dim);
        }
        for (int64_t i = 0; i < n_rows; i++) sums[last[i].column] -= (double)last[i].cosine;
    }
    for (int64_t j = 0; j < at->n; j++) red[j] = (float)(sums[j] / (double)at->n);
    policy_softmax(red, at->n);
    return WEIR_OK;
}

weir_status policy_rkv_parts(policy_call *call, const policy_head *at, float *importance, float *red)
{
    const weir_policy_options *const options = &call->policy->options;
    int64_t                          n_queries;
    WEIR_TRY(policy_window_sums(call, at, options->window, true, red, &n_queries));
    policy_pool_max(importance, red, at->n - options->window, options->kernel);
    for (int64_t j = 0; j < at->n - options->window && n_queries > 0; j++) importance[j] /= (float)n_queries;
    return redundancy(call, at, red);
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_options *const options = &call->policy->options;
    const float                      lambda = (float)options->lambda;
    float *const                     importance = policy_scratch(call, floats(call->policy->shape.max_rows));
    float *const                     red = policy_scratch(call, floats(call->policy->shape.max_rows));
    WEIR_TRY(policy_rkv_parts(call, at, importance, red));
    for (int64_t j = 0; j < at->n; j++) scores[j] = j < at->n - options->window ? lambda * importance[j] - (1 - lambda) * red[j] : INFINITY;
    return WEIR_OK;
}

static const policy_default defaults[] = { { "window", "8" },      { "kernel", "7" },        { "lambda", "0.1" },
                                           { "threshold", "0.5" }, { "trigger", "delayed" }, { NULL, NULL } };
const weir_policy_ops       policy_rkv = {
          .name = "rkv", .summary = "important rows that are no near-duplicates", .defaults = defaults, .layout = layout, .score = score
};
