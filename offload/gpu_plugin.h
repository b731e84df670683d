/* offload/gpu_plugin.h - what libweir_gpu.so exports: one function, one versioned table. Everything
 * that needs CUDA lies behind it, so that the engine links none of it and runs where there is no
 * driver. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this header or of kernels/abi: the plugin and the engine must come
 * from one build. */
enum { WEIR_GPU_PLUGIN_ABI = 4, WEIR_GPU_MAX_DEVICES = 16, WEIR_GPU_EVENTS = 8 };
#define WEIR_GPU_PLUGIN_ENTRY "weir_gpu_plugin_entry"

typedef struct weir_gpu_device {
    char name[64];
    int capability; /* 90 for sm_90 */
    size_t memory_bytes;
} weir_gpu_device;

typedef struct weir_gpu_probe {
    int32_t n_devices; /* usable by CUDA and by OpenMP                                      */
    weir_gpu_device devices[WEIR_GPU_MAX_DEVICES];
    char reason[300]; /* when n_devices is 0: what is missing and what to do about it      */
} weir_gpu_probe;

typedef enum weir_gpu_memory {
    WEIR_GPU_MEMORY_DEVICE, /* device memory: fastest, the host cannot read it */
    WEIR_GPU_MEMORY_MANAGED, /* cudaMallocManaged, pages migrate: tests and benches */
    /* Page-locked host memory at the same address on the device: arguments that the host writes
     * while kernels run */
    WEIR_GPU_MEMORY_UNIFIED,
} weir_gpu_memory;

typedef struct weir_gpu_plugin {
    uint32_t abi; /* always the first field: WEIR_GPU_PLUGIN_ABI */
    const char *name; /* "cuda" */
    /* Never fails, never prints. The calls below need n_devices > 0. */
    void (*probe)(weir_gpu_probe *out);
    /* Fills what kernels are launched with: the device, its stream, its library of products (NULL:
     * not there). */
    weir_status (*open)(
        int device, weir_kernel_context *context, size_t *free_bytes, char *text, size_t text_bytes
    );
    void (*close)(int device);
    void (*enter)(int device); /* before launches: the calling thread's kernels go there */
    /* ENOMEM when the device is full, EDEVICE with the runtime's text in `text` (may be NULL)
     * otherwise; so in what follows. */
    weir_status (*alloc)(
        void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes
    );
    void (*free)(int device, weir_gpu_memory kind, void *memory); /* NULL-safe */
    /* After all launched kernels; any direction; done when they return. */
    weir_status (*copy)(
        int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
    );
    weir_status (*clear)(int device, void *memory, size_t bytes, char *text, size_t text_bytes);
    /* On a stream of its own, not ordered with kernels; complete on return. Any thread. */
    weir_status (*copy_async)(
        int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
    );
    /* [WEIR_GPU_EVENTS], after all launched kernels */
    weir_status (*event_record)(int device, int event, char *text, size_t text_bytes);
    /* Any thread; returns at once if it was never recorded */
    weir_status (*event_wait)(int device, int event, char *text, size_t text_bytes);
    /* Waits for all launched kernels; EDEVICE if one failed */
    weir_status (*synchronize)(int device, char *text, size_t text_bytes);
    /* Rows in order of preference within an op: CUDA overrides first, then the single source built
     * for nvptx. Pointers in the arguments, and in the structs that those point to, are device
     * addresses; weir_kernel_context.omp_device is the device. Segment arrays are read by the host
     * too, to plan the launch: they lie in UNIFIED or MANAGED memory. */
    const weir_kernel *const *(*kernels)(size_t *count);
} weir_gpu_plugin;

typedef const weir_gpu_plugin *(*weir_gpu_plugin_entry_function)(void);

#ifdef __cplusplus
}
#endif
