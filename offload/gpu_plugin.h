/* offload/gpu_plugin.h - what libweir_gpu.so exports: one function, one versioned table. Everything that needs CUDA lies behind it,
 * so that the engine links none of it and runs where there is no driver. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this header or of kernels/abi: the plugin and the engine must come from one build. */
enum { WEIR_GPU_PLUGIN_ABI = 2, WEIR_GPU_MAX_DEVICES = 16 };
#define WEIR_GPU_PLUGIN_ENTRY "weir_gpu_plugin_entry"

typedef struct weir_gpu_device {
    char   name[64];
    int    capability; /* 90 for sm_90 */
    size_t memory_bytes;
} weir_gpu_device;

typedef struct weir_gpu_probe {
    int32_t         n_devices;   /* usable by CUDA and by OpenMP                                      */
    weir_gpu_device devices[WEIR_GPU_MAX_DEVICES];
    char            reason[300]; /* when n_devices is 0: what is missing and what to do about it      */
} weir_gpu_probe;

typedef enum weir_gpu_memory {
    WEIR_GPU_MEMORY_DEVICE, /* the device's own: fastest, the host cannot read it                      */
    WEIR_GPU_MEMORY_SHARED, /* reachable from both sides at one address: tests and small control arrays */
} weir_gpu_memory;

typedef struct weir_gpu_plugin {
    uint32_t    abi;  /* first, for ever: WEIR_GPU_PLUGIN_ABI */
    const char *name; /* "cuda" */
    /* Looks at the machine; never fails, never prints. The calls below need n_devices > 0. */
    void (*probe)(weir_gpu_probe *out);
    /* ENOMEM when the device is full, EDEVICE with the runtime's text in `text` (may be NULL) otherwise. */
    weir_status (*alloc)(void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes);
    void (*free)(int device, void *memory); /* NULL-safe */
    weir_status (*copy)(int device, void *dst, const void *src, size_t bytes); /* any direction; returns when done */
    weir_status (*synchronize)(int device);                                    /* all launched kernels ended; EDEVICE if one failed */
    /* Rows in order of preference within an op: CUDA overrides first, then the single source built for nvptx. Pointers in the
     * arguments, and in the structs that those point to, are device addresses; weir_kernel_context.omp_device is the device. Segment
     * arrays are read by the host too, to plan the launch: they lie in SHARED memory. */
    const weir_kernel *const *(*kernels)(size_t *count);
} weir_gpu_plugin;

typedef const weir_gpu_plugin *(*weir_gpu_plugin_entry_function)(void);

#ifdef __cplusplus
}
#endif
