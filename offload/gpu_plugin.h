/* offload/gpu_plugin.h - the interface of libweir_gpu.so: one function that returns one versioned
 * table. Everything that needs CUDA is behind it, so the engine links no CUDA and runs without a
 * driver. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this header or of kernels/abi: plugin and engine must come from one
 * build. */
enum { WEIR_GPU_PLUGIN_ABI = 5, WEIR_GPU_MAX_DEVICES = 16, WEIR_GPU_EVENTS = 8 };
#define WEIR_GPU_PLUGIN_ENTRY "weir_gpu_plugin_entry"

typedef struct weir_gpu_device {
    char name[64];
    int capability; /* 90 for sm_90 */
    size_t memory_bytes;
} weir_gpu_device;

typedef struct weir_gpu_probe {
    int32_t n_devices; /* usable by CUDA and by OpenMP                                      */
    weir_gpu_device devices[WEIR_GPU_MAX_DEVICES];
    /* If n_devices is 0: what is missing and what to do about it. */
    char reason[300];
} weir_gpu_probe;

typedef enum weir_gpu_memory {
    WEIR_GPU_MEMORY_DEVICE, /* fastest; the host cannot read it */
    WEIR_GPU_MEMORY_MANAGED, /* for tests: cudaMallocManaged, pages migrate */
    /* Page-locked host memory at the same address on the device, for arguments that the host writes
     * while kernels run. */
    WEIR_GPU_MEMORY_UNIFIED,
} weir_gpu_memory;

typedef struct weir_gpu_plugin {
    uint32_t abi; /* always the first field: WEIR_GPU_PLUGIN_ABI */
    const char *name; /* "cuda" */
    /* Never fails, never prints. The calls below need n_devices > 0. */
    void (*probe)(weir_gpu_probe *out);
    /* Fills in what kernels are launched with: the device and its stream. */
    weir_status (*open)(
        int device, weir_kernel_context *context, size_t *free_bytes, char *text, size_t text_bytes
    );
    void (*close)(int device);
    void (*enter)(int device); /* before launches: sets the device of the calling thread */
    /* This and the following return ENOMEM if the device is full, otherwise EDEVICE with the
     * runtime's message in `text` (may be NULL). */
    weir_status (*alloc)(
        void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes
    );
    void (*free)(int device, weir_gpu_memory kind, void *memory); /* NULL-safe */
    /* Ordered after all launched kernels, in any direction; complete on return. */
    weir_status (*copy)(
        int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
    );
    /* To device memory; queued between the kernels launched before and after it. What it reads of
     * the host must stay as it is until `synchronize` or `copy`. */
    weir_status (*queue_copy)(
        int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
    );
    /* Device memory only; queued as queue_copy. */
    weir_status (*clear)(int device, void *memory, size_t bytes, char *text, size_t text_bytes);
    /* On a stream of its own, not ordered with kernels; complete on return. Any thread. */
    weir_status (*copy_async)(
        int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
    );
    /* event: below WEIR_GPU_EVENTS; recorded after all launched kernels. */
    weir_status (*event_record)(int device, int event, char *text, size_t text_bytes);
    /* Any thread. Returns at once if the event was never recorded. */
    weir_status (*event_wait)(int device, int event, char *text, size_t text_bytes);
    /* Waits for all launched kernels. Returns EDEVICE if one failed. */
    weir_status (*synchronize)(int device, char *text, size_t text_bytes);
    /* Rows in order of preference within an op: CUDA overrides, then the single source for nvptx.
     * Pointers in arguments and nested structs are device addresses. Segment arrays are also read
     * by the host to plan the launch, so they are in UNIFIED or MANAGED memory. */
    const weir_kernel *const *(*kernels)(size_t *count);
} weir_gpu_plugin;

typedef const weir_gpu_plugin *(*weir_gpu_plugin_entry_function)(void);

#ifdef __cplusplus
}
#endif
