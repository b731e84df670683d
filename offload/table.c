/* offload/table.c - the rows of kernels/list.inc, then the reference of each op, as an array. */
#include "offload/table.h"

#define WEIR_OMP_KERNEL(name)                                                                      \
    WEIR_KERNEL(omp_##name##_v4, V4)                                                               \
    WEIR_KERNEL(omp_##name##_v3, V3)                                                               \
    WEIR_KERNEL(omp_##name##_v2, V2)

#define WEIR_KERNEL(symbol, isa) extern const weir_kernel weir_kernel_##symbol;
#define WEIR_OP(NAME, name, where, launches) WEIR_KERNEL(ref_##name, ANY)
#include "kernels/abi/ops.inc"
#include "kernels/list.inc"
#undef WEIR_KERNEL

static const weir_table_row rows[] = {
#define WEIR_KERNEL(symbol, isa) { &weir_kernel_##symbol, WEIR_ISA_##isa },
#include "kernels/list.inc"
#define WEIR_OP(NAME, name, where, launches) WEIR_KERNEL(ref_##name, ANY)
#include "kernels/abi/ops.inc"
#undef WEIR_KERNEL
};

const weir_table_row *weir_table_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
