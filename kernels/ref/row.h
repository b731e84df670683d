/* kernels/ref/row.h - the row of a reference kernel: accepts all, exact by definition.
 *
 * The files of this folder are the specification of each op: the obvious loops with double
 * accumulators, nothing else. */
#pragma once
#include "kernels/abi/ops.h"

#define WEIR_REF_ROW(op_name, OP)                                                                  \
    extern const weir_kernel weir_kernel_ref_##op_name;                                            \
    const weir_kernel weir_kernel_ref_##op_name = { .op = OP,                                      \
                                                    .backend = WEIR_BACKEND_REF,                   \
                                                    .name = "ref." #op_name,                       \
                                                    .run = weir_k_ref_##op_name };
