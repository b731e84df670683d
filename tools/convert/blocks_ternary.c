/* tools/convert/blocks_ternary.c - blocks of 256 elements that are -1, 0 or 1 times a scale: TQ1_0,
 * TQ2_0.
 *
 * At a scale, elements beyond half of it are not 0. So the elements that are not 0 are the largest
 * ones, and for each number of them the best scale is their weighted mean: all are tried. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/blocks.h"

enum { N = 256 };

typedef struct weighted {
    float magnitude, w;
} weighted;

static int by_magnitude(const void *a, const void *b)
{
    const float x = ((const weighted *)a)->magnitude, y = ((const weighted *)b)->magnitude;
    return (x < y) - (x > y);
}

/* The scale with the least error. */
static float fit_ternary(const float *x, const float *w)
{
    weighted sorted[N];
    double sum = 0.0, sum_w = 0.0, best_gain = 0.0, best = 0.0;
    for (int i = 0; i < N; i++) sorted[i] = (weighted){ fabsf(x[i]), w[i] };
    qsort(sorted, N, sizeof *sorted, by_magnitude);
    for (int i = 0; i < N; i++) {
        sum += (double)sorted[i].w * (double)sorted[i].magnitude;
        sum_w += (double)sorted[i].w;
        const double gain = sum * sum / sum_w;
        if (gain <= best_gain) continue;
        best_gain = gain;
        best = sum / sum_w;
    }
    return (float)best;
}

/* trits [256]: 0, 1 or 2 for -1, 0 or 1. Returns the scale as f16. */
static uint16_t code_ternary(uint8_t *trits, const float *x, const float *w)
{
    uint16_t bits;
    const float scale = round_f16(fit_ternary(x, w), &bits);
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
