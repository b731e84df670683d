/* tools/convert/grid_block.h - blocks of 256 elements that are rows of a grid, with integer scales
 * of their groups times one of 16 bits: IQ1, IQ2, IQ3. Private to the quantisers. */
#pragma once
#include "tools/convert/grid_search.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GRID_ELEMENTS = 256, GRID_GROUPS = 16, GRID_EIGHTS = 32 };

/* Whether levels are moved by a delta of either sign. */
typedef enum delta_rule { DELTA_NONE, DELTA_OF_GROUP, DELTA_OF_EIGHT } delta_rule;

/* What a type stores. The scale of a group is d * unit * (2 k + 1), k in 0 .. most. */
typedef struct grid_scheme {
    weir_dtype dtype;
    sign_rule signs;
    delta_rule delta;
    int n_groups, most;
    float unit;
} grid_scheme;

typedef struct grid_block {
    eight eights[GRID_EIGHTS];
    int scales[GRID_GROUPS];
    uint16_t d; /* 0: all values are 0 */
    float error;
} grid_block;

/* The codes of x [256] of importance w [256] with the least error that the search finds. */
void fit_grid_block(grid_block *out, const float *x, const float *w, const grid_scheme *s);

#ifdef __cplusplus
}
#endif
