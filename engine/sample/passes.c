/* engine/sample/passes.c - bodies that the compiler turns into vector code once per level.
 *
 * Cost on 248,320 logits, one thread of a Zen 3, AVX2: block_max 24 us, block_sums 240 us. */
#include "engine/sample/passes.h"

#include <stdint.h>
#include <string.h>

#pragma STDC FP_CONTRACT OFF

#define BODY static inline __attribute__((always_inline))

enum { LANES = 16 }; /* independent maxima: the compiler may not reorder floats itself */

BODY size_t members(size_t n, size_t first)
{
    return n - first < WEIR_SAMPLE_BLOCK ? n - first : WEIR_SAMPLE_BLOCK;
}

BODY void clean_body(float *restrict out, const float *restrict logits, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = weir_clean_logit(logits[i]);
}

/* A comparison with NaN is false, so NaN never replaces a maximum. */
BODY void block_max_body(float *restrict out, const float *restrict logits, size_t n)
{
    for (size_t first = 0; first < n; first += WEIR_SAMPLE_BLOCK) {
        const size_t count = members(n, first), whole = count / LANES * LANES;
        const float *const in = logits + first;
        float lanes[LANES], best = -INFINITY;
        for (size_t j = 0; j < LANES; j++) lanes[j] = -INFINITY;
        for (size_t i = 0; i < whole; i += LANES)
            for (size_t j = 0; j < LANES; j++)
                lanes[j] = in[i + j] > lanes[j] ? in[i + j] : lanes[j];
        for (size_t j = 0; j < LANES; j++) best = lanes[j] > best ? lanes[j] : best;
        for (size_t i = whole; i < count; i++) best = in[i] > best ? in[i] : best;
        out[first / WEIR_SAMPLE_BLOCK] = weir_clean_logit(best);
    }
}

/* x = k ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of exp(r) up to r^7 (error below
 * 6e-9). ln 2 is split so that k times its first part is exact. */
BODY float exp_of_negative(float x)
{
    const float inside = x < -87.0f ? -87.0f : x;
    const float k =
        inside * 1.44269504f + 12582912.0f - 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    const float r = inside - k * 0.693115234375f - k * 3.19461849e-5f;
    const float tail =
        1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040))));
    const float series = 1.0f + (r + r * r * (0.5f + r * tail));
    const int32_t bits = ((int32_t)k + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : series * power;
}

BODY void weigh_body(
    float *restrict weights, const float *restrict logits, size_t n, weir_temperature t, float shift
)
{
    if (t.temperature == 1.0f)
#pragma clang loop interleave_count(2)
        for (size_t i = 0; i < n; i++)
            weights[i] = exp_of_negative(weir_clean_logit(logits[i]) - shift);
    else
#pragma clang loop interleave_count(2)
        for (size_t i = 0; i < n; i++)
            weights[i] =
                exp_of_negative((weir_clean_logit(logits[i]) - t.best) / t.temperature - shift);
}

BODY void block_sums_body(
    double *restrict sums, const float *restrict logits, size_t n, weir_temperature t, float shift
)
{
    for (size_t first = 0; first < n; first += WEIR_SAMPLE_BLOCK) {
        const size_t count = members(n, first), whole = count / 8 * 8;
        float weights[WEIR_SAMPLE_BLOCK];
        double lanes[8] = { 0 }, sum = 0;
        if (count == WEIR_SAMPLE_BLOCK)
            weigh_body(weights, logits + first, WEIR_SAMPLE_BLOCK, t, shift);
        else
            weigh_body(weights, logits + first, count, t, shift);
        for (size_t i = 0; i < whole; i += 8)
            for (size_t j = 0; j < 8; j++) lanes[j] += (double)weights[i + j];
        for (size_t j = 0; j < 8; j++) sum += lanes[j];
        for (size_t i = whole; i < count; i++) sum += (double)weights[i];
        sums[first / WEIR_SAMPLE_BLOCK] = sum;
    }
}

#define LEVEL(level, target)                                                                       \
    target static void clean_##level(float *out, const float *logits, size_t n)                    \
    {                                                                                              \
        clean_body(out, logits, n);                                                                \
    }                                                                                              \
    target static void block_max_##level(float *out, const float *logits, size_t n)                \
    {                                                                                              \
        block_max_body(out, logits, n);                                                            \
    }                                                                                              \
    target static void weigh_##level(                                                              \
        float *weights, const float *logits, size_t n, weir_temperature t, float shift             \
    )                                                                                              \
    {                                                                                              \
        weigh_body(weights, logits, n, t, shift);                                                  \
    }                                                                                              \
    target static void block_sums_##level(                                                         \
        double *sums, const float *logits, size_t n, weir_temperature t, float shift               \
    )                                                                                              \
    {                                                                                              \
        block_sums_body(sums, logits, n, t, shift);                                                \
    }                                                                                              \
    static const weir_passes passes_##level = { clean_##level, block_max_##level, weigh_##level,   \
                                                block_sums_##level };

LEVEL(v2, )
LEVEL(v3, __attribute__((target("arch=x86-64-v3"))))

const weir_passes *weir_passes_of(weir_isa isa)
{
    return isa >= WEIR_ISA_V3 ? &passes_v3 : &passes_v2;
}
