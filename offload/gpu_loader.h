/* offload/gpu_loader.h - finds and opens the GPU plugin, or says in one sentence why the CPU does
 * the work. */
#pragma once
#include "engine/base/error.h"
#include "offload/gpu_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_gpu {
    const weir_gpu_plugin *plugin;
    weir_gpu_probe probe; /* n_devices > 0 */
} weir_gpu;

/* path: the plugin's file; NULL: libweir_gpu.so in the program's folder, then in ../lib beside it.
 * EUNSUPPORTED: no driver, no plugin or no usable device, with the reason; EMISMATCH: a plugin of
 * another build. The caller logs the text and goes on with the CPU. A plugin stays in the process
 * once loaded: its runtimes cannot be unloaded safely. */
WEIR_MUST_CHECK weir_status weir_gpu_open(weir_gpu *out, const char *path, weir_error *error);

/* The first half alone: opens the file and checks the version, without looking at the machine. */
WEIR_MUST_CHECK weir_status
weir_gpu_plugin_load(const weir_gpu_plugin **out, const char *path, weir_error *error);

#ifdef __cplusplus
}
#endif
