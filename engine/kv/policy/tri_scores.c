/* engine/kv/policy/tri_scores.c - TriAttention's score of a key: what queries at later distances
 * would give it if each were the mean of its head's queries, S_trig + S_norm (docs/policies.md).
 * Cost: d + d / 2 products per key and query head, d / 2 square roots per key. */
#include "engine/kv/policy/tri_scores.h"

#include <math.h>

/* ---- weights --------------------------------------------------------------------------------- */

/* table [2, bands]: real and imaginary parts of G. */
int64_t tri_table_size(const weir_policy_shape *shape) { return shape->rotary_dim; }

/* G_f = mean of e^{i w_f delta} over the distances. */
void tri_prepare(const weir_policy *policy, double *table)
{
    const int64_t n_bands = policy->shape.rotary_dim / 2;
    for (int64_t f = 0; f < n_bands; f++) {
        double re = 0, im = 0;
        for (int i = 0; i < TRI_OFFSETS; i++) {
            const double angle = policy->shape.frequencies[f] * (double)(1 << i);
            re += cos(angle);
            im += sin(angle);
        }
        table[f] = re / (double)TRI_OFFSETS;
        table[n_bands + f] = im / (double)TRI_OFFSETS;
    }
}

/* W_f = q_f e^{i w_f t} G_f in double, as w_f (t + delta) reaches 1e5 and more. S_trig is then one
 * dot product with the cached key, S_norm = sum_f (a_f - |q_f|) |K_f| one with its lengths. Cached
 * keys have RoPE's magnitude m, so each part is multiplied by it once more. */
void tri_weights(
    const weir_policy *policy, int64_t layer, int64_t query_head, int64_t t, int offset,
    float *weight, float *length
)
{
    const weir_policy_shape *const shape = &policy->shape;
    const weir_calibration_head q = weir_calibration_at(policy->calibration, layer, query_head);
    const int64_t n_bands = shape->rotary_dim / 2;
    const double m = (double)shape->rope_magnitude, ahead = offset < 0 ? 0 : (double)(1 << offset);
    for (int64_t f = 0; f < n_bands; f++) {
        const double angle = shape->frequencies[f] * ((double)t + ahead), c = cos(angle) * m,
                     s = sin(angle) * m;
        const double g_re = offset < 0 ? policy->table[f] : 1,
                     g_im = offset < 0 ? policy->table[n_bands + f] : 0;
        const double re = (double)q.re[f] * c - (double)q.im[f] * s,
                     im = (double)q.re[f] * s + (double)q.im[f] * c;
        const double spread =
            policy->options.concentration ? hypot((double)q.re[f], (double)q.im[f]) : 0;
        weight[shape->is_interleaved ? 2 * f : f] = (float)(re * g_re - im * g_im);
        weight[shape->is_interleaved ? 2 * f + 1 : f + n_bands] = (float)(re * g_im + im * g_re);
        length[f] = (float)(m * ((double)q.length[f] - spread));
    }
    for (int64_t d = shape->rotary_dim; d < shape->key_dim; d++)
        weight[d] = q.plain != NULL ? q.plain[d - shape->rotary_dim] : 0;
}

bool tri_votes(const weir_policy *policy, int64_t layer, int64_t query_head)
{
    const weir_calibration_head q = weir_calibration_at(policy->calibration, layer, query_head);
    int64_t f = 0;
    while (f < policy->shape.rotary_dim / 2 && q.length[f] == 0) f++;
    return f < policy->shape.rotary_dim / 2;
}

/* ---- scores ---------------------------------------------------------------------------------- */

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static int64_t n_offsets(const weir_policy_options *options)
{
    return options->aggregate == WEIR_AGGREGATE_MAX ? TRI_OFFSETS : 1;
}

enum { PIECE = 1024 /* Rows at a time, if several weights compete. */ };

size_t tri_raw_scratch(const weir_policy_options *options, const weir_policy_shape *shape)
{
    const int64_t n = shape->n_heads / shape->n_kv_heads * n_offsets(options);
    return floats(n * shape->key_dim) + floats(n * (shape->rotary_dim / 2)) + floats(n * PIECE) +
           policy_multiply_scratch(shape);
}

/* Weights [group, offsets, key_dim] and lengths [group, offsets, bands] of the heads of `at`. */
static void fill_weights(
    const policy_call *call, const policy_head *at, float *weights, float *lengths
)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const int64_t dim = shape->key_dim, group = policy_group(call->policy),
                  n = n_offsets(&call->policy->options);
    for (int64_t i = 0; i < group * n; i++) {
        float *const weight = weights + i * dim;
        tri_weights(
            call->policy, at->layer, at->head * group + i / n, call->rows->next_position,
            n > 1 ? (int)(i % n) : -1, weight, lengths + i * (shape->rotary_dim / 2)
        );
        for (int64_t d = 0; !call->policy->options.trig && d < dim; d++) weight[d] = 0;
    }
}

/* raw [group, n]: the maximum of products [group, offsets, PIECE]. */
static void take_greatest(
    float *raw, int64_t stride, const float *products, int64_t group, int64_t n_weights, int64_t n
)
{
    for (int64_t m = 0; m < group; m++)
        for (int64_t i = 0; i < n; i++) {
            const float *const of_row = products + m * n_weights * PIECE + i;
            float greatest = of_row[0];
            for (int64_t k = 1; k < n_weights; k++) greatest = fmaxf(greatest, of_row[k * PIECE]);
            raw[m * stride + i] = greatest;
        }
}

weir_status tri_raw(policy_call *call, const policy_head *at, float *raw)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    const int64_t group = policy_group(call->policy), n_weights = n_offsets(&call->policy->options),
                  n_all = group * n_weights;
    float *const weights = policy_scratch(call, floats(n_all * shape->key_dim));
    float *const lengths = policy_scratch(call, floats(n_all * (shape->rotary_dim / 2)));
    float *const several = policy_scratch(call, floats(n_all * PIECE));
    const policy_tile tile = policy_take_tile(call);
    weir_policy_products products = { .n = at->n,
                                      .n_vectors = n_all,
                                      .stride = at->n,
                                      .vectors = weights,
                                      .lengths = lengths,
                                      .out = raw };
    fill_weights(call, at, weights, lengths);
    if (n_weights == 1) return policy_multiply(call, at, &products, &tile);
    products.stride = PIECE;
    products.out = several;
    for (; products.first < at->n; products.first += PIECE) {
        products.n = at->n - products.first < PIECE ? at->n - products.first : PIECE;
        WEIR_TRY(policy_multiply(call, at, &products, &tile));
        take_greatest(raw + products.first, at->n, several, group, n_weights, products.n);
    }
    return WEIR_OK;
}

enum { LANES = 4 /* Sums in a fixed order that the compiler may vectorise. */ };

/* Sums of x - shift and of its squares. */
typedef struct moments {
    double sum, squares;
} moments;

static moments moments_of(const float *x, int64_t n, double shift)
{
    double sums[LANES] = { 0 }, squares[LANES] = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double from = (double)x[i + k] - shift;
            sums[k] += from;
            squares[k] += from * from;
        }
    moments m = { (sums[0] + sums[2]) + (sums[1] + sums[3]),
                  (squares[0] + squares[2]) + (squares[1] + squares[3]) };
    for (; i < n; i++) {
        const double from = (double)x[i] - shift;
        m.sum += from;
        m.squares += from * from;
    }
    return m;
}

/* Relative to a first estimate of the mean, so that the squares lose no precision. */
void tri_normalise(float *scores, const policy_head *at)
{
    const int64_t n = at->n - at->n_last - at->n_first;
    double mean = 0, deviation = 1;
    if (n > 0) {
        const float *const first = scores + at->n_first;
        const int64_t n_estimate = n < 64 ? n : 64;
        const double shift = moments_of(first, n_estimate, 0).sum / (double)n_estimate;
        const moments m = moments_of(first, n, shift);
        const double from = m.sum / (double)n, variance = m.squares / (double)n - from * from;
        mean = shift + from;
        deviation = fmax(sqrt(variance > 0 ? variance : 0), 1e-6);
        if (variance != variance) deviation = variance;
    }
    const double inverse = 1 / deviation;
    for (int64_t j = 0; j < at->n; j++) scores[j] = (float)(((double)scores[j] - mean) * inverse);
}
