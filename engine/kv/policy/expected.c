/* engine/kv/policy/expected.c - the attention that future queries are expected to pay (Devoto et
 * al. 2025, Expected Attention): score_j = (mean over the group of softmax_j z_j + epsilon) *
 * |v_j|, z_j = c mu'.k_j + c^2 k_j' Sigma' k_j / 2 (docs/policies.md). */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static int64_t head_sums(
    const weir_policy_options *options, int64_t dim
) /* doubles of one query head */
{
    return dim + (options->covariance ? dim * (dim + 1) / 2 : 0);
}

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    const int64_t dim = shape->key_dim, group = shape->n_heads / shape->n_kv_heads;
    out->needs = WEIR_POLICY_PLAIN_QUERIES | WEIR_POLICY_KEYS |
                 (options->value_norm ? WEIR_POLICY_VALUES : 0);
    out->sums = 1 + shape->n_heads * head_sums(options, dim);
    out->least_rows = options->sinks + 1;
    out->scratch =
        floats(WEIR_POLICY_TILE * dim) + floats(WEIR_POLICY_TILE * shape->value_dim) +
        floats(group * dim) +
        (options->covariance
             ? floats(group * dim * dim) + policy_scratch_size((size_t)(dim * dim), sizeof(double))
             : 0) +
        policy_scratch_size((size_t)dim, 2 * sizeof(double)) + floats(group * shape->max_rows);
}

/* ---- statistics: sums[0] counts, then for each query head sum q [d] and the lower triangle of sum
 * q q^T  */

static void add_query(double *sums, const float *q, int64_t dim, bool has_covariance)
{
    for (int64_t d = 0; d < dim; d++) sums[d] += (double)q[d];
    double *at = sums + dim;
    for (int64_t a = 0; a < dim && has_covariance; a++, at += a)
        for (int64_t b = 0; b <= a; b++) at[b] += (double)q[a] * (double)q[b];
}

static void observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    const weir_policy_options *const options = &policy->options;
    const int64_t dim = policy->shape.key_dim, size = head_sums(options, dim);
    const int64_t skipped =
        options->sinks > o->first_position ? options->sinks - o->first_position : 0;
    double *const sums = policy_sums(policy, state, o->layer);
    WEIR_ASSERT(o->plain.n == o->n_queries);
    if (skipped >= o->n_queries) return;
    sums[0] += (double)(o->n_queries - skipped);
    for (int64_t h = 0; h < policy->shape.n_heads; h++)
        for (int64_t i = skipped; i < o->n_queries; i++)
            add_query(
                sums + 1 + h * size,
                o->plain.data + h * o->plain.head_stride + i * o->plain.row_stride, dim,
                options->covariance
            );
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* Rbar_f = m e^{i w_f (t + (F-1)/2)} sin(F w_f / 2) / (F sin(w_f / 2)), the mean rotation of the
 * next F positions; m: RoPE's magnitude. Dims that are not rotated keep their value. */
static void mean_rotation(const weir_policy *policy, int64_t t, double *re, double *im)
{
    const double n = (double)policy->options.future;
    for (int64_t f = 0; f < policy->shape.rotary_dim / 2; f++) {
        const double w = policy->shape.frequencies[f], s = sin(w / 2),
                     angle = w * ((double)t + (n - 1) / 2);
        const double length =
            (double)policy->shape.rope_magnitude * (fabs(s) < 1e-12 ? 1 : sin(n * w / 2) / (n * s));
        re[f] = length * cos(angle);
        im[f] = length * sin(angle);
    }
}

/* Rotates x, with `stride` doubles between its dims, band by band. */
static void rotate(
    const weir_policy_shape *shape, double *x, int64_t stride, const double *re, const double *im
)
{
    const int64_t n_bands = shape->rotary_dim / 2;
    for (int64_t f = 0; f < n_bands; f++) {
        double *const a = x + (shape->is_interleaved ? 2 * f : f) * stride;
        double *const b = x + (shape->is_interleaved ? 2 * f + 1 : f + n_bands) * stride;
        const double real = *a * re[f] - *b * im[f], imaginary = *a * im[f] + *b * re[f];
        *a = real;
        *b = imaginary;
    }
}

/* The factors of a row: c mu' and c^2 Sigma' / 2 of every query head of the group. */
typedef struct moments {
    float *mean; /* [group, d] */
    float *covariance; /* [group, d, d] or NULL */
    double *matrix; /* [d, d] */
    /* [d / 2]; before their use, the mean in double [d]. */
    double *re, *im;
} moments;

/* mu' = Rbar mu and Sigma' = Rbar Sigma Rbar^T of one query head, with the factors c and c^2 /
 * 2. */
static void expect_head(
    const policy_call *call, const double *sums, double count, int64_t member, const moments *m,
    double *mean
)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const int64_t dim = shape->key_dim;
    const double c = (double)shape->scale;
    for (int64_t d = 0; d < dim; d++) mean[d] = sums[d] / count;
    const double *at = sums + dim;
    for (int64_t a = 0; a < dim && m->covariance != NULL; a++, at += a)
        for (int64_t b = 0; b <= a; b++)
            m->matrix[a * dim + b] = m->matrix[b * dim + a] =
                (at[b] / count - mean[a] * mean[b]) * c * c / 2;
    if (m->covariance != NULL) {
        for (int64_t a = 0; a < dim; a++) rotate(shape, m->matrix + a, dim, m->re, m->im);
        for (int64_t a = 0; a < dim; a++) rotate(shape, m->matrix + a * dim, 1, m->re, m->im);
        for (int64_t i = 0; i < dim * dim; i++)
            m->covariance[member * dim * dim + i] = (float)m->matrix[i];
    }
    rotate(shape, mean, 1, m->re, m->im);
    for (int64_t d = 0; d < dim; d++) m->mean[member * dim + d] = (float)(mean[d] * c);
}

static float expected_logit(const moments *m, int64_t member, const float *key, int64_t dim)
{
    float sum = policy_dot(m->mean + member * dim, key, dim);
    for (int64_t a = 0; a < dim && m->covariance != NULL; a++)
        sum += key[a] * policy_dot(m->covariance + (member * dim + a) * dim, key, dim);
    return sum;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static moments take_moments(policy_call *call, const policy_head *at)
{
    const weir_policy *const policy = call->policy;
    const int64_t dim = policy->shape.key_dim, group = policy_group(policy),
                  size = head_sums(&policy->options, dim);
    const double *const sums = policy_sums(policy, call->state, at->layer);
    moments m = { .mean = policy_scratch(call, floats(group * dim)) };
    if (policy->options.covariance) {
        m.covariance = policy_scratch(call, floats(group * dim * dim));
        m.matrix = policy_scratch(call, (size_t)(dim * dim) * sizeof(double));
    }
    m.re = policy_scratch(call, (size_t)dim * 2 * sizeof(double));
    m.im = m.re + dim / 2;
    mean_rotation(policy, call->rows->next_position, m.re, m.im);
    for (int64_t member = 0; member < group; member++)
        expect_head(
            call, sums + 1 + (at->head * group + member) * size, sums[0] > 0 ? sums[0] : 1, member,
            &m, m.re + dim
        );
    return m;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const weir_policy_options *const options = &call->policy->options;
    const int64_t dim = shape->key_dim, group = policy_group(call->policy), sinks = options->sinks;
    const moments m = take_moments(call, at);
    float *const keys = policy_scratch(call, floats(WEIR_POLICY_TILE * dim));
    float *const values = policy_scratch(call, floats(WEIR_POLICY_TILE * shape->value_dim));
    float *const logits = policy_scratch(call, floats(group * shape->max_rows));
    for (int64_t j = 0; j < sinks; j++) scores[j] = INFINITY;
    for (int64_t first = sinks; first < at->n; first += WEIR_POLICY_TILE) {
        const int64_t n = at->n - first < WEIR_POLICY_TILE ? at->n - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, keys, options->value_norm ? values : NULL));
        for (int64_t i = 0; i < n; i++) {
            const float *const value = values + i * shape->value_dim;
            scores[first + i] =
                options->value_norm ? sqrtf(policy_dot(value, value, shape->value_dim)) : 1.0f;
            for (int64_t member = 0; member < group; member++)
                logits[member * at->n + first + i] =
                    expected_logit(&m, member, keys + i * dim, dim);
        }
    }
    for (int64_t member = 0; member < group; member++)
        policy_softmax(logits + member * at->n + sinks, at->n - sinks);
    for (int64_t j = sinks; j < at->n; j++) {
        float sum = 0;
        for (int64_t member = 0; member < group; member++) sum += logits[member * at->n + j];
        scores[j] *= sum / (float)group + (float)options->epsilon;
    }
    return WEIR_OK;
}

static const policy_default defaults[] = { { "sinks", "4" },         { "future", "512" },
                                           { "covariance", "true" }, { "value_norm", "true" },
                                           { "epsilon", "0" },       { NULL, NULL } };
const weir_policy_ops policy_expected = { .name = "expected",
                                          .summary =
                                              "rows that future queries are expected to attend to",
                                          .matrix_options = "",
                                          .defaults = defaults,
                                          .layout = layout,
                                          .observe = observe,
                                          .score = score };
