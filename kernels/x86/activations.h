/* kernels/x86/activations.h - one group of 32 activations to int8. One text for all kernels that read WEIR_LAYOUT_TILES, so that all
 * instruction sets (and the reference) get the same codes; compiled into each of them. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/x86/tiles.h"

typedef struct weir_activation_group {
    float   scale;
    int32_t sums[2]; /* of codes 0..15 and 16..31 */
} weir_activation_group;

/* scale = amax / 127, code = round to nearest even of x * (127 / amax). amax below 2^-100 gives zeros (127 / amax must not overflow);
 * a group with an infinity or NaN gets a NaN scale and zero codes, so that the row's outputs are NaN. The maximum is taken over bit
 * patterns, whose order is that of the absolute values, with NaN above all. */
static inline weir_activation_group weir_activation_quantise(int8_t codes[WEIR_TILE_GROUP], const float *x)
{
    int32_t bits[WEIR_TILE_GROUP], largest = 0;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < WEIR_TILE_GROUP; i++) {
        const int32_t magnitude = bits[i] & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    float amax;
    memcpy(&amax, &largest, sizeof amax);
    const bool finite = largest < 0x7f800000, zero = amax < 0x1p-100f;
    weir_activation_group group = { .scale = finite ? (zero ? 0.0f : amax / 127.0f) : (float)NAN };
    if (!finite || zero) {
        memset(codes, 0, WEIR_TILE_GROUP);
        return group;
    }
    const float inverse = 127.0f / amax;
    int32_t     wide[WEIR_TILE_GROUP];
    for (int i = 0; i < WEIR_TILE_GROUP; i++) wide[i] = (int32_t)rintf(x[i] * inverse);
    for (int i = 0; i < WEIR_TILE_GROUP; i++) codes[i] = (int8_t)wide[i];
    for (int half = 0; half < 2; half++) {
        int32_t sum = 0;
        for (int i = 0; i < WEIR_TILE_GROUP / 2; i++) sum += wide[half * (WEIR_TILE_GROUP / 2) + i];
        group.sums[half] = sum;
    }
    return group;
}
