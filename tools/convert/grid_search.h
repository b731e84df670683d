/* tools/convert/grid_search.h - the rows of a grid, and the signs, that code eight elements with
 * the least weighted squared error. Exact: no row and no allowed signs are nearer.
 *
 * Rows are found by the values of their high half: those whose half alone costs more than the best
 * row so far are not looked at. The tables of all grids take 15 KB, filled at program start.
 * Private to the quantisers. */
#pragma once
#include <stdint.h>

#include "kernels/abi/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A grid's rows in the order of their high halves. A half has n_part^2 values. */
typedef struct grid {
    const uint16_t *rows; /* kernels/ref/grids.h */
    int n_rows;
    int n_levels; /* of a digit: 3 of eight digits, or 8 of four */
    uint16_t first[82]; /* of high half h: first[h] .. first[h + 1] - 1 */
    uint8_t *low; /* [n_rows] their low halves */
    uint16_t *index; /* [n_rows] their places in `rows` */
} grid;

/* How elements have signs. */
typedef enum sign_rule {
    SIGNS_IN_LEVELS, /* digits have signs: IQ1 */
    SIGNS_FREE, /* one for each element */
    SIGNS_EVEN, /* the number of negative ones is even */
} sign_rule;

/* The codes of eight elements. */
typedef struct eight {
    uint16_t rows[2]; /* IQ3: the second is that of elements 4 .. 7 */
    uint8_t signs; /* bit i: element i is negative */
    uint8_t is_low; /* IQ1: levels are those with the negative delta */
    int8_t levels[8]; /* values, with signs, as multiples of the scale */
} eight;

/* The grid of an IQ1, IQ2 or IQ3 type. */
const grid *grid_of(weir_dtype dtype);

/* Codes x [8] of importance w [8] at this scale, not below 0; `levels` [n_levels] in ascending
 * order are those of the digits. Leaves is_low alone. Returns the error. */
float code_eight(
    eight *out, const grid *g, const int8_t *levels, sign_rule rule, const float *x, const float *w,
    float scale
);

#ifdef __cplusplus
}
#endif
