/* offload/gpu_memory.cu - the CUDA runtime's side of the plugin: devices, memory, copies. Host code only. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "offload/gpu_memory.h"

static weir_status status_of(cudaError_t error, char *text, size_t text_bytes)
{
    if (error == cudaSuccess) return WEIR_OK;
    if (text) snprintf(text, text_bytes, "%s", cudaGetErrorString(error));
    (void)cudaGetLastError(); /* the runtime keeps the last error until it is read */
    return error == cudaErrorMemoryAllocation ? WEIR_ENOMEM : WEIR_EDEVICE;
}

extern "C" {

void weir_gpu_memory_facts(weir_gpu_facts *out)
{
    memset(out, 0, sizeof *out);
    (void)cudaDriverGetVersion(&out->driver_version); /* 0 without a driver */
    (void)cudaRuntimeGetVersion(&out->runtime_version);
    int               count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (status_of(error, out->text, sizeof out->text) != WEIR_OK) {
        out->cuda = error == cudaErrorInsufficientDriver ? WEIR_GPU_CUDA_DRIVER_OLD
                    : error == cudaErrorNoDevice         ? WEIR_GPU_CUDA_NO_DEVICE
                                                         : WEIR_GPU_CUDA_FAILED;
        return;
    }
    for (int i = 0; i < count && i < WEIR_GPU_MAX_DEVICES; i++) {
        cudaDeviceProp properties;
        if (status_of(cudaGetDeviceProperties(&properties, i), out->text, sizeof out->text) != WEIR_OK) {
            if (i == 0) out->cuda = WEIR_GPU_CUDA_FAILED;
            return;
        }
        weir_gpu_device *device = &out->devices[out->n_cuda++];
        snprintf(device->name, sizeof device->name, "%.63s", properties.name);
        device->capability = properties.major * 10 + properties.minor;
        device->memory_bytes = properties.totalGlobalMem;
    }
}

weir_status weir_gpu_memory_alloc(void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes)
{
    *out = nullptr;
    weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    return status_of(kind == WEIR_GPU_MEMORY_SHARED ? cudaMallocManaged(out, bytes) : cudaMalloc(out, bytes), text, text_bytes);
}

void weir_gpu_memory_free(int device, void *memory)
{
    if (memory && cudaSetDevice(device) == cudaSuccess) (void)cudaFree(memory);
}

weir_status weir_gpu_memory_copy(int device, void *dst, const void *src, size_t bytes)
{
    const weir_status status = status_of(cudaSetDevice(device), nullptr, 0);
    return status == WEIR_OK ? status_of(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), nullptr, 0) : status;
}

weir_status weir_gpu_memory_synchronize(int device)
{
    const weir_status status = status_of(cudaSetDevice(device), nullptr, 0);
    return status == WEIR_OK ? status_of(cudaDeviceSynchronize(), nullptr, 0) : status;
}

}  // extern "C"
