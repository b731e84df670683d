/* kernels/x86/matmul_tiles_v2.c - the product on tiles in plain C, for machines without AVX2. Slow:
 * see lanes_fma. */
#define ROW weir_kernel_x86_matmul_tiles_v2
#define NAME "x86.matmul_tiles.v2"
#define ROWS 1
#define FEW_ROWS 1
#define ROW_AHEAD 8192
#define RUNS_ON(caps) true
#define MISSING ""
#include "kernels/x86/matmul_tiles_row.h"
