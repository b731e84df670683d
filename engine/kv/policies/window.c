/* engine/kv/policies/window.c - what the last queries of a text make of its rows: softmax sums in two passes over tiles of keys, so that no
 * row of logits is kept, and the pooling behind them.
 *
 * Pass 1 finds each query's greatest logit and the sum of exponentials, pass 2 computes the logits again and adds probabilities up per row. Two
 * times the dot products, O(rows) memory. Queries are those of the ring; query i of w sees rows [0, n - w + i]. */
#include <math.h>

#include "engine/kv/policies/policy_ops.h"

void policy_softmax(float *x, int64_t n)
{
    float  greatest = -INFINITY;
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
        float         sum = 0;
        for (int64_t j = first; j < end; j++) sum += x[j];
        out[i] = sum / (float)width;
    }
}

void policy_pool_max(float *out, const float *x, int64_t n, int64_t width)
{
    const int64_t half = width / 2;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = i > half ? i - half : 0, end = i + half + 1 < n ? i + half + 1 : n;
        float         greatest = x[first];
        for (int64_t j = first + 1; j < end; j++) greatest = x[j] > greatest ? x[j] : greatest;
        out[i] = greatest;
    }
}

/* The running softmax of one query (of one head, or of a group). */
typedef struct softmax {
    float  greatest;
    double sum;
} softmax;

typedef struct window {
    policy_call       *call;
    const policy_head *at;
    int64_t            n_rows; /* that are judged */
    int64_t            n_queries;
    bool               is_group_max;
    float             *tile; /* [WEIR_POLICY_TILE, key_dim] */
    float             *logits; /* [WEIR_POLICY_TILE] */
    softmax           *softmaxes; /* [group or 1, n_queries] */
} window;

size_t policy_window_scratch(const weir_policy_shape *shape, int64_t n)
{
    return policy_scratch_size((size_t)(WEIR_POLICY_TILE * shape->key_dim), sizeof(float)) +
           policy_scratch_size(WEIR_POLICY_TILE, sizeof(float)) +
           policy_scratch_size((size_t)(shape->n_heads / shape->n_kv_heads * n), sizeof(softmax));
}

/* Logits of rows [first, first + n) for the query; `member` of the group, or the greatest of all. */
static void tile_logits(const window *w, int64_t query, int64_t member, int64_t n)
{
    const weir_policy *const policy = w->call->policy;
    const int64_t            dim = policy->shape.key_dim, group = policy_group(policy), back = w->n_queries - 1 - query;
    const int64_t            first_member = w->is_group_max ? 0 : member, end_member = w->is_group_max ? group : member + 1;
    for (int64_t i = 0; i < n; i++) w->logits[i] = -INFINITY;
    for (int64_t m = first_member; m < end_member; m++) {
        const float *const q = policy_query(policy, w->call->state, w->at->layer, back, w->at->head * group + m);
        for (int64_t i = 0; i < n; i++) {
            const float logit = policy_dot(q, w->tile + i * dim, dim) * policy->shape.scale;
            w->logits[i] = logit > w->logits[i] || logit != logit ? logit : w->logits[i];
        }
    }
}

static void add_to_softmax(softmax *s, const float *logits, int64_t n)
{
    float greatest = s->greatest;
    for (int64_t i = 0; i < n; i++) greatest = logits[i] > greatest ? logits[i] : greatest;
    if (greatest == -INFINITY) return;
    double sum = s->sum * exp((double)s->greatest - (double)greatest);
    for (int64_t i = 0; i < n; i++) sum += (double)expf(logits[i] - greatest);
    *s = (softmax){ .greatest = greatest, .sum = sum };
}

/* How many rows of the tile the query sees: all that are judged together, or up to its own. */
static int64_t n_seen(const window *w, int64_t query, int64_t first, int64_t n)
{
    const int64_t end = w->is_group_max ? w->n_rows : w->at->n - w->n_queries + query + 1;
    return end - first < n ? end - first : n;
}

static weir_status first_pass(const window *w)
{
    const int64_t n_members = w->is_group_max ? 1 : policy_group(w->call->policy), n_all = w->is_group_max ? w->n_rows : w->at->n;
    for (int64_t first = 0; first < n_all; first += WEIR_POLICY_TILE) {
        const int64_t n = n_all - first < WEIR_POLICY_TILE ? n_all - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(w->call, w->at, first, n, w->tile, NULL));
        for (int64_t member = 0; member < n_members; member++)
            for (int64_t query = 0; query < w->n_queries; query++) {
                const int64_t seen = n_seen(w, query, first, n);
                if (seen <= 0) continue;
                tile_logits(w, query, member, seen);
                add_to_softmax(&w->softmaxes[member * w->n_queries + query], w->logits, seen);
            }
    }
    return WEIR_OK;
}

static weir_status second_pass(const window *w, float *sums)
{
    const int64_t n_members = w->is_group_max ? 1 : policy_group(w->call->policy);
    for (int64_t first = 0; first < w->n_rows; first += WEIR_POLICY_TILE) {
        const int64_t n = w->n_rows - first < WEIR_POLICY_TILE ? w->n_rows - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(w->call, w->at, first, n, w->tile, NULL));
        for (int64_t member = 0; member < n_members; member++) {
            float *const out = sums + member * w->at->n + first;
            for (int64_t i = 0; i < n; i++) out[i] = 0;
            for (int64_t query = 0; query < w->n_queries; query++) {
                const softmax *const s = &w->softmaxes[member * w->n_queries + query];
                const int64_t        seen = n_seen(w, query, first, n);
                const float          factor = (float)(1.0 / s->sum);
                tile_logits(w, query, member, seen);
                for (int64_t i = 0; i < seen; i++) out[i] += expf(w->logits[i] - s->greatest) * factor;
            }
        }
    }
    return WEIR_OK;
}

weir_status policy_window_sums(policy_call *call, const policy_head *at, int64_t n_last, bool is_group_max, float *sums, int64_t *n_queries)
{
    const weir_policy *const policy = call->policy;
    const int64_t            group = policy_group(policy), available = policy_n_queries(policy, call->state);
    window                   w = { .call = call, .at = at, .n_rows = at->n - n_last, .is_group_max = is_group_max };
    w.n_queries = available < n_last ? available : n_last;
    w.tile = policy_scratch(call, (size_t)(WEIR_POLICY_TILE * policy->shape.key_dim) * sizeof(float));
    w.logits = policy_scratch(call, WEIR_POLICY_TILE * sizeof(float));
    w.softmaxes = policy_scratch(call, (size_t)(group * policy->layout.ring) * sizeof(softmax));
    for (int64_t i = 0; i < group * w.n_queries; i++) w.softmaxes[i] = (softmax){ .greatest = -INFINITY };
    *n_queries = w.n_queries;
    if (w.n_queries == 0) {
        for (int64_t i = 0; i < (is_group_max ? 1 : group) * at->n; i++) sums[i] = 0;
        return WEIR_OK;
    }
    WEIR_TRY(first_pass(&w));
    return second_pass(&w, sums);
}
