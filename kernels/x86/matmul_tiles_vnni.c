/* kernels/x86/matmul_tiles_vnni.c - the product on tiles with AVX-512 VNNI: 64 multiplications per
 * instruction. Six rows by two tiles are 12 accumulators, 12 sums and 4 operands of the 32
 * registers; four rows or fewer also prefetch. */
#define ROW weir_kernel_x86_matmul_tiles_vnni
#define NAME "x86.matmul_tiles.vnni"
#define ROWS 6
#define FEW_ROWS 4
#define ROW_AHEAD 8192
#define RUNS_ON(caps) ((caps)->x86_v4 && (caps)->avx512_vnni)
#define MISSING "needs AVX-512 VNNI"
#include "kernels/x86/matmul_tiles_row.h"
