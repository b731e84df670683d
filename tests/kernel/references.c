/* tests/kernel/references.c - the ref lines of kernels/list.inc. */
#include "tests/kernel/references.h"

#define WEIR_KERNEL(symbol, isa)
#define WEIR_OMP_KERNEL(op)

#define WEIR_REF_KERNEL(op) extern const weir_kernel weir_kernel_ref_##op;
#include "kernels/list.inc"
#undef WEIR_REF_KERNEL

const weir_kernel *reference_kernel(weir_op op)
{
    static const weir_kernel *const rows[] = {
#define WEIR_REF_KERNEL(op) &weir_kernel_ref_##op,
#include "kernels/list.inc"
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i]->op == op) return rows[i];
    return NULL;
}
