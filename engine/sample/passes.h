/* engine/sample/passes.h - the loops over a whole vocabulary, for one instruction level each.
 *
 * All levels give the same bits: sums are added in the order stated below and no multiplication and
 * addition are contracted. Logits may be any floats (weir_clean_logit). */
#pragma once
#include <float.h>
#include <math.h>
#include <stddef.h>

#include "kernels/abi/isa.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_SAMPLE_BLOCK = 64 }; /* ids that share a maximum and a sum */

/* What a logit x becomes: (x - best) / temperature, or x if `temperature` is 1. Monotone, so that
 * the maximum of a block becomes the maximum of the block's values. */
typedef struct weir_temperature {
    float best, temperature;
} weir_temperature;

/* NaN counts as -inf, +inf as FLT_MAX. */
static inline float weir_clean_logit(float x)
{
    const float y = x > FLT_MAX ? FLT_MAX : x;
    return y == y ? y : -INFINITY;
}

typedef struct weir_passes {
    /* out[i] = logits[i], made finite or -inf. */
    void (*clean)(float *out, const float *logits, size_t n);
    /* out[b]: the largest logit of block b, as `clean` leaves it. */
    void (*block_max)(float *out, const float *logits, size_t n);
    /* weights[i] = exp(value of logits[i] - shift) for values up to `shift`, within 2 units in the
     * last place; 0 below exp(-87). */
    void (*weigh)(
        float *weights, const float *logits, size_t n, weir_temperature temperature, float shift
    );
    /* sums[b]: the sum of what `weigh` gives for block b: eight sums, of every eighth weight each,
     * added in order, then the weights after the last whole eight. */
    void (*block_sums)(
        double *sums, const float *logits, size_t n, weir_temperature temperature, float shift
    );
} weir_passes;

/* The passes of the highest level up to `isa`, which the machine must have. */
const weir_passes *weir_passes_of(weir_isa isa);

#ifdef __cplusplus
}
#endif
