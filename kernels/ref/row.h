/* kernels/ref/row.h - the table row of a reference kernel: accepts all arguments, exact by
 * definition.
 *
 * The files of this folder are the specification of each op: plain loops with double
 * accumulators. */
#pragma once
#include "kernels/abi/ops.h"

#define WEIR_REF_ROW(op_name, OP)                                                                  \
    extern const weir_kernel weir_kernel_ref_##op_name;                                            \
    const weir_kernel weir_kernel_ref_##op_name = { .op = OP,                                      \
                                                    .backend = WEIR_BACKEND_REF,                   \
                                                    .name = "ref." #op_name,                       \
                                                    .run = weir_k_ref_##op_name };
