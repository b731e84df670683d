/* tools/convert/blocks_affine.c - blocks of 256 elements whose groups have an integer scale and an
 * integer minimum, times two of 16 bits: Q2_K, Q4_K, Q5_K.
 *
 * As in blocks_scale.c, with two integers a group and two factors a block. */
#include <math.h>
#include <string.h>

#include "tools/convert/blocks.h"

enum { ELEMENTS = 256, GROUPS_MAX = 16 };

/* Codes 0 .. code, and integers 0 .. most for scales and minima. */
typedef struct scheme {
    int n_groups, code, most;
} scheme;

typedef struct block {
    int8_t q[ELEMENTS];
    int scales[GROUPS_MAX], minima[GROUPS_MAX];
    uint16_t d, dmin;
    float error;
} block;

/* Factors of the integers: the value of a code is d * scale * code - dmin * minimum. */
typedef struct factors {
    float d, dmin;
} factors;

static group group_at(const float *x, const float *w, const scheme *s, int index)
{
    const int n = ELEMENTS / s->n_groups;
    return (group){ x + n * index, w + n * index, n };
}

static int nearest_within(float x, int most)
{
    return (int)lrintf(x<0.0f ? 0.0f : x>(float) most ? (float)most : x);
}

/* Integers near those of the fit, and their codes, with the least error, which is returned. */
static float choose(
    int8_t *q, int *scale, int *minimum, const group *g, const scheme *s, factors f, affine fit
)
{
    const int middle = nearest_within(f.d > 0.0f ? fit.scale / f.d : 0.0f, s->most),
              below = nearest_within(f.dmin > 0.0f ? -fit.offset / f.dmin : 0.0f, s->most);
    float best = INFINITY;
    for (int k = middle - 1; k <= middle + 1; k++) {
        for (int m = below - 1; m <= below + 1; m++) {
            int8_t own[GROUP_MAX];
            if (k < 0 || k > s->most || m < 0 || m > s->most) continue;
            const float error = code_affine(own, g, s->code, f.d * (float)k, -f.dmin * (float)m);
            if (error >= best) continue;
            best = error;
            *scale = k;
            *minimum = m;
            memcpy(q, own, (size_t)g->n);
        }
    }
    return best;
}

static void code_block(
    block *out, const float *x, const float *w, const scheme *s, factors f, const affine *fits
)
{
    const factors stored = { .d = round_f16(f.d, &out->d), .dmin = round_f16(f.dmin, &out->dmin) };
    out->error = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        out->error +=
            choose(out->q + g.n * j, &out->scales[j], &out->minima[j], &g, s, stored, fits[j]);
    }
}

/* The factors that fit the block's codes and integers best; both above 0, or as they are. */
static factors refit(
    const block *from, const float *x, const float *w, const scheme *s, factors now
)
{
    double aa = 0.0, ab = 0.0, bb = 0.0, ax = 0.0, bx = 0.0;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        const int8_t *const q = from->q + g.n * j;
        float q1 = 0.0f, q2 = 0.0f, qx = 0.0f, w1 = 0.0f, wx = 0.0f;
#pragma omp simd reduction(+ : q1, q2, qx, w1, wx)
        for (int i = 0; i < g.n; i++) {
            const float wq = g.w[i] * (float)q[i];
            q1 += wq;
            q2 += wq * (float)q[i];
            qx += wq * g.x[i];
            w1 += g.w[i];
            wx += g.w[i] * g.x[i];
        }
        const double k = from->scales[j], m = from->minima[j];
        aa += k * k * (double)q2;
        ab += k * m * (double)q1;
        bb += m * m * (double)w1;
        ax += k * (double)qx;
        bx += m * (double)wx;
    }
    const double det = aa * bb - ab * ab;
    if (!(bb > 0.0)) return (factors){ aa > 0.0 ? (float)(ax / aa) : now.d, now.dmin };
    if (!(det > 1e-9 * aa * bb)) return now;
    const double d = (ax * bb - bx * ab) / det, dmin = (ax * ab - bx * aa) / det;
    return d > 0.0 && dmin > 0.0 ? (factors){ (float)d, (float)dmin } : now;
}

static void fit_block(block *best, const float *x, const float *w, const scheme *s)
{
    enum { ROUNDS = 3 };
    affine fits[GROUPS_MAX];
    float scale = 0.0f, minimum = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        fits[j] = fit_affine(&g, s->code, 1);
        scale = fits[j].scale > scale ? fits[j].scale : scale;
        minimum = -fits[j].offset > minimum ? -fits[j].offset : minimum;
    }
    /* The largest at the last integer, or past it. */
    static const float past[] = { 1.0f, 0.92f, 0.84f };
    best->error = INFINITY;
    for (size_t i = 0; i < sizeof past / sizeof past[0]; i++) {
        factors f = { scale * past[i] / (float)s->most, minimum * past[i] / (float)s->most };
        block now;
        code_block(&now, x, w, s, f, fits);
        for (int r = 0; r < ROUNDS; r++) {
            if (now.error < best->error)
                *best = now;
            else if (r > 0)
                break;
            f = refit(&now, x, w, s, f);
            code_block(&now, x, w, s, f, fits);
        }
        if (now.error < best->error) *best = now;
    }
}

void weir_quantise_q2_k(weir_block_q2_k *out, const float *x, const float *w)
{
    static const scheme q2 = { .n_groups = 16, .code = 3, .most = 15 };
    block b;
    fit_block(&b, x, w, &q2);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    out->dmin = b.dmin;
    for (int j = 0; j < 16; j++) {
        uint8_t *const q = out->q + 32 * (j / 8) + 16 * (j & 1);
        const int shift = 2 * (j / 2 % 4);
        out->scales[j] = (uint8_t)(b.scales[j] | b.minima[j] << 4);
        for (int i = 0; i < 16; i++) q[i] = (uint8_t)(q[i] | b.q[16 * j + i] << shift);
    }
}

/* Scale and minimum j (0 .. 7) of Q4_K and Q5_K, 6 bits each. */
static void put_scale_min(uint8_t scales[12], int j, int scale, int minimum)
{
    if (j < 4) {
        scales[j] = (uint8_t)(scales[j] | scale);
        scales[j + 4] = (uint8_t)(scales[j + 4] | minimum);
    } else {
        scales[j + 4] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
        scales[j - 4] = (uint8_t)(scales[j - 4] | (scale >> 4) << 6);
        scales[j] = (uint8_t)(scales[j] | (minimum >> 4) << 6);
    }
}

static void pack_k(uint8_t scales[12], uint8_t q[128], uint8_t *qh, const block *b)
{
    for (int j = 0; j < 8; j++) {
        put_scale_min(scales, j, b->scales[j], b->minima[j]);
        for (int i = 0; i < 32; i++) {
            const int code = b->q[32 * j + i];
            uint8_t *const at = &q[32 * (j / 2) + i];
            *at = (uint8_t)(*at | (code & 15) << 4 * (j & 1));
            if (qh != NULL) qh[i] = (uint8_t)(qh[i] | (code >> 4) << j);
        }
    }
}

void weir_quantise_q4_k(weir_block_q4_k *out, const float *x, const float *w)
{
    static const scheme q4 = { .n_groups = 8, .code = 15, .most = 63 };
    block b;
    fit_block(&b, x, w, &q4);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    out->dmin = b.dmin;
    pack_k(out->scales, out->q, NULL, &b);
}

void weir_quantise_q5_k(weir_block_q5_k *out, const float *x, const float *w)
{
    static const scheme q5 = { .n_groups = 8, .code = 31, .most = 63 };
    block b;
    fit_block(&b, x, w, &q5);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    out->dmin = b.dmin;
    pack_k(out->scales, out->q, out->qh, &b);
}
