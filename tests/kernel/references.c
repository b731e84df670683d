/* tests/kernel/references.c - the reference of each op. */
#include "tests/kernel/references.h"

#define WEIR_OP(NAME, name, where, launches) extern const weir_kernel weir_kernel_ref_##name;
#include "kernels/abi/ops.inc"

const weir_kernel *reference_kernel(weir_op op)
{
    static const weir_kernel *const rows[WEIR_OP_COUNT] = {
#define WEIR_OP(NAME, name, where, launches) [WEIR_OP_##NAME] = &weir_kernel_ref_##name,
#include "kernels/abi/ops.inc"
    };
    return op >= 0 && op < WEIR_OP_COUNT ? rows[op] : NULL;
}
