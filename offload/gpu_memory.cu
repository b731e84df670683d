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

void weir_gpu_memory_probe(weir_gpu_probe *out)
{
    int count = 0;
    if (status_of(cudaGetDeviceCount(&count), out->reason, sizeof out->reason) != WEIR_OK) return;
    if (count == 0) snprintf(out->reason, sizeof out->reason, "the CUDA runtime sees no device");
    for (int i = 0; i < count && i < WEIR_GPU_MAX_DEVICES; i++) {
        cudaDeviceProp properties;
        if (status_of(cudaGetDeviceProperties(&properties, i), out->reason, sizeof out->reason) != WEIR_OK) break;
        weir_gpu_device *device = &out->devices[out->n_devices++];
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
