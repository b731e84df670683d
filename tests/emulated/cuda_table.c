/* tests/emulated/cuda_table.c - the device table of the emulated GPU: the CUDA overrides alone. */
#include "offload/device_table.h"

#define WEIR_CUDA_KERNEL(op) extern const weir_kernel weir_kernel_cuda_##op;
#include "kernels/cuda/list.inc"
#undef WEIR_CUDA_KERNEL

static const weir_kernel *const rows[] = {
#define WEIR_CUDA_KERNEL(op) &weir_kernel_cuda_##op,
#include "kernels/cuda/list.inc"
};

const weir_kernel *const *weir_device_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
