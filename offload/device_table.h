/* offload/device_table.h - the single source as built for one device: the rows of kernels/omp that
 * a device build links. */
#pragma once
#include <stddef.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

const weir_kernel *const *weir_device_rows(size_t *count);

#ifdef __cplusplus
}
#endif
