/* offload/gpu_loader.h - finds and opens the GPU plugin, or says in one sentence why the CPU is
 * used. */
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

/* path: the plugin's file; NULL: libweir_gpu.so in the program's folder, then in ../lib. Returns
 * EUNSUPPORTED if there is no driver, no plugin or no usable device, with the reason; EMISMATCH for
 * a plugin of another build. The caller logs the text and uses the CPU. A plugin stays loaded: its
 * runtimes cannot be unloaded safely. */
WEIR_MUST_CHECK weir_status weir_gpu_open(weir_gpu *out, const char *path, weir_error *error);

/* Only opens the file and checks its version, without probing the machine. */
WEIR_MUST_CHECK weir_status
weir_gpu_plugin_load(const weir_gpu_plugin **out, const char *path, weir_error *error);

#ifdef __cplusplus
}
#endif
