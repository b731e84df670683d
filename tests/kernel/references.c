/* tests/kernel/references.c - one ref row per op; the kernels of ref carry the op's name. */
#include "tests/kernel/references.h"

#define WEIR_REFERENCES(X)                                                                                                              \
    X(embed) X(rmsnorm) X(gated_rmsnorm) X(rope) X(matmul) X(swiglu) X(sigmoid_gate) X(add) X(kv_write) X(attention) X(conv1d)          \
    X(gated_delta_rule)
#define X(op) extern const weir_kernel weir_kernel_ref_##op;
WEIR_REFERENCES(X)
#undef X

const weir_kernel *reference_kernel(weir_op op)
{
    static const weir_kernel *const rows[] = {
#define X(op) &weir_kernel_ref_##op,
        WEIR_REFERENCES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i]->op == op) return rows[i];
    return NULL;
}
