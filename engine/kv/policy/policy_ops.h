/* engine/kv/policy/policy_ops.h - the interface of a policy's implementation, and helpers. A method
 * is mostly one function: scores of a head's rows. */
#pragma once
#include <string.h>

#include "engine/kv/policy/calibration.h"
#include "engine/kv/policy/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a method -------------------------------------------------------------------------------- */

/* What a method needs with these options and this shape. */
typedef struct policy_layout {
    unsigned needs;
    int64_t row_values; /* f32 of state for each row */
    /* Once for a layer whose heads keep the same rows; else for each KV head. */
    bool is_per_layer;
    int64_t ring; /* rotated queries in the state */
    int64_t sums; /* doubles of state per layer */
    /* Rows at the beginning of each head whose keys are rotated to follow the window. */
    int64_t first_keys;
    int64_t n_last; /* rows at the end that the method always keeps */
    int64_t least_rows; /* heads with fewer rows are skipped */
    int64_t table; /* doubles of the policy, filled in by `prepare` */
    /* Bytes that one `score` takes with policy_scratch. */
    size_t scratch;
} policy_layout;

/* One (layer, KV head) to be scored. Rows [n_first, n - n_last) are the candidates, the others stay
 * whatever their score. */
typedef struct policy_head {
    int64_t layer, head, n, n_first, n_last;
    /* Rows that it may hold; if heads share, others may use what it does not. */
    int64_t row_limit;
    int64_t budget; /* rows of its n that it keeps by itself: at most row_limit */
} policy_head;

/* A plan in progress. */
typedef struct policy_call {
    const weir_policy *policy;
    const weir_policy_state *state;
    const weir_policy_rows *rows;
    const weir_policy_budget *budget;
    weir_policy_plan *plan;
    char *scratch;
    size_t scratch_used, scratch_bytes;
    uint32_t *keys; /* [n_kv_heads, max_rows] of the selector */
    float *scores; /* [n_kv_heads, max_rows] */
    weir_error *error;
} policy_call;

typedef struct policy_default {
    const char *name, *value; /* as in a list of options */
} policy_default;

struct weir_policy_ops {
    const char *name, *summary;
    /* Options with which weir eval matrix runs the method: the defaults, "", or those that fit
     * small budgets. NULL: it leaves the method out, such as a variant of another one. */
    const char *matrix_options;
    /* The method's options; terminated by name NULL. */
    const policy_default *defaults;
    void (*layout)(
        policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
    );
    /* May be NULL: all values are compatible. */
    weir_status (*check)(
        const weir_policy_options *options, const weir_policy_shape *shape, weir_error *error
    );
    void (*prepare)(const weir_policy *policy, double *table); /* may be NULL: no table */
    /* May be NULL: nothing to add. */
    void (*observe)(
        const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
    );
    /* scores [at->n], larger ones stay; +inf for rows that the method keeps. Reads rows with
     * policy_read. NULL: never due. */
    weir_status (*score)(policy_call *call, const policy_head *at, float *scores);
    /* May be NULL: each head, or the heads of a layer together, by `score`. Otherwise calls
     * policy_keep for every head. */
    weir_status (*plan)(policy_call *call);
};

struct weir_policy {
    weir_policy_options options;
    weir_policy_shape shape; /* owns its frequencies */
    policy_layout layout;
    const weir_calibration *calibration;
    double *table; /* [layout.table] */
    size_t bytes, state_bytes, scratch_bytes;
    uint64_t digest[2]; /* of options and shape: states of others are refused */
    double frequencies[];
};

/* ---- state: header, lengths, values of rows, ring of queries, sums, keys --------------------- */

struct weir_policy_state {
    int64_t n_forwards, next_position;
    int64_t n_observed; /* consecutive queries before next_position */
    int64_t n_held; /* first keys of each head; 0: none were saved yet */
};

int64_t policy_n_sets(const weir_policy *policy); /* sets of rows in a layer */
int64_t policy_group(const weir_policy *policy); /* query heads of a KV head */
/* The number of rows with values, and their values number `which` [max_rows]. */
int64_t policy_n_values(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head
);
float *policy_values(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head,
    int64_t which
);
/* The query `back` steps before the last one (back < policy_n_queries). */
const float *policy_query(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t back,
    int64_t query_head
);
/* Number of queries in the ring. */
int64_t policy_n_queries(const weir_policy *policy, const weir_policy_state *state);
double *policy_sums(const weir_policy *policy, const weir_policy_state *state, int64_t layer);
/* [first_keys, key_dim]. */
float *policy_first_keys(
    const weir_policy *policy, const weir_policy_state *state, int64_t layer, int64_t head
);

/* ---- for `score` ----------------------------------------------------------------------------- */

/* Memory until the score is done, 64-byte aligned. The layout declares how much a method takes. */
void *policy_scratch(policy_call *call, size_t bytes);
size_t policy_scratch_size(size_t count, size_t size); /* of one such allocation */
/* Reads rows [first, first + n) of the head; keys or values may be NULL. */
WEIR_MUST_CHECK weir_status policy_read(
    const policy_call *call, const policy_head *at, int64_t first, int64_t n, float *keys,
    float *values
);
/* The failure of policy_read, for other ways to read rows. */
weir_status policy_read_failed(const policy_call *call, const policy_head *at, weir_status status);

/* Memory for rows that are read to be multiplied. */
typedef struct policy_tile {
    float *keys; /* [WEIR_POLICY_TILE, key_dim] */
    float *lengths; /* [rotary_dim / 2] */
} policy_tile;
size_t policy_multiply_scratch(const weir_policy_shape *shape);
policy_tile policy_take_tile(policy_call *call);
/* Fills in products->out; layer and head are those of `at`. */
WEIR_MUST_CHECK weir_status policy_multiply(
    const policy_call *call, const policy_head *at, const weir_policy_products *products,
    const policy_tile *tile
);

/* Sums 16 lanes in a fixed order: the compiler may vectorise it. */
static inline float policy_add_lanes(const float lanes[16])
{
    float half[8], quarter[4];
    for (int i = 0; i < 8; i++) half[i] = lanes[i] + lanes[i + 8];
    for (int i = 0; i < 4; i++) quarter[i] = half[i] + half[i + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

static inline float policy_dot(const float *a, const float *b, int64_t n)
{
    float lanes[16] = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) lanes[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) lanes[j] += a[i] * b[i];
    return policy_add_lanes(lanes);
}

/* e^x for x <= 0, 0 below -87, relative error 2e-7; the compiler may vectorise it. e^x = 2^k e^r
 * with |r| <= ln 2 / 2, and e^r by its series. */
static inline float policy_weight(float x)
{
    const float near = __builtin_rintf(x * 1.44269504f), k = near > -126.0f ? near : -126.0f;
    const float r = (x - k * 0.693145752f) -
                    k * 1.42860677e-6f; /* ln 2 in two parts, the first without low bits */
    const float high = 1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)));
    const float series = 1.0f + (r + r * r * (0.5f + r * (1.0f / 6 + r * high)));
    const uint32_t bits = (uint32_t)((int32_t)k + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : series * power;
}

/* Softmax over x [n], in place. Sums in double. */
void policy_softmax(float *x, int64_t n);
/* out[j]: sum / width, or the maximum, of x[j - width / 2 .. j + width / 2] within [0, n). out !=
 * x. */
void policy_pool_mean(float *out, const float *x, int64_t n, int64_t width);
void policy_pool_max(float *out, const float *x, int64_t n, int64_t width);

/* Sums over the ring's queries for rows [0, n - n_last): for each query head of the group their
 * causal probabilities, or with `is_group_max` one row: the softmax of the group's maximum logit
 * over those rows alone. sums [group or 1, at->n]. *n_queries: number of queries; if there are none
 * (a sequence that was restored without its state), all sums are 0. */
size_t policy_window_scratch(const weir_policy_shape *shape, int64_t window);
WEIR_MUST_CHECK weir_status policy_window_sums(
    policy_call *call, const policy_head *at, int64_t n_last, bool is_group_max, float *sums,
    int64_t *n_queries
);

/* R-KV's parts before weighting: importance [n - window], redundancy [n]. */
WEIR_MUST_CHECK weir_status
policy_rkv_parts(policy_call *call, const policy_head *at, float *importance, float *red);

/* ---- for `plan` ------------------------------------------------------------------------------ */

policy_head policy_head_at(const policy_call *call, int64_t layer, int64_t head);
/* Keeps all rows of the head, or its best rows by scores [at->n]. */
void policy_keep_all(policy_call *call, const policy_head *at);
void policy_keep(policy_call *call, const policy_head *at, const float *scores);
/* Scores of one head into `scores` [at->n]; resets its scratch. */
WEIR_MUST_CHECK weir_status policy_score(policy_call *call, const policy_head *at, float *scores);
/* Plans the heads of one layer, each by itself or sharing their budgets, by `score`. */
WEIR_MUST_CHECK weir_status policy_plan_layer(policy_call *call, int64_t layer);
/* Lays out the scratch of a plan for `call`, whose first members are set. */
void policy_call_open(policy_call *call, void *scratch);

/* ---- the selector ---------------------------------------------------------------------------- */

/* Unsigned keys in the order of the scores: protected rows largest, NaN smallest (and counted). */
void policy_sort_keys(uint32_t *keys, const float *scores, const policy_head *at, int64_t *n_nan);
/* The largest `n_keep` of keys [n] are those above `key`, and the first n_equal equal to it. */
typedef struct policy_cut {
    uint32_t key;
    int64_t n_equal;
} policy_cut;
policy_cut policy_cut_keys(const uint32_t *keys, int64_t n, int64_t n_keep);
/* Writes ascending slots; counts cut->n_equal down, so that several arrays share one cut. Returns
 * how many. */
int64_t policy_take(int32_t *keep, const uint32_t *keys, int64_t n, policy_cut *cut);

/* ---- the methods ----------------------------------------------------------------------------- */

#define WEIR_POLICY(name) extern const weir_policy_ops policy_##name;
#include "engine/kv/policy/list.inc"

#ifdef __cplusplus
}
#endif
