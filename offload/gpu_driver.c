/* offload/gpu_driver.c - a stand-in library named libcuda.so: libomptarget opens that name, drivers
 * often install only libcuda.so.1, and libomptarget 19 understands neither what CUDA 13 builds nor
 * devices newer than sm_90. It depends on libcuda.so.1, so every function that is not defined here
 * is the driver's. gpu_images.c loads it from memory before libomptarget looks for it.
 *
 * libomptarget compares the header of a cubin with the capability of a device, in an encoding that
 * ended with CUDA 12. It gets one cubin, the carrier, whose header says "sm_80" in that encoding,
 * and devices that all report "8.0". The driver gets the fat binary, from which it picks the
 * matching image. libomptarget reads from the carrier only what all images share: names and modes
 * of kernels. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const void *carrier, *images;

EXPORT void weir_gpu_driver_serve(const void *shown, const void *loaded);
EXPORT void weir_gpu_driver_serve(const void *shown, const void *loaded)
{
    carrier = shown;
    images = loaded;
}

/* Finds the driver's function; `function` points to a function pointer. ISO C has no cast between
 * object and function pointers. */
static CUresult find(void *function, const char *name)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *const symbol =
                                                                             driver
                                                                                 ? dlsym(
                                                                                       driver, name
                                                                                   )
                                                                                 : NULL;
    memcpy(function, &symbol, sizeof symbol);
    return symbol ? CUDA_SUCCESS : CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

EXPORT CUresult cuModuleLoadDataEx(
    CUmodule *module, const void *image, unsigned n_options, CUjit_option *options, void **values
)
{
    CUresult (*load)(CUmodule *, const void *, unsigned, CUjit_option *, void **);
    const CUresult found = find(&load, __func__);
    return found == CUDA_SUCCESS
               ? load(module, image == carrier ? images : image, n_options, options, values)
               : found;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult (*get)(int *, CUdevice_attribute, CUdevice);
    const CUresult found = find(&get, __func__);
    if (found != CUDA_SUCCESS) return found;
    const CUresult result = get(value, attribute, device);
    if (result == CUDA_SUCCESS && attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = 8;
    if (result == CUDA_SUCCESS && attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *value = 0;
    return result;
}

/* libomptarget creates streams that do not wait for the default stream. The CUDA kernels run there,
 * and a region reads what they wrote. */
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CUresult (*create)(CUstream *, unsigned);
    const CUresult found = find(&create, __func__);
    return found == CUDA_SUCCESS ? create(stream, flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
                                 : found;
}
