/* tools/convert/blocks_scale.c - blocks of 256 elements whose groups have integer scales, times one
 * of 16 bits: Q3_K, Q6_K, IQ4_XS.
 *
 * Groups are fitted alone. Then the integers of the groups and the block's scale are improved in
 * turn: an integer takes a neighbour's place if that lowers the group's error, and the scale is
 * fitted to all codes by least squares. */
#include <math.h>
#include <string.h>

#include "tools/convert/blocks.h"

enum { ELEMENTS = 256, GROUPS_MAX = 16 };

/* What a type stores of the scales: integers lo .. hi. */
typedef struct scheme {
    int n_groups, lo, hi;
    const levels *levels;
} scheme;

typedef struct block {
    int8_t q[ELEMENTS];
    int scales[GROUPS_MAX];
    uint16_t d;
    float error;
} block;

static group group_at(const float *x, const float *w, const scheme *s, int index)
{
    const int n = ELEMENTS / s->n_groups;
    return (group){ x + n * index, w + n * index, n };
}

/* The integer near scale / d, and its codes, with the least error. Returns the error. */
static float choose(int8_t *q, int *out, const group *g, const scheme *s, float d, float scale)
{
    const float at = d != 0.0f ? scale / d : 0.0f;
    const int middle =
        (int)lrintf(at<(float)s->lo ? (float)s->lo : at>(float) s->hi ? (float)s->hi : at);
    float best = INFINITY;
    for (int i = middle - 1; i <= middle + 1; i++) {
        int8_t own[GROUP_MAX];
        if (i < s->lo || i > s->hi) continue;
        const float error = code_group(own, g, s->levels, d * (float)i);
        if (error >= best) continue;
        best = error;
        *out = i;
        memcpy(q, own, (size_t)g->n);
    }
    return best;
}

/* Codes of all groups for the block's scale d, near these scales of the groups. */
static void code_block(
    block *out, const float *x, const float *w, const scheme *s, float d, const float *scales
)
{
    const float stored = round_f16(d, &out->d);
    out->error = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        out->error += choose(out->q + g.n * j, &out->scales[j], &g, s, stored, scales[j]);
    }
}

/* The scale of the block that fits its codes and integers best. */
static float refit(const block *from, const float *x, const float *w, const scheme *s)
{
    double num = 0.0, den = 0.0;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        const double k = from->scales[j];
        double xl, ll;
        scale_sums(&g, s->levels, from->q + g.n * j, &xl, &ll);
        num += k * xl;
        den += k * k * ll;
    }
    return den > 0.0 ? (float)(num / den) : 0.0f;
}

static void fit_block(block *best, const float *x, const float *w, const scheme *s)
{
    enum { ROUNDS = 3 };
    float scales[GROUPS_MAX], most = 0.0f;
    for (int j = 0; j < s->n_groups; j++) {
        const group g = group_at(x, w, s, j);
        scales[j] = fit_scale(&g, s->levels);
        if (fabsf(scales[j]) > fabsf(most)) most = scales[j];
    }
    /* The largest scale at the outermost integer, which is negative, and somewhat within. */
    const float inner[] = { 0.0f, 0.5f, 1.0f, 2.0f };
    best->error = INFINITY;
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        block now;
        code_block(&now, x, w, s, most / ((float)s->lo + inner[i]), scales);
        for (int r = 0; r < ROUNDS; r++) {
            if (now.error < best->error)
                *best = now;
            else if (r > 0)
                break;
            const float d = refit(&now, x, w, s);
            code_block(&now, x, w, s, d, scales);
        }
        if (now.error < best->error) *best = now;
    }
}

void weir_quantise_q6_k(weir_block_q6_k *out, const float *x, const float *w)
{
    static const levels codes = { .lo = -32, .hi = 31 };
    static const scheme q6 = { .n_groups = 16, .lo = -128, .hi = 127, .levels = &codes };
    block b;
    fit_block(&b, x, w, &q6);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    for (int j = 0; j < 16; j++) {
        out->scales[j] = (int8_t)b.scales[j];
        const int half = j / 8, k = j / 2 % 4;
        uint8_t *const ql = out->ql + 64 * half + 32 * (k & 1) + 16 * (j & 1), *const qh =
                                                                                   out->qh +
                                                                                   32 * half +
                                                                                   16 * (j & 1);
        for (int i = 0; i < 16; i++) {
            const int q = b.q[16 * j + i] + 32;
            ql[i] = (uint8_t)(ql[i] | (q & 15) << 4 * (k >> 1));
            qh[i] = (uint8_t)(qh[i] | (q >> 4) << 2 * k);
        }
    }
}

void weir_quantise_q3_k(weir_block_q3_k *out, const float *x, const float *w)
{
    static const levels codes = { .lo = -4, .hi = 3 };
    static const scheme q3 = { .n_groups = 16, .lo = -32, .hi = 31, .levels = &codes };
    block b;
    fit_block(&b, x, w, &q3);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    for (int j = 0; j < 16; j++) {
        const int scale = b.scales[j] + 32, shift = 2 * (j / 2 % 4);
        uint8_t *const q = out->q + 32 * (j / 8) + 16 * (j & 1), *const mask =
                                                                     out->high_mask + 16 * (j & 1);
        out->scales[j % 8] = (uint8_t)(out->scales[j % 8] | (scale & 15) << 4 * (j / 8));
        out->scales[8 + j % 4] = (uint8_t)(out->scales[8 + j % 4] | (scale >> 4) << 2 * (j / 4));
        for (int i = 0; i < 16; i++) {
            const int code = b.q[16 * j + i] + 4;
            q[i] = (uint8_t)(q[i] | (code & 3) << shift);
            mask[i] = (uint8_t)(mask[i] | (code >> 2) << (j / 2));
        }
    }
}

void weir_quantise_iq4_xs(weir_block_iq4_xs *out, const float *x, const float *w)
{
    static const scheme iq4 = { .n_groups = 8, .lo = -32, .hi = 31, .levels = &weir_iq4_levels_of };
    block b;
    fit_block(&b, x, w, &iq4);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    for (int j = 0; j < 8; j++) {
        const int scale = b.scales[j] + 32;
        out->scales_low[j / 2] = (uint8_t)(out->scales_low[j / 2] | (scale & 15) << 4 * (j & 1));
        out->scales_high = (uint16_t)(out->scales_high | (scale >> 4) << 2 * j);
        for (int i = 0; i < 16; i++)
            out->q[16 * j + i] = (uint8_t)(b.q[32 * j + i] | b.q[32 * j + i + 16] << 4);
    }
}
