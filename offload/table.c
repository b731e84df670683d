/* offload/table.c - kernels/list.inc as an array. */
#include "offload/table.h"

#define WEIR_OMP_KERNEL(op)                                                                        \
    WEIR_KERNEL(omp_##op##_v4, V4) WEIR_KERNEL(omp_##op##_v3, V3) WEIR_KERNEL(omp_##op##_v2, V2)
#define WEIR_REF_KERNEL(op) WEIR_KERNEL(ref_##op, ANY)

#define WEIR_KERNEL(symbol, isa) extern const weir_kernel weir_kernel_##symbol;
#include "kernels/list.inc"
#undef WEIR_KERNEL

static const weir_table_row rows[] = {
#define WEIR_KERNEL(symbol, isa) { &weir_kernel_##symbol, WEIR_ISA_##isa },
#include "kernels/list.inc"
#undef WEIR_KERNEL
};

const weir_table_row *weir_table_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
