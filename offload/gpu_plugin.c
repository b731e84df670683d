/* offload/gpu_plugin.c - the one symbol of libweir_gpu.so. A device counts only when CUDA and OpenMP both see it. */
#include "offload/gpu_plugin.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "offload/device_table.h"
#include "offload/gpu_memory.h"

static void probe(weir_gpu_probe *out)
{
    memset(out, 0, sizeof *out);
    weir_gpu_memory_probe(out);
    const int omp_devices = omp_get_num_devices();
    if (out->n_devices <= omp_devices) return;
    snprintf(
        out->reason, sizeof out->reason,
        "CUDA sees %d devices, OpenMP %d: the offload runtime opens libcuda.so (not .so.1), so that name must exist on the library path",
        out->n_devices, omp_devices);
    out->n_devices = omp_devices;
}

__attribute__((visibility("default"))) const weir_gpu_plugin *weir_gpu_plugin_entry(void);
const weir_gpu_plugin                                        *weir_gpu_plugin_entry(void)
{
    static const weir_gpu_plugin plugin = {
        .abi = WEIR_GPU_PLUGIN_ABI,
        .name = "cuda-sm_90",
        .probe = probe,
        .open = weir_gpu_memory_open,
        .close = weir_gpu_memory_close,
        .alloc = weir_gpu_memory_alloc,
        .free = weir_gpu_memory_free,
        .copy = weir_gpu_memory_copy,
        .clear = weir_gpu_memory_clear,
        .synchronize = weir_gpu_memory_synchronize,
        .kernels = weir_device_rows,
    };
    return &plugin;
}
