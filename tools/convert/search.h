/* tools/convert/search.h - the searches that quantised blocks share: codes and scales of a group of
 * up to 32 elements with the least weighted squared error.
 *
 * Levels are integers in ascending order: lo .. hi, or a table. A group's elements are x, their
 * importance w. Private to the quantisers. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GROUP_MAX = 32 };

/* Where elements are coded: uniform levels lo .. hi, or those of a table. */
typedef struct levels {
    int lo, hi; /* codes and, without a table, levels */
    const int8_t *table; /* [16] for codes 0 .. 15; NULL: level = code */
    const uint8_t *nearest; /* [512] code of the level nearest to i / 2 - 128; with a table */
} levels;

/* A group's elements with their importance. */
typedef struct group {
    const float *x, *w; /* [n] */
    int n;
} group;

/* q [n] = the code whose level times `scale` is nearest to each element. Returns the error. */
float code_group(int8_t *q, const group *g, const levels *l, float scale);
/* The scale with the least error that the search finds; 0 if all x are 0. Either sign. */
float fit_scale(const group *g, const levels *l);
/* Sums over the elements with codes q: w * x * level, and w * level^2. */
void scale_sums(const group *g, const levels *l, const int8_t *q, double *xl, double *ll);

/* q [n] = the code, 0 .. most, for which code * scale + offset is nearest. Returns the error. */
float code_affine(int8_t *q, const group *g, int most, float scale, float offset);
typedef struct affine {
    float scale, offset;
} affine;
/* The scale and offset with the least error that the search finds. below_zero: the offset must not
 * be above 0. */
affine fit_affine(const group *g, int most, int below_zero);

/* Rounds to f16 and back; *bits is what the block stores. */
float round_f16(float x, uint16_t *bits);

#ifdef __cplusplus
}
#endif
