/* engine/kv/policy/window.c - attention of the last queries: softmax sums in two passes over tiles
 * of keys, and the pooling of the sums. Pass 1: maximum and sum of exponentials; pass 2: logits
 * again, added as probabilities. Twice the dot products, O(rows) memory (docs/policies.md). */
#include <math.h>
#include <string.h>

#include "engine/kv/policy/policy_ops.h"

void policy_softmax(float *x, int64_t n)
{
    float greatest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) greatest = x[i] > greatest ? x[i] : greatest;
    for (int64_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - greatest);
        sum += (double)x[i];
    }
    const float factor = (float)(1.0 / sum);
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

void policy_pool_mean(float *out, const float *x, int64_t n, int64_t width)
{
    const int64_t half = width / 2;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i > half ? i - half : 0, end = i + half + 1 < n ? i + half + 1 : n;
        float sum = 0;
        for (int64_t j = first; j < end; j++) sum += x[j];
        out[i] = sum / (float)width;
    }
}

void policy_pool_max(float *out, const float *x, int64_t n, int64_t width)
{
    const int64_t half = width / 2;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i > half ? i - half : 0, end = i + half + 1 < n ? i + half + 1 : n;
        float greatest = x[first];
        for (int64_t j = first + 1; j < end; j++) greatest = x[j] > greatest ? x[j] : greatest;
        out[i] = greatest;
    }
}

/* The running softmax of one query (of one head, or of a group). */
typedef struct softmax {
    float greatest;
    double sum;
} softmax;

enum {
    PIECE = 1024, /* Rows that are rotated at a time. */
    BLOCK = 128 /* query vectors at a time, unless one group has more */
};

typedef struct window {
    policy_call *call;
    const policy_head *at;
    int64_t n_rows; /* rows that are scored */
    int64_t n_queries;
    bool is_group_max;
    policy_tile tile;
    float *vectors; /* [block, key_dim] */
    float *logits; /* [block, PIECE] */
    softmax *softmaxes; /* [group or 1, n_queries] */
} window;

static int64_t block_queries(int64_t group) { return group < BLOCK ? BLOCK / group : 1; }

size_t policy_window_scratch(const weir_policy_shape *shape, int64_t n)
{
    const int64_t group = shape->n_heads / shape->n_kv_heads, block = block_queries(group) * group;
    return policy_multiply_scratch(shape) +
           policy_scratch_size((size_t)(block * shape->key_dim), sizeof(float)) +
           policy_scratch_size((size_t)(block * PIECE), sizeof(float)) +
           policy_scratch_size((size_t)(group * n), sizeof(softmax));
}

/* Queries [query, query + n) of all members to w->vectors [n, group, key_dim]. */
static void gather_queries(const window *w, int64_t query, int64_t n)
{
    const weir_policy *const policy = w->call->policy;
    const int64_t dim = policy->shape.key_dim, group = policy_group(policy);
    for (int64_t i = 0; i < n; i++) /* heads of one query are adjacent */
        memcpy(
            w->vectors + i * group * dim,
            policy_query(
                policy, w->call->state, w->at->layer, w->n_queries - 1 - query - i,
                w->at->head * group
            ),
            (size_t)(group * dim) * sizeof(float)
        );
}

/* Logits of rows [first, first + n) for the n_block gathered queries, to w->logits [n_block, group,
 * PIECE]; if the group is scored as one, its maxima are stored for the first member. */
static weir_status find_logits(const window *w, int64_t n_block, int64_t first, int64_t n)
{
    const int64_t group = policy_group(w->call->policy);
    const float scale = w->call->policy->shape.scale;
    const weir_policy_products products = { .first = first,
                                            .n = n,
                                            .n_vectors = n_block * group,
                                            .stride = PIECE,
                                            .vectors = w->vectors,
                                            .out = w->logits };
    WEIR_TRY(policy_multiply(w->call, w->at, &products, &w->tile));
    for (int64_t v = 0; v < n_block * group; v++)
        for (int64_t i = 0; i < n; i++) w->logits[v * PIECE + i] *= scale;
    for (int64_t v = 0; w->is_group_max && v < n_block * group; v++) {
        float *const greatest = w->logits + v / group * group * PIECE, *const logits =
                                                                           w->logits + v * PIECE;
        for (int64_t i = 0; v % group != 0 && i < n; i++)
            greatest[i] =
                logits[i] > greatest[i] || logits[i] != logits[i] ? logits[i] : greatest[i];
    }
    return WEIR_OK;
}

enum { LANES = 8 /* Sums and maxima in a fixed order that the compiler may vectorise. */ };

static float greatest_of(float greatest, const float *x, int64_t n)
{
    float lanes[LANES];
    int64_t i = 0;
    for (int k = 0; k < LANES; k++) lanes[k] = greatest;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
    for (int k = 0; k < LANES; k++) greatest = lanes[k] > greatest ? lanes[k] : greatest;
    for (; i < n; i++) greatest = x[i] > greatest ? x[i] : greatest;
    return greatest;
}

/* Sum of e^(x - greatest). */
static double sum_weights(const float *x, int64_t n, float greatest)
{
    double lanes[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lanes[k] += (double)policy_weight(x[i + k] - greatest);
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    for (; i < n; i++) sum += (double)policy_weight(x[i] - greatest);
    return sum;
}

static void add_to_softmax(softmax *s, const float *logits, int64_t n)
{
    const float greatest = greatest_of(s->greatest, logits, n);
    if (greatest == -INFINITY) return;
    const double before = s->sum * exp((double)s->greatest - (double)greatest);
    *s = (softmax){ .greatest = greatest, .sum = before + sum_weights(logits, n, greatest) };
}

/* How many rows of the tile the query sees: all if rows are scored together, else up to its own. */
static int64_t n_seen(const window *w, int64_t query, int64_t first, int64_t n)
{
    const int64_t end = w->is_group_max ? w->n_rows : w->at->n - w->n_queries + query + 1;
    return end - first < n ? end - first : n;
}

/* Calls `use` with the logits of every query, or of its group, over rows [0, n_all), piece by
 * piece. */
typedef void (*logits_user)(
    const window *w, int64_t query, int64_t member, const float *logits, int64_t first, int64_t n,
    float *sums
);
static weir_status each_logits(const window *w, int64_t n_all, logits_user use, float *sums)
{
    const int64_t group = policy_group(w->call->policy), n_members = w->is_group_max ? 1 : group,
                  most = block_queries(group);
    for (int64_t query = 0; query < w->n_queries; query += most) {
        const int64_t n_block = w->n_queries - query < most ? w->n_queries - query : most;
        gather_queries(w, query, n_block);
        for (int64_t first = 0; first < n_all; first += PIECE) {
            const int64_t n = n_all - first < PIECE ? n_all - first : PIECE;
            WEIR_TRY(find_logits(w, n_block, first, n));
            for (int64_t i = 0; i < n_block; i++)
                for (int64_t member = 0; member < n_members; member++) {
                    const int64_t seen = n_seen(w, query + i, first, n);
                    if (seen > 0)
                        use(w, query + i, member, w->logits + (i * group + member) * PIECE, first,
                            seen, sums);
                }
        }
    }
    return WEIR_OK;
}

static void add_weights(
    const window *w, int64_t query, int64_t member, const float *logits, int64_t first, int64_t n,
    float *sums
)
{
    (void)first, (void)sums;
    add_to_softmax(&w->softmaxes[member * w->n_queries + query], logits, n);
}

static void add_probabilities(
    const window *w, int64_t query, int64_t member, const float *logits, int64_t first, int64_t n,
    float *sums
)
{
    const softmax *const s = &w->softmaxes[member * w->n_queries + query];
    const float factor = (float)(1.0 / s->sum);
    float *const out = sums + member * w->at->n + first;
    for (int64_t i = 0; i < n; i++) out[i] += policy_weight(logits[i] - s->greatest) * factor;
}

weir_status policy_window_sums(
    policy_call *call, const policy_head *at, int64_t n_last, bool is_group_max, float *sums,
    int64_t *n_queries
)
{
    const weir_policy *const policy = call->policy;
    const int64_t group = policy_group(policy), available = policy_n_queries(policy, call->state);
    window w = { .call = call, .at = at, .n_rows = at->n - n_last, .is_group_max = is_group_max };
    w.n_queries = available < n_last ? available : n_last;
    const int64_t block = block_queries(group) * group;
    w.tile = policy_take_tile(call);
    w.vectors = policy_scratch(call, (size_t)(block * policy->shape.key_dim) * sizeof(float));
    w.logits = policy_scratch(call, (size_t)(block * PIECE) * sizeof(float));
    w.softmaxes = policy_scratch(call, (size_t)(group * policy->layout.ring) * sizeof(softmax));
    for (int64_t i = 0; i < group * w.n_queries; i++)
        w.softmaxes[i] = (softmax){ .greatest = -INFINITY };
    *n_queries = w.n_queries;
    for (int64_t i = 0; i < (is_group_max ? 1 : group) * at->n; i++) sums[i] = 0;
    WEIR_TRY(each_logits(&w, is_group_max ? w.n_rows : at->n, add_weights, NULL));
    return each_logits(&w, w.n_rows, add_probabilities, sums);
}
