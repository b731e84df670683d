/* offload/gpu_memory.cu - the plugin's calls of the CUDA runtime: devices, memory, copies. Host
 * code only. */
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
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (status_of(error, out->text, sizeof out->text) != WEIR_OK) {
        out->cuda = error == cudaErrorInsufficientDriver ? WEIR_GPU_CUDA_DRIVER_OLD
                    : error == cudaErrorNoDevice         ? WEIR_GPU_CUDA_NO_DEVICE
                                                         : WEIR_GPU_CUDA_FAILED;
        return;
    }
    for (int i = 0; i < count && i < WEIR_GPU_MAX_DEVICES; i++) {
        cudaDeviceProp properties;
        if (status_of(cudaGetDeviceProperties(&properties, i), out->text, sizeof out->text) !=
            WEIR_OK) {
            if (i == 0) out->cuda = WEIR_GPU_CUDA_FAILED;
            return;
        }
        weir_gpu_device *device = &out->devices[out->n_cuda++];
        snprintf(device->name, sizeof device->name, "%.63s", properties.name);
        device->capability = properties.major * 10 + properties.minor;
        device->memory_bytes = properties.totalGlobalMem;
    }
}

/* Per device, shared by all users. Neither waits for the default stream. */
static struct side_stream {
    cudaStream_t stream;
    cudaEvent_t events[WEIR_GPU_EVENTS];
    int n_opened;
} side_streams[WEIR_GPU_MAX_DEVICES];

static void close_side_stream(side_stream *b)
{
    for (cudaEvent_t event : b->events)
        if (event) (void)cudaEventDestroy(event);
    if (b->stream) (void)cudaStreamDestroy(b->stream);
    *b = {};
}

static cudaError_t open_side_stream(side_stream *b)
{
    cudaError_t error = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    for (int i = 0; error == cudaSuccess && i < WEIR_GPU_EVENTS; i++)
        error =
            cudaEventCreateWithFlags(&b->events[i], cudaEventDisableTiming | cudaEventBlockingSync);
    if (error != cudaSuccess) close_side_stream(b);
    return error;
}

weir_status weir_gpu_memory_open(
    int device, weir_kernel_context *context, size_t *free_bytes, char *text, size_t text_bytes
)
{
    size_t total = 0;
    weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status == WEIR_OK) status = status_of(cudaMemGetInfo(free_bytes, &total), text, text_bytes);
    if (status == WEIR_OK && side_streams[device].n_opened == 0)
        status = status_of(open_side_stream(&side_streams[device]), text, text_bytes);
    if (status == WEIR_OK) side_streams[device].n_opened++;
    context->omp_device = device;
    /* The default stream: those of the offload runtime wait for it, and it for them. */
    context->cuda_stream = nullptr;
    return status;
}

void weir_gpu_memory_close(int device)
{
    if (side_streams[device].n_opened == 0 || --side_streams[device].n_opened > 0) return;
    (void)cudaSetDevice(device);
    close_side_stream(&side_streams[device]);
}

void weir_gpu_memory_enter(int device)
{
    (void)cudaSetDevice(device);
} /* a lost device fails at the launch */

weir_status weir_gpu_memory_alloc(
    void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes
)
{
    *out = nullptr;
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    switch (kind) {
    case WEIR_GPU_MEMORY_MANAGED: return status_of(cudaMallocManaged(out, bytes), text, text_bytes);
    case WEIR_GPU_MEMORY_UNIFIED:
        return status_of(cudaHostAlloc(out, bytes, cudaHostAllocMapped), text, text_bytes);
    case WEIR_GPU_MEMORY_DEVICE: break;
    }
    return status_of(cudaMalloc(out, bytes), text, text_bytes);
}

void weir_gpu_memory_free(int device, weir_gpu_memory kind, void *memory)
{
    if (!memory || cudaSetDevice(device) != cudaSuccess) return;
    (void)(kind == WEIR_GPU_MEMORY_UNIFIED ? cudaFreeHost(memory) : cudaFree(memory));
}

static weir_status finish(cudaError_t launched, char *text, size_t text_bytes)
{
    return status_of(
        launched == cudaSuccess ? cudaStreamSynchronize(nullptr) : launched, text, text_bytes
    );
}

weir_status weir_gpu_memory_copy(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    return finish(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, nullptr), text, text_bytes);
}

weir_status weir_gpu_memory_queue_copy(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    return status_of(
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, nullptr), text, text_bytes
    );
}

weir_status weir_gpu_memory_copy_async(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
)
{
    const cudaStream_t stream = side_streams[device].stream;
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    const cudaError_t launched = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
    return status_of(
        launched == cudaSuccess ? cudaStreamSynchronize(stream) : launched, text, text_bytes
    );
}

weir_status weir_gpu_memory_event_record(int device, int event, char *text, size_t text_bytes)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    return status == WEIR_OK
               ? status_of(
                     cudaEventRecord(side_streams[device].events[event], nullptr), text, text_bytes
                 )
               : status;
}

weir_status weir_gpu_memory_event_wait(int device, int event, char *text, size_t text_bytes)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    return status == WEIR_OK
               ? status_of(
                     cudaEventSynchronize(side_streams[device].events[event]), text, text_bytes
                 )
               : status;
}

weir_status weir_gpu_memory_clear(
    int device, void *memory, size_t bytes, char *text, size_t text_bytes
)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    if (status != WEIR_OK) return status;
    return status_of(cudaMemsetAsync(memory, 0, bytes, nullptr), text, text_bytes);
}

weir_status weir_gpu_memory_synchronize(int device, char *text, size_t text_bytes)
{
    const weir_status status = status_of(cudaSetDevice(device), text, text_bytes);
    return status == WEIR_OK ? finish(cudaSuccess, text, text_bytes) : status;
}

} // extern "C"
