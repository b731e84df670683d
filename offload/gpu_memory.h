/* offload/gpu_memory.h - internal to the plugin: functions of gpu_memory.cu that gpu_plugin.c uses.
 * See weir_gpu_plugin for the contracts. */
#pragma once
#include "offload/gpu_probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills in what CUDA knows; the fields of OpenMP stay unset. */
void weir_gpu_memory_facts(weir_gpu_facts *out);
weir_status weir_gpu_memory_open(
    int device, weir_kernel_context *context, size_t *free_bytes, char *text, size_t text_bytes
);
void weir_gpu_memory_close(int device);
void weir_gpu_memory_enter(int device);
weir_status weir_gpu_memory_alloc(
    void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes
);
void weir_gpu_memory_free(int device, weir_gpu_memory kind, void *memory);
weir_status weir_gpu_memory_copy(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
);
weir_status weir_gpu_memory_queue_copy(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
);
weir_status weir_gpu_memory_copy_async(
    int device, void *dst, const void *src, size_t bytes, char *text, size_t text_bytes
);
weir_status weir_gpu_memory_event_record(int device, int event, char *text, size_t text_bytes);
weir_status weir_gpu_memory_event_wait(int device, int event, char *text, size_t text_bytes);
weir_status weir_gpu_memory_clear(
    int device, void *memory, size_t bytes, char *text, size_t text_bytes
);
weir_status weir_gpu_memory_synchronize(int device, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
