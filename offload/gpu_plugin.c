/* offload/gpu_plugin.c - the entry of libweir_gpu.so. A device counts only if both CUDA and OpenMP
 * find it. */
#include "offload/gpu_plugin.h"

#include <omp.h>

#include "offload/device_table.h"
#include "offload/gpu_images.h"
#include "offload/gpu_memory.h"
#include "offload/gpu_probe.h"

static void probe(weir_gpu_probe *out)
{
    static const int archs[] = { WEIR_GPU_ARCHS };
    weir_gpu_facts facts;
    weir_gpu_memory_facts(&facts);
    /* libomptarget takes 20 ms to load and looks for the driver: only where there is one. */
    if (facts.cuda == WEIR_GPU_CUDA_OK && facts.n_cuda > 0) {
        facts.images_failed = weir_gpu_images_register();
        facts.n_openmp = facts.images_failed ? 0 : omp_get_num_devices();
    }
    weir_gpu_probe_explain(out, &facts, archs, sizeof archs / sizeof archs[0]);
}

__attribute__((visibility("default"))) const weir_gpu_plugin *weir_gpu_plugin_entry(void);
const weir_gpu_plugin *weir_gpu_plugin_entry(void)
{
    static const weir_gpu_plugin plugin = {
        .abi = WEIR_GPU_PLUGIN_ABI,
        .name = "cuda",
        .probe = probe,
        .open = weir_gpu_memory_open,
        .close = weir_gpu_memory_close,
        .enter = weir_gpu_memory_enter,
        .alloc = weir_gpu_memory_alloc,
        .free = weir_gpu_memory_free,
        .copy = weir_gpu_memory_copy,
        .queue_copy = weir_gpu_memory_queue_copy,
        .clear = weir_gpu_memory_clear,
        .copy_async = weir_gpu_memory_copy_async,
        .event_record = weir_gpu_memory_event_record,
        .event_wait = weir_gpu_memory_event_wait,
        .synchronize = weir_gpu_memory_synchronize,
        .kernels = weir_device_rows,
    };
    return &plugin;
}
