/* offload/gpu_probe.h - from facts about a machine to usable devices, or one sentence that says
 * what is missing and what to do. Pure. */
#pragma once
#include "offload/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_gpu_cuda {
    WEIR_GPU_CUDA_OK,
    WEIR_GPU_CUDA_DRIVER_OLD, /* older than the runtime, or not there at all */
    WEIR_GPU_CUDA_NO_DEVICE,
    WEIR_GPU_CUDA_FAILED, /* anything else: `text` */
} weir_gpu_cuda;

typedef struct weir_gpu_facts {
    weir_gpu_cuda cuda;
    char text[160]; /* the CUDA runtime's, when it failed                                      */
    int driver_version, runtime_version; /* 13000 for CUDA 13.0; driver 0: there is none      */
    int32_t n_cuda; /* devices that CUDA sees                                                     */
    weir_gpu_device devices[WEIR_GPU_MAX_DEVICES];
    const char *images_failed; /* why the images could not be handed to OpenMP, NULL: they were */
    int32_t n_openmp; /* devices that OpenMP sees, in CUDA's order                                */
} weir_gpu_facts;

/* archs: the architectures of the images, ascending, such as 80; an image runs on its major version
 * from its minor version on. Devices before the first unusable one are usable: callers name devices
 * by CUDA's number. */
void weir_gpu_probe_explain(
    weir_gpu_probe *out, const weir_gpu_facts *facts, const int *archs, size_t n_archs
);

#ifdef __cplusplus
}
#endif
