/* offload/gpu_probe.h - decides from facts about a machine which devices are usable, or says in one
 * sentence what is missing and what to do. Pure. */
#pragma once
#include "offload/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_gpu_cuda {
    WEIR_GPU_CUDA_OK,
    WEIR_GPU_CUDA_DRIVER_OLD, /* older than the runtime, or missing */
    WEIR_GPU_CUDA_NO_DEVICE,
    WEIR_GPU_CUDA_FAILED, /* any other error: see `text` */
} weir_gpu_cuda;

typedef struct weir_gpu_facts {
    weir_gpu_cuda cuda;
    char text[160]; /* the CUDA runtime's error message */
    int driver_version, runtime_version; /* 13000 for CUDA 13.0; driver 0: none */
    int32_t n_cuda; /* devices that CUDA sees                                                     */
    weir_gpu_device devices[WEIR_GPU_MAX_DEVICES];
    /* Why the images could not be registered with OpenMP; NULL: they were. */
    const char *images_failed;
    int32_t n_openmp; /* devices that OpenMP sees, in CUDA's order                                */
} weir_gpu_facts;

/* archs: the architectures of the images, ascending, such as 80; an image runs on its major
 * version, from its minor version on. Only the devices before the first unusable one are used,
 * since callers number devices as CUDA does. */
void weir_gpu_probe_explain(
    weir_gpu_probe *out, const weir_gpu_facts *facts, const int *archs, size_t n_archs
);

#ifdef __cplusplus
}
#endif
