/* engine/kv/policies/tri_scores.c - TriAttention's score of a key (seed 003): what queries at the distances ahead would give it if
 * each were as the mean of its head's queries.
 *
 *   S_trig(delta) = sum_f |q_f| |k_f| cos(w_f (t - p + delta) + arg(q_f conj k_f)),  k_f before rotation, p its position
 *                 = sum_f Re(q_f e^{i w_f (t + delta)} conj(K_f)),                   K_f = k_f e^{i w_f p}, as it is cached
 * so the mean over the distances is one dot product with W_f = q_f e^{i w_f t} G_f, G_f = mean of e^{i w_f delta}: no position, no angle per
 * key. W is made in double, as w_f (t + delta) reaches 1e5 and more. The greatest over the distances takes 17 products.
 *   S_norm = sum_f (a_f - |q_f|) |K_f|                                              the lengths of a key are shared by the group
 * RoPE's magnitude m is on queries and keys; cached keys have it, so each part is multiplied by it once more. Dims that are not rotated add their
 * mean's dot product. Cost: a dot product of d and one of d / 2 for each key and query head, and d / 2 square roots per key. */
#include "engine/kv/policies/tri_scores.h"

#include <math.h>

/* ---- weights --------------------------------------------------------------------------------------------------------------------- */

/* table [2, bands]: real and imaginary parts of G. */
int64_t tri_table_size(const weir_policy_shape *shape) { return shape->rotary_dim; }

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

void tri_weights(const weir_policy *policy, int64_t layer, int64_t query_head, int64_t t, int offset, float *weight, float *length)
{
    const weir_policy_shape *const shape = &policy->shape;
    const weir_calibration_head    q = weir_calibration_at(policy->calibration, layer, query_head);
    const int64_t                  n_bands = shape->rotary_dim / 2;
    const double                   m = (double)shape->rope_magnitude, ahead = offset < 0 ? 0 : (double)(1 << offset);
    for (int64_t f = 0; f < n_bands; f++) {
        const double angle = shape->frequencies[f] * ((double)t + ahead), c = cos(angle) * m, s = sin(angle) * m;
        const double g_re = offset < 0 ? policy->table[f] : 1, g_im = offset < 0 ? policy->table[n_bands + f] : 0;
        const double re = (double)q.re[f] * c - (double)q.im[f] * s, im = (double)q.re[f] * s + (double)q.im[f] * c;
        const double spread = policy->options.concentration ? hypot((double)q.re[f], (double)q.im[f]) : 0;
        weight[shape->is_interleaved ? 2 * f : f] = (float)(re * g_re - im * g_im);
        weight[shape->is_interleaved ? 2 * f + 1 : f + n_bands] = (float)(re * g_im + im * g_re);
        length[f] = (float)(m * ((double)q.length[f] - spread));
    }
    for (int64_t d = shape->rotary_dim; d < shape->key_dim; d++) weight[d] = q.plain != NULL ? q.plain[d - shape->rotary_dim] : 0;
}

bool tri_votes(const weir_policy *policy, int64_t layer, int64_t query_head)
{
    const weir_calibration_head q = weir_calibration_at(policy->calibration, layer, query_head);
    int64_t                     f = 0;
    while (f < policy->shape.rotary_dim / 2 && q.length[f] == 0) f++;
    return f < policy->shape.rotary_dim / 2;
}

/* ---- scores ----------------------------------------------------------------------------------------------------------------------- */

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static int64_t n_offsets(const weir_policy_options *options) { return options->aggregate == WEIR_AGGREGATE_MAX ? TRI_OFFSETS : 1; }

size_t tri_raw_scratch(const weir_policy_options *options, const weir_policy_shape *shape)
{
    const int64_t group = shape->n_heads / shape->n_kv_heads, n_bands = shape->rotary_dim / 2;
    return floats(group * n_offsets(options) * shape->key_dim) + floats(group * n_bands) + floats(WEIR_POLICY_TILE * shape->key_dim) +
           floats(n_bands);
}

/* One head's weights: [offsets, key_dim] and [bands]. */
typedef struct judge {
    const float *weights, *length;
    int64_t      n_weights, dim, n_bands;
    bool         has_trig;
} judge;

static float judge_key(const judge *by, const float *key, const float *lengths)
{
    const float apart = policy_dot(by->length, lengths, by->n_bands);
    if (!by->has_trig) return apart;
    float greatest = policy_dot(by->weights, key, by->dim);
    for (int64_t i = 1; i < by->n_weights; i++) greatest = fmaxf(greatest, policy_dot(by->weights + i * by->dim, key, by->dim));
    return greatest + apart;
}

static void band_lengths(float *out, const float *key, int64_t n_bands, bool is_interleaved)
{
    if (is_interleaved)
        for (int64_t f = 0; f < n_bands; f++) out[f] = sqrtf(key[2 * f] * key[2 * f] + key[2 * f + 1] * key[2 * f + 1]);
    else
        for (int64_t f = 0; f < n_bands; f++) out[f] = sqrtf(key[f] * key[f] + key[n_bands + f] * key[n_bands + f]);
}

weir_status tri_raw(policy_call *call, const policy_head *at, float *raw)
{
    const weir_policy *const       policy = call->policy;
    const weir_policy_shape *const shape = &policy->shape;
    const int64_t                  dim = shape->key_dim, n_bands = shape->rotary_dim / 2, group = policy_group(policy);
    const int64_t                  n_weights = n_offsets(&policy->options);
    float *const                   weights = policy_scratch(call, floats(group * n_weights * dim));
    float *const                   length = policy_scratch(call, floats(group * n_bands));
    float *const                   tile = policy_scratch(call, floats(WEIR_POLICY_TILE * dim));
    float *const                   key_lengths = policy_scratch(call, floats(n_bands));
    for (int64_t m = 0; m < group; m++)
        for (int64_t i = 0; i < n_weights; i++)
            tri_weights(policy, at->layer, at->head * group + m, call->rows->next_position, n_weights > 1 ? (int)i : -1,
                        weights + (m * n_weights + i) * dim, length + m * n_bands);
    for (int64_t first = 0; first < at->n; first += WEIR_POLICY_TILE) {
        const int64_t n = at->n - first < WEIR_POLICY_TILE ? at->n - first : WEIR_POLICY_TILE;
        WEIR_TRY(policy_read(call, at, first, n, tile, NULL));
        for (int64_t i = 0; i < n; i++) {
            band_lengths(key_lengths, tile + i * dim, n_bands, shape->is_interleaved);
            for (int64_t m = 0; m < group; m++) {
                const judge by = { weights + m * n_weights * dim, length + m * n_bands, n_weights, dim, n_bands, policy->options.trig };
                raw[m * at->n + first + i] = judge_key(&by, tile + i * dim, key_lengths);
            }
        }
    }
    return WEIR_OK;
}

void tri_normalise(float *scores, const policy_head *at)
{
    const int64_t end = at->n - at->n_last, n = end - at->n_first;
    double        sum = 0, squares = 0;
    for (int64_t j = at->n_first; j < end; j++) sum += (double)scores[j];
    const double mean = n > 0 ? sum / (double)n : 0;
    for (int64_t j = at->n_first; j < end; j++) squares += ((double)scores[j] - mean) * ((double)scores[j] - mean);
    const double deviation = n > 0 ? fmax(sqrt(squares / (double)n), 1e-6) : 1;
    for (int64_t j = 0; j < at->n; j++) scores[j] = (float)(((double)scores[j] - mean) / deviation);
}
