/* kernels/x86/matmul_tiles_v3.c - the product on tiles with AVX2. Four rows by one tile are 8 sums,
 * 4 vectors of codes, an input and a product of the 16 registers; the accumulators of both tiles
 * are in L1. One row on Zen 3: 8 KB ahead are 0.85 to 0.97 of the speed of 1 KB. */
#define ROW weir_kernel_x86_matmul_tiles_v3
#define NAME "x86.matmul_tiles.v3"
#define ROWS 4
#define FEW_ROWS 4
#define ROW_AHEAD 1024
#define RUNS_ON(caps) ((caps)->x86_v3)
#define MISSING "needs AVX2 (x86-64-v3)"
#include "kernels/x86/matmul_tiles_row.h"
