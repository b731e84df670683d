/* kernels/x86/activations.h - quantises one group of 32 activations to int8. One source for all
 * kernels that read WEIR_LAYOUT_TILES, so that all instruction sets (and the reference) get the
 * same codes; compiled into each of them. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/x86/lanes16.h"
#include "kernels/x86/tiles.h"

typedef struct weir_activation_group {
    float scale;
    int32_t sums[2]; /* of codes 0..15 and 16..31 */
} weir_activation_group;

/* scale = amax / 127, code = round to nearest even of x * (127 / amax). amax below 2^-100 gives
 * zeros (127 / amax must not overflow); a group with an infinity or NaN gets a NaN scale and zero
 * codes, so that the row's outputs are NaN. */
LANES_INLINE weir_activation_group
weir_activation_quantise(int8_t codes[WEIR_TILE_GROUP], const float *x)
{
    const int32_t bits = lanes_magnitude(x);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (__builtin_expect(bits >= 0x7f800000 || amax < 0x1p-100f, 0)) {
        memset(codes, 0, WEIR_TILE_GROUP);
        return (weir_activation_group){ .scale = bits >= 0x7f800000 ? (float)NAN : 0.0f };
    }
    const float factor = 127.0f / amax;
    weir_activation_group group = { .scale = amax / 127.0f };
    group.sums[0] = lanes_quantise(codes, x, factor);
    group.sums[1] = lanes_quantise(codes + 16, x + 16, factor);
    return group;
}
