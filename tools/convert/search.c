#include "tools/convert/search.h"

#include <math.h>
#include <stddef.h>

#include "kernels/abi/convert.h"

float round_f16(float x, uint16_t *bits)
{
    const float most = 65504.0f, within = x > most ? most : x < -most ? -most : x;
    *bits = weir_f16_from_f32(within);
    return weir_f16_to_f32(*bits);
}

/* The nearest integer, ties to even, for |x| < 2^22. */
static inline float nearest_integer(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    return (x + magic) - magic;
}

static inline float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

/* ---- levels times a scale -------------------------------------------------------------------- */

static inline int code_of(float y, const levels *l)
{
    return l->nearest[(int)nearest_integer(2.0f * clamp(y, -128.0f, 127.5f)) + 256];
}

static inline float level_of(int code, const levels *l)
{
    return (float)(l->table != NULL ? l->table[code] : code);
}

static void code_all(int8_t *q, const group *g, const levels *l, float inverse)
{
    if (l->table != NULL)
        for (int i = 0; i < g->n; i++) q[i] = (int8_t)code_of(g->x[i] * inverse, l);
    else
        for (int i = 0; i < g->n; i++)
            q[i] = (int8_t)nearest_integer(clamp(g->x[i] * inverse, (float)l->lo, (float)l->hi));
}

float code_group(int8_t *q, const group *g, const levels *l, float scale)
{
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    float error = 0.0f;
    code_all(q, g, l, isfinite(inverse) ? inverse : 0.0f);
#pragma omp simd reduction(+ : error)
    for (int i = 0; i < g->n; i++) {
        const float d = g->x[i] - scale * level_of(q[i], l);
        error += g->w[i] * d * d;
    }
    return error;
}

void scale_sums(const group *g, const levels *l, const int8_t *q, double *xl, double *ll)
{
    float sum_xl = 0.0f, sum_ll = 0.0f;
#pragma omp simd reduction(+ : sum_xl, sum_ll)
    for (int i = 0; i < g->n; i++) {
        const float level = level_of(q[i], l), weighted = g->w[i] * level;
        sum_xl += weighted * g->x[i];
        sum_ll += weighted * level;
    }
    *xl = (double)sum_xl;
    *ll = (double)sum_ll;
}

static float largest(const group *g)
{
    float most = 0.0f;
    for (int i = 0; i < g->n; i++) {
        const float a = fabsf(g->x[i]);
        most = a > most ? a : most;
    }
    return most;
}

/* scale_sums for the codes of x * inverse, without a table. */
static void uniform_sums(const group *g, const levels *l, float inverse, double *xl, double *ll)
{
    const float lo = (float)l->lo, hi = (float)l->hi;
    float sum_xl = 0.0f, sum_ll = 0.0f;
#pragma omp simd reduction(+ : sum_xl, sum_ll)
    for (int i = 0; i < g->n; i++) {
        const float level = nearest_integer(clamp(g->x[i] * inverse, lo, hi)),
                    weighted = g->w[i] * level;
        sum_xl += weighted * g->x[i];
        sum_ll += weighted * level;
    }
    *xl = (double)sum_xl;
    *ll = (double)sum_ll;
}

/* What a scale gains over 0, by least squares for the codes of `inverse`; *scale is that one. */
static float gain(const group *g, const levels *l, float inverse, float *scale)
{
    double xl, ll;
    if (l->table != NULL) {
        int8_t q[GROUP_MAX];
        code_all(q, g, l, inverse);
        scale_sums(g, l, q, &xl, &ll);
    } else {
        uniform_sums(g, l, inverse, &xl, &ll);
    }
    *scale = ll > 0.0 ? (float)(xl / ll) : 0.0f;
    return ll > 0.0 ? (float)(xl * xl / ll) : 0.0f;
}

float fit_scale(const group *g, const levels *l)
{
    enum { STEPS = 24, ROUNDS = 2 };
    const float most = largest(g);
    const float low = l->table != NULL ? -(float)l->table[l->lo] : -(float)l->lo,
                high = l->table != NULL ? (float)l->table[l->hi] : (float)l->hi;
    float best = 0.0f, best_gain = -1.0f;
    if (!(most > 0x1p-120f)) return 0.0f;
    for (int sign = -1; sign <= 1; sign += 2) {
        /* The largest element at a level between some 0.6 and 1.1 of the outermost one. */
        const float outer = low > high ? low : high;
        for (int i = 0; i <= STEPS; i++) {
            const float inverse =
                (float)sign * (outer * (0.6f + 0.5f * (float)i / (float)STEPS) + 0.25f) / most;
            float scale = 0.0f, own = gain(g, l, inverse, &scale);
            if (own > best_gain) {
                best_gain = own;
                best = scale;
            }
        }
    }
    for (int i = 0; i < ROUNDS && best != 0.0f; i++) {
        float scale = 0.0f;
        const float own = gain(g, l, 1.0f / best, &scale);
        if (own <= best_gain) break;
        best_gain = own;
        best = scale;
    }
    return best;
}

/* ---- codes times a scale, and an offset ------------------------------------------------------ */

float code_affine(int8_t *q, const group *g, int most, float scale, float offset)
{
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f, hi = (float)most;
    float error = 0.0f;
    const float by = isfinite(inverse) ? inverse : 0.0f;
    for (int i = 0; i < g->n; i++)
        q[i] = (int8_t)nearest_integer(clamp((g->x[i] - offset) * by, 0.0f, hi));
#pragma omp simd reduction(+ : error)
    for (int i = 0; i < g->n; i++) {
        const float d = g->x[i] - scale * (float)q[i] - offset;
        error += g->w[i] * d * d;
    }
    return error;
}

/* Sums that do not depend on codes. */
typedef struct sums {
    float w, wx;
} sums;

/* Least squares for the codes of (x - offset) * inverse. Returns the error less that of all zeros,
 * which is the sum of w x^2. */
static float refit(
    const group *g, const sums *s, int most, int below_zero, float inverse, float offset,
    affine *out
)
{
    const float hi = (float)most;
    float q1 = 0.0f, q2 = 0.0f, qx = 0.0f;
#pragma omp simd reduction(+ : q1, q2, qx)
    for (int i = 0; i < g->n; i++) {
        const float q = nearest_integer(clamp((g->x[i] - offset) * inverse, 0.0f, hi)),
                    wq = g->w[i] * q;
        q1 += wq;
        q2 += wq * q;
        qx += wq * g->x[i];
    }
    const double det = (double)s->w * (double)q2 - (double)q1 * (double)q1;
    double scale = 0.0, at = 0.0;
    if (det > 1e-12 * (double)s->w * (double)q2) {
        scale = ((double)s->w * (double)qx - (double)s->wx * (double)q1) / det;
        at = ((double)q2 * (double)s->wx - (double)q1 * (double)qx) / det;
    } else if (s->w > 0.0f) {
        at = (double)s->wx / (double)s->w;
    }
    if (below_zero && at > 0.0) {
        at = 0.0;
        scale = q2 > 0.0f ? (double)qx / (double)q2 : 0.0;
    }
    *out = (affine){ (float)scale, (float)at };
    return (float)(scale * scale * (double)q2 + at * at * (double)s->w +
                   2.0 * scale * at * (double)q1 - 2.0 * scale * (double)qx -
                   2.0 * at * (double)s->wx);
}

affine fit_affine(const group *g, int most, int below_zero)
{
    enum { ROUNDS = 3 };
    const int steps = most <= 3 ? 36 : 20;
    float lo = g->x[0], hi = g->x[0];
    sums s = { 0 };
    for (int i = 0; i < g->n; i++) {
        lo = g->x[i] < lo ? g->x[i] : lo;
        hi = g->x[i] > hi ? g->x[i] : hi;
        s.w += g->w[i];
        s.wx += g->w[i] * g->x[i];
    }
    if (below_zero && lo > 0.0f) lo = 0.0f;
    affine best = { 0.0f, lo };
    if (!(hi - lo > 0x1p-120f)) return best;
    float best_error = INFINITY;
    for (int i = 0; i <= steps; i++) {
        const float spread = (float)most + 1.8f * ((float)i / (float)steps - 0.5f);
        affine now;
        const float inverse = spread / (hi - lo),
                    error = refit(g, &s, most, below_zero, inverse, lo, &now);
        if (error >= best_error || !(now.scale > 0.0f)) continue;
        best_error = error;
        best = now;
    }
    for (int i = 0; i < ROUNDS && best.scale > 0.0f; i++) {
        affine now;
        const float error = refit(g, &s, most, below_zero, 1.0f / best.scale, best.offset, &now);
        if (error >= best_error || !(now.scale > 0.0f)) break;
        best_error = error;
        best = now;
    }
    return best;
}
