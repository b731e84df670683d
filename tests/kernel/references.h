/* tests/kernel/references.h - the ref row of an op, for programs that have no stream. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

const weir_kernel *reference_kernel(weir_op op);

#ifdef __cplusplus
}
#endif
