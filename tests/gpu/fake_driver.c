/* tests/gpu/fake_driver.c - a libcuda.so.1 with one device whose capability is FAKE_CAPABILITY (90
 * for sm_90): takes every call that the offload runtime makes on its way to a launch, runs nothing,
 * and reports what it was asked for. Memory is the host's. */
#include "tests/gpu/fake_driver.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* As in cuda.h, which is not on the include path of tests. Handles are pointers. */
typedef void *CUcontext, *CUstream, *CUevent, *CUmodule, *CUfunction;
typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_NO_BINARY_FOR_GPU = 209 } CUresult;
enum {
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
};

static fake_driver_report report;

EXPORT const fake_driver_report *fake_driver(void);
EXPORT const fake_driver_report *fake_driver(void) { return &report; }

static int capability(void)
{
    const char *text = getenv("FAKE_CAPABILITY");
    return text ? atoi(text) : 90;
}

/* ---- the device ------------------------------------------------------------------------------ */
EXPORT CUresult cuInit(unsigned flags) { return (void)flags, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int *n) { return *n = 1, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int number) { return *device = number, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability() / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability() % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = INT32_MAX; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    default: *value = 1;
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 0;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return (void)device, *context = &report, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetLimit(size_t *value, int limit)
{
    return (void)limit, *value = 1024, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    report.stream_flags |= flags;
    *stream = &report;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    return (void)flags, *event = &report, CUDA_SUCCESS;
}

/* ---- memory ---------------------------------------------------------------------------------- */
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes)
{
    return *memory = (CUdeviceptr)calloc(1, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return memcpy((void *)to, from, bytes), CUDA_SUCCESS;
}
EXPORT CUresult
cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return memcpy(to, (const void *)from, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

/* ---- images and launches --------------------------------------------------------------------- */
/* A fat binary is a header { magic, version, header bytes, payload bytes } and entries { kind,
 * version, header bytes, payload bytes, ... sm }. */
EXPORT CUresult cuModuleLoadDataEx(
    CUmodule *module, const void *image, unsigned n_options, int *options, void **values
)
{
    (void)n_options, (void)options, (void)values;
    const char *at = image;
    uint32_t magic, header_bytes;
    uint64_t payload_bytes;
    memcpy(&magic, at, sizeof magic);
    memcpy(&payload_bytes, at + 8, sizeof payload_bytes);
    report.is_fat_binary = magic == 0xba55ed50;
    *module = &report;
    if (!report.is_fat_binary) return CUDA_SUCCESS;
    const char *const end = at + 16 + payload_bytes;
    for (at += 16; at < end && report.n_images < FAKE_IMAGES_MAX;
         at += header_bytes + payload_bytes) {
        uint32_t sm;
        memcpy(&header_bytes, at + 4, sizeof header_bytes);
        memcpy(&payload_bytes, at + 8, sizeof payload_bytes);
        memcpy(&sm, at + 28, sizeof sm);
        report.images[report.n_images++] = (int)sm;
        if ((int)sm / 10 == capability() / 10 && (int)sm <= capability() && (int)sm > report.chosen)
            report.chosen = (int)sm;
    }
    return report.chosen ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    *function = strdup(name);
    return CUDA_SUCCESS;
}
EXPORT CUresult
cuModuleGetGlobal_v2(CUdeviceptr *memory, size_t *bytes, CUmodule module, const char *name)
{
    static char global[4096];
    (void)module;
    *memory = (CUdeviceptr)global;
    *bytes = strcmp(name, "__omp_rtl_device_environment") == 0 ? 48 : 8;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    (void)attribute, (void)function;
    return *value = 1024, CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(
    CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
    unsigned threads_z, unsigned shared, CUstream stream, void **arguments, void **extra
)
{
    (void)y, (void)z, (void)threads_y, (void)threads_z, (void)shared, (void)stream, (void)arguments,
        (void)extra;
    report.n_launches++;
    report.blocks = x;
    report.threads = threads_x;
    if (report.least_threads == 0 || threads_x < report.least_threads)
        report.least_threads = threads_x;
    report.function = function;
    return CUDA_SUCCESS;
}

/* ---- calls without an answer ----------------------------------------------------------------- */
#define QUIET(name)                                                                                \
    EXPORT CUresult name(void);                                                                    \
    EXPORT CUresult name(void) { return CUDA_SUCCESS; }
QUIET(cuCtxEnablePeerAccess)
QUIET(cuCtxGetDevice)
QUIET(cuCtxSetCurrent)
QUIET(cuCtxSetLimit)
QUIET(cuDeviceCanAccessPeer)
QUIET(cuDeviceGetName)
QUIET(cuDevicePrimaryCtxRelease_v2)
QUIET(cuDevicePrimaryCtxSetFlags_v2)
QUIET(cuDeviceTotalMem_v2)
QUIET(cuDriverGetVersion)
QUIET(cuEventDestroy)
QUIET(cuEventRecord)
QUIET(cuEventSynchronize)
QUIET(cuFuncSetAttribute)
QUIET(cuGetErrorString)
QUIET(cuLaunchHostFunc)
QUIET(cuMemAddressFree)
QUIET(cuMemAddressReserve)
QUIET(cuMemAllocAsync)
QUIET(cuMemAllocHost_v2)
QUIET(cuMemAllocManaged)
QUIET(cuMemCreate)
QUIET(cuMemFreeAsync)
QUIET(cuMemFreeHost)
QUIET(cuMemFree_v2)
QUIET(cuMemGetAllocationGranularity)
QUIET(cuMemMap)
QUIET(cuMemRelease)
QUIET(cuMemSetAccess)
QUIET(cuMemUnmap)
QUIET(cuMemcpyDtoDAsync_v2)
QUIET(cuMemcpyPeerAsync)
QUIET(cuModuleUnload)
QUIET(cuStreamDestroy_v2)
QUIET(cuStreamQuery)
QUIET(cuStreamSynchronize)
QUIET(cuStreamWaitEvent)
