/* offload/gpu_memory.h - inside the plugin: what gpu_memory.cu gives to gpu_plugin.c. See weir_gpu_plugin for the contracts. */
#pragma once
#include "offload/gpu_probe.h"

#ifdef __cplusplus
extern "C" {
#endif

void        weir_gpu_memory_facts(weir_gpu_facts *out); /* CUDA's view alone: nothing of OpenMP is filled in */
weir_status weir_gpu_memory_alloc(void **out, int device, weir_gpu_memory kind, size_t bytes, char *text, size_t text_bytes);
void        weir_gpu_memory_free(int device, void *memory);
weir_status weir_gpu_memory_copy(int device, void *dst, const void *src, size_t bytes);
weir_status weir_gpu_memory_synchronize(int device);

#ifdef __cplusplus
}
#endif
