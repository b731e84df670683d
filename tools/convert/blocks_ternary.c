/* tools/convert/blocks_ternary.c - blocks of one scale and two to four levels: TQ1_0 and TQ2_0 have
 * -1, 0, 1 times it, Q2_0 also 2, Q1_0 only -1 and 1.
 *
 * From an infinite scale, at which all elements are 0, downwards, elements change to the next level
 * one after another. Between two changes codes are fixed, and the best scale follows by least
 * squares: all are tried, so only the rounding of the scale is not optimal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/blocks.h"

enum { N = 256 };

/* An element takes the next level below this scale: what the sums of w * x * level and of
 * w * level^2 grow by. */
typedef struct change {
    float scale, xl, ll;
} change;

static int by_scale(const void *a, const void *b)
{
    const float x = ((const change *)a)->scale, y = ((const change *)b)->scale;
    return (x < y) - (x > y);
}

/* The scale of the most gain, xl^2 / ll, after some of the changes. */
static float best_scale(change *changes, int n, double *gain)
{
    double xl = 0.0, ll = 0.0, best = 0.0;
    *gain = 0.0;
    qsort(changes, (size_t)n, sizeof *changes, by_scale);
    for (int i = 0; i < n; i++) {
        xl += (double)changes[i].xl;
        ll += (double)changes[i].ll;
        if (xl * xl <= *gain * ll) continue;
        *gain = xl * xl / ll;
        best = xl / ll;
    }
    return (float)best;
}

/* trits [256]: 0, 1 or 2 for -1, 0 or 1. Returns the scale as f16. */
static uint16_t code_ternary(uint8_t *trits, const float *x, const float *w)
{
    change changes[N];
    double gain;
    uint16_t bits;
    for (int i = 0; i < N; i++) {
        const float a = fabsf(x[i]);
        changes[i] = (change){ 2.0f * a, w[i] * a, w[i] };
    }
    const float scale = round_f16(best_scale(changes, N, &gain), &bits);
    for (int i = 0; i < N; i++)
        trits[i] = (uint8_t)(fabsf(x[i]) <= 0.5f * scale ? 1 : x[i] < 0.0f ? 0 : 2);
    return bits;
}

/* Elements m, m + n_bytes, .. of five trits a byte, the first most significant; the byte is the
 * least whose fraction of 256 has them (kernels/ref/levels.c multiplies it by 3 for each). */
static void put_trits(uint8_t *out, const uint8_t *trits, int n_bytes, int n_trits)
{
    for (int m = 0; m < n_bytes; m++) {
        int value = 0;
        for (int t = 0; t < 5; t++) value = 3 * value + (t < n_trits ? trits[t * n_bytes + m] : 0);
        out[m] = (uint8_t)((value * 256 + 242) / 243);
    }
}

void weir_quantise_tq1_0(weir_block_tq1_0 *out, const float *x, const float *w)
{
    uint8_t trits[N];
    out->d = code_ternary(trits, x, w);
    put_trits(out->q, trits, 32, 5);
    put_trits(out->q + 32, trits + 160, 16, 5);
    put_trits(out->qh, trits + 240, 4, 4);
}

void weir_quantise_tq2_0(weir_block_tq2_0 *out, const float *x, const float *w)
{
    uint8_t trits[N];
    out->d = code_ternary(trits, x, w);
    memset(out->q, 0, sizeof out->q);
    for (int i = 0; i < N; i++) {
        uint8_t *const q = &out->q[i / 128 * 32 + i % 32];
        *q = (uint8_t)(*q | trits[i] << 2 * (i % 128 / 32));
    }
}

/* ---- one and two bits ------------------------------------------------------------------------ */
/* The best scale of this sign for levels -1, 0, 1, 2. */
static float fit_q2_0(const float *x, const float *w, float sign, double *gain)
{
    enum { ELEMENTS = 64 };
    change changes[2 * ELEMENTS];
    int n = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        const float own = sign * x[i], a = fabsf(own);
        changes[n++] = (change){ 2.0f * a, w[i] * a, w[i] };
        if (own > 0.0f) changes[n++] = (change){ own / 1.5f, w[i] * own, 3.0f * w[i] };
    }
    return sign * best_scale(changes, n, gain);
}

void weir_quantise_q2_0(weir_block_q2_0 *out, const float *x, const float *w)
{
    double gain, other_gain;
    const float scale = fit_q2_0(x, w, 1.0f, &gain), other = fit_q2_0(x, w, -1.0f, &other_gain),
                stored = round_f16(other_gain > gain ? other : scale, &out->d);
    memset(out->q, 0, sizeof out->q);
    for (int i = 0; i < 64; i++) {
        const float at = stored != 0.0f ? x[i] / stored : 0.0f;
        const int code = (at > -0.5f) + (at > 0.5f) + (at > 1.5f);
        out->q[i / 4] = (uint8_t)(out->q[i / 4] | code << 2 * (i % 4));
    }
}

void weir_quantise_q1_0(weir_block_q1_0 *out, const float *x, const float *w)
{
    double sum = 0.0, sum_w = 0.0;
    memset(out->q, 0, sizeof out->q);
    for (int i = 0; i < 128; i++) {
        sum += (double)w[i] * fabs((double)x[i]);
        sum_w += (double)w[i];
        if (x[i] > 0.0f) out->q[i / 8] = (uint8_t)(out->q[i / 8] | 1 << i % 8);
    }
    (void)round_f16((float)(sum / sum_w), &out->d);
}
