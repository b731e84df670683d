/* kernels/ref/grids.h - the grids of ggml's IQ types: rows of small digits that an index in a block
 * picks. They were fitted to weights, so no rule gives them; they are part of the file format.
 *
 * IQ1 and IQ2: eight digits 0 to 2, digit i in bits 2i and 2i + 1. IQ3: four digits 0 to 7, digit i
 * in bits 4i to 4i + 3. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const uint16_t weir_grid_iq1[2048];
extern const uint16_t weir_grid_iq2_xxs[256];
extern const uint16_t weir_grid_iq2_xs[512];
extern const uint16_t weir_grid_iq2_s[1024];
extern const uint16_t weir_grid_iq3_xxs[256];
extern const uint16_t weir_grid_iq3_s[512];

#ifdef __cplusplus
}
#endif
