/* engine/kv/policy/calibration.c - statistics of queries: memory, checks, values, and the
 * accumulator. */
#include "engine/kv/policy/calibration_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* A file without identity has no statistics of dims that are not rotated. */
static int64_t head_size(const weir_calibration *c)
{
    return 3 * c->n_bands + (c->has_identity ? c->head_dim - c->rotary_dim : 0);
}

weir_status calibration_take(
    weir_calibration **out, const weir_calibration *sizes, weir_error *error
)
{
    size_t heads, bytes;
    if (!weir_mul_size(&heads, (size_t)sizes->n_layers, (size_t)sizes->n_heads) ||
        !weir_mul_size(&heads, heads, (size_t)head_size(sizes)) ||
        !weir_add_size(&bytes, heads, (size_t)(sizes->n_layers + sizes->n_bands)) ||
        !weir_mul_size(&bytes, bytes, sizeof(float)) || !weir_add_size(&bytes, bytes, sizeof **out))
        return weir_error_set(
            error, WEIR_EINVAL, "query statistics of these sizes do not fit into memory"
        );
    weir_calibration *const c = weir_memory_take_zero(1, bytes);
    if (c == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %zu bytes of query statistics", bytes
        );
    *c = *sizes;
    c->bytes = bytes;
    c->budget_scale = (float *)(c + 1);
    c->frequencies = c->budget_scale + c->n_layers;
    c->heads = c->frequencies + c->n_bands;
    *out = c;
    return WEIR_OK;
}

void weir_calibration_close(weir_calibration *calibration) { weir_memory_give(calibration); }

size_t weir_calibration_bytes(const weir_calibration *calibration) { return calibration->bytes; }

/* ---- values ---------------------------------------------------------------------------------- */

float *calibration_head(const weir_calibration *c, int64_t layer, int64_t query_head)
{
    return c->heads + (layer * c->n_heads + query_head) * head_size(c);
}

weir_calibration_head weir_calibration_at(
    const weir_calibration *c, int64_t layer, int64_t query_head
)
{
    const float *const at = calibration_head(c, layer, query_head);
    return (weir_calibration_head){ .re = at,
                                    .im = at + c->n_bands,
                                    .length = at + 2 * c->n_bands,
                                    .plain = c->has_identity ? at + 3 * c->n_bands : NULL };
}

float weir_calibration_concentration(
    const weir_calibration *c, int64_t layer, int64_t query_head, int64_t band
)
{
    const weir_calibration_head head = weir_calibration_at(c, layer, query_head);
    return head.length[band] > 0
               ? fminf(hypotf(head.re[band], head.im[band]) / head.length[band], 1)
               : 0;
}

uint64_t weir_calibration_digest(const weir_calibration *c)
{
    const size_t n = (size_t)(c->n_layers * c->n_heads * head_size(c) + c->n_layers + c->n_bands);
    return XXH3_64bits(c->budget_scale, n * sizeof(float));
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* The mean of complex numbers is at most as long as the mean of their lengths; f32 rounds both. */
static bool is_mean_of(float re, float im, float length)
{
    return isfinite(re) && isfinite(im) && isfinite(length) && length >= 0 &&
           hypot((double)re, (double)im) <= (double)length * (1 + 1e-4) + 1e-30;
}

const char *calibration_reject(const weir_calibration *c)
{
    for (int64_t layer = 0; layer < c->n_layers; layer++) {
        if (!(c->budget_scale[layer] >= 0) || !isfinite(c->budget_scale[layer]))
            return "a layer's budget scale is negative or not a number";
        for (int64_t h = 0; h < c->n_heads; h++) {
            const float *const head = calibration_head(c, layer, h);
            for (int64_t f = 0; f < c->n_bands; f++)
                if (!is_mean_of(head[f], head[c->n_bands + f], head[2 * c->n_bands + f]))
                    return "its numbers cannot be means of queries and of their lengths";
            for (int64_t i = 3 * c->n_bands; i < head_size(c); i++)
                if (!isfinite(head[i])) return "its numbers are no means of queries";
        }
    }
    for (int64_t f = 0; f < c->n_bands; f++)
        if (!isfinite(c->frequencies[f])) return "a RoPE frequency is not a number";
    return NULL;
}

static weir_status check_sizes(
    const weir_calibration *c, const weir_policy_shape *s, weir_error *error
)
{
    if (c->n_layers == s->n_layers && c->n_heads == s->n_heads && c->n_kv_heads == s->n_kv_heads &&
        c->head_dim == s->key_dim && 2 * c->n_bands == s->rotary_dim)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "the query statistics have %" PRId64 " layers, %" PRId64 "/%" PRId64 " heads of %" PRId64
        " dims with %" PRId64 " bands, the model has %" PRId64 ", %" PRId64 "/%" PRId64 ", %" PRId64
        " and %" PRId64 "; make new ones with `weir calibrate`",
        c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim, c->n_bands, s->n_layers, s->n_heads,
        s->n_kv_heads, s->key_dim, s->rotary_dim / 2
    );
}

static weir_status check_rotation(
    const weir_calibration *c, const weir_policy_shape *s, weir_error *error
)
{
    bool is_same =
        fabs((double)c->magnitude - (double)s->rope_magnitude) <= 1e-5 * (double)s->rope_magnitude;
    if (c->has_identity) is_same = is_same && c->is_interleaved == s->is_interleaved;
    for (int64_t f = 0; f < c->n_bands; f++) {
        const double own = s->frequencies[f];
        const double theirs = c->has_identity
                                  ? (double)c->frequencies[f]
                                  : pow((double)c->theta, -(double)f / (double)c->n_bands);
        is_same = is_same && fabs(own - theirs) <= 1e-4 * fabs(own);
    }
    if (is_same) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH,
        "the query statistics were made with another RoPE (base, scaling or pairs); make new ones "
        "with `weir calibrate`"
    );
}

weir_status weir_calibration_check(
    const weir_calibration *c, const weir_policy_shape *shape, bool foreign, weir_error *error
)
{
    if (!c->has_identity && !foreign)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "the query statistics do not name their model; make new ones with `weir calibrate`, or "
            "set foreign=true if they are of this model"
        );
    if (c->has_identity && (c->model[0] != shape->model[0] || c->model[1] != shape->model[1]))
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "the query statistics are of another model; make new ones with `weir calibrate`"
        );
    if (c->has_identity && !c->is_after_norm)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "the query statistics are of queries before their norm; make new ones with `weir "
            "calibrate`"
        );
    WEIR_TRY(check_sizes(c, shape, error));
    return check_rotation(c, shape, error);
}

/* ---- accumulator ----------------------------------------------------------------------------- */

struct weir_calibrator {
    weir_policy_shape shape;
    float theta;
    double *sums; /* [layers, heads, 3 * bands + key_dim - rotary_dim] as in the statistics */
    float *frequencies; /* [bands] */
    int64_t n_queries[]; /* [layers] */
};

static int64_t sums_size(const weir_policy_shape *s) { return s->rotary_dim / 2 + s->key_dim; }

weir_status weir_calibrator_open(
    weir_calibrator **out, const weir_policy_shape *s, float theta, weir_error *error
)
{
    const bool is_sane = s->n_layers >= 1 && s->n_heads >= 1 && s->n_kv_heads >= 1 &&
                         s->key_dim >= 1 && s->rotary_dim >= 2 && s->rotary_dim % 2 == 0 &&
                         s->rotary_dim <= s->key_dim && s->frequencies != NULL &&
                         s->key_dim <= 1 << 16 && !s->rotates_last;
    size_t sums = sizeof(double), bytes = sizeof(weir_calibrator);
    if (!is_sane)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "query statistics need a model whose keys are rotated in their first dims"
        );
    if (!weir_mul_size(&sums, sums, (size_t)s->n_layers) ||
        !weir_mul_size(&sums, sums, (size_t)s->n_heads) ||
        !weir_mul_size(&sums, sums, (size_t)sums_size(s)) ||
        !weir_add_size(&bytes, bytes, (size_t)s->n_layers * sizeof(int64_t)) ||
        !weir_add_size(&bytes, bytes, (size_t)s->rotary_dim / 2 * sizeof(float)) ||
        !weir_align_size(&bytes, bytes, 16) || !weir_add_size(&bytes, bytes, sums))
        return weir_error_set(
            error, WEIR_EINVAL, "query statistics of these sizes do not fit into memory"
        );
    weir_calibrator *const c = weir_memory_take_zero(1, bytes);
    if (c == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %zu bytes of query statistics", bytes
        );
    c->shape = *s;
    c->theta = theta;
    c->frequencies = (float *)(c->n_queries + s->n_layers);
    c->sums = (double *)((char *)c + bytes - sums);
    for (int64_t f = 0; f < s->rotary_dim / 2; f++) c->frequencies[f] = (float)s->frequencies[f];
    *out = c;
    return WEIR_OK;
}

void weir_calibrator_close(weir_calibrator *calibrator) { weir_memory_give(calibrator); }

static void add_query(const weir_policy_shape *s, double *sums, const float *q)
{
    const int64_t n_bands = s->rotary_dim / 2;
    for (int64_t f = 0; f < n_bands; f++) {
        const double re = (double)q[s->is_interleaved ? 2 * f : f],
                     im = (double)q[s->is_interleaved ? 2 * f + 1 : f + n_bands];
        sums[f] += re;
        sums[n_bands + f] += im;
        sums[2 * n_bands + f] += sqrt(re * re + im * im);
    }
    for (int64_t d = s->rotary_dim; d < s->key_dim; d++) sums[n_bands + d] += (double)q[d];
}

void weir_calibrator_add(weir_calibrator *c, int64_t layer, const weir_policy_queries *queries)
{
    WEIR_ASSERT(layer >= 0 && layer < c->shape.n_layers && queries->n >= 0);
    for (int64_t h = 0; h < c->shape.n_heads; h++)
        for (int64_t i = 0; i < queries->n; i++)
            add_query(
                &c->shape, c->sums + (layer * c->shape.n_heads + h) * sums_size(&c->shape),
                queries->data + h * queries->head_stride + i * queries->row_stride
            );
    c->n_queries[layer] += queries->n;
}

weir_status weir_calibrator_finish(
    const weir_calibrator *c, weir_calibration **out, weir_error *error
)
{
    const weir_policy_shape *const s = &c->shape;
    weir_calibration *made = NULL;
    for (int64_t layer = 0; layer < s->n_layers; layer++)
        if (c->n_queries[layer] == 0)
            return weir_error_set(
                error, WEIR_EINVAL,
                "layer %" PRId64 " has no query: calibrate with a text that is not empty", layer
            );
    const weir_calibration sizes = { .n_layers = s->n_layers,
                                     .n_heads = s->n_heads,
                                     .n_kv_heads = s->n_kv_heads,
                                     .head_dim = s->key_dim,
                                     .n_bands = s->rotary_dim / 2,
                                     .rotary_dim = s->rotary_dim,
                                     .theta = c->theta,
                                     .magnitude = s->rope_magnitude,
                                     .has_identity = true,
                                     .model = { s->model[0], s->model[1] },
                                     .n_queries = (uint64_t)c->n_queries[0],
                                     .is_after_norm = true,
                                     .is_interleaved = s->is_interleaved };
    WEIR_TRY(calibration_take(&made, &sizes, error));
    for (int64_t layer = 0; layer < s->n_layers; layer++) {
        made->budget_scale[layer] = 1;
        const int64_t n = s->n_heads * sums_size(s);
        const double *const sums = c->sums + layer * n;
        for (int64_t i = 0; i < n; i++)
            calibration_head(made, layer, 0)[i] = (float)(sums[i] / (double)c->n_queries[layer]);
    }
    memcpy(made->frequencies, c->frequencies, (size_t)sizes.n_bands * sizeof(float));
    const char *const why = calibration_reject(made);
    if (why != NULL) {
        weir_calibration_close(made);
        return weir_error_set(
            error, WEIR_EFORMAT, "the model's query statistics are not usable: %s", why
        );
    }
    *out = made;
    return WEIR_OK;
}
