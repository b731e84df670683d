/* offload/device_table.c - the OpenMP kernels of kernels/list.inc, as built for the device
 * WEIR_DEVICE (emulated, offload, nvptx). With WEIR_DEVICE_OVERRIDES the CUDA kernels come
 * first. */
#include "offload/device_table.h"

#define ROW_(op, device) weir_kernel_omp_##op##_##device
#define ROW(op, device) ROW_(op, device)
#define WEIR_KERNEL(symbol, isa)

#define WEIR_OMP_KERNEL(op) extern const weir_kernel ROW(op, WEIR_DEVICE);
#include "kernels/list.inc"
#undef WEIR_OMP_KERNEL

#ifdef WEIR_DEVICE_OVERRIDES
#define WEIR_CUDA_KERNEL(op) extern const weir_kernel weir_kernel_cuda_##op;
#include "kernels/cuda/list.inc"
#undef WEIR_CUDA_KERNEL
#endif

static const weir_kernel *const rows[] = {
#ifdef WEIR_DEVICE_OVERRIDES
#define WEIR_CUDA_KERNEL(op) &weir_kernel_cuda_##op,
#include "kernels/cuda/list.inc"
#undef WEIR_CUDA_KERNEL
#endif
#define WEIR_OMP_KERNEL(op) &ROW(op, WEIR_DEVICE),
#include "kernels/list.inc"
};

const weir_kernel *const *weir_device_rows(size_t *count)
{
    *count = sizeof rows / sizeof rows[0];
    return rows;
}
