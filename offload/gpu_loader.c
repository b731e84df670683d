/* offload/gpu_loader.c - loads the plugin. The driver is looked for first, because loading the
 * plugin also loads the offload runtime (measured: 13 libraries, 50 MB, 20 ms), which a machine
 * without a GPU does not need. */
#include "offload/gpu_loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"

static const char driver_library[] = "libcuda.so.1";

/* The folder of the running program, without a trailing slash. */
static bool program_folder(char *folder, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    if (n <= 0 || (size_t)n >= size - 1) return false;
    folder[n] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash) return false;
    *slash = '\0';
    return true;
}

/* The folder of the library or program that this code is in, likewise. */
static bool own_folder(char *folder, size_t size)
{
    Dl_info info;
    if (!dladdr(driver_library, &info) || !info.dli_fname) return false;
    const char *const slash = strrchr(info.dli_fname, '/');
    if (!slash || (size_t)(slash - info.dli_fname) >= size) return false;
    memcpy(folder, info.dli_fname, (size_t)(slash - info.dli_fname));
    folder[slash - info.dli_fname] = '\0';
    return true;
}

static weir_status find_plugin(char *path, size_t size, weir_error *error)
{
    static const char *const places[] = {
        "", "/../lib", "/../../offload"
    }; /* the last one: where the build puts both */
    bool (*const folders[])(char *folder, size_t size) = { own_folder, program_folder };
    char folder[PATH_MAX];
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++)
        for (size_t i = 0; i < sizeof places / sizeof places[0] && folders[f](folder, PATH_MAX);
             i++) {
            const int n = snprintf(path, size, "%s%s/libweir_gpu.so", folder, places[i]);
            if (n > 0 && (size_t)n < size && weir_file_exists(path)) return WEIR_OK;
        }
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "no libweir_gpu.so next to the program or libweir.so; build //offload:weir_gpu with "
        "--config=gpu"
    );
}

weir_status weir_gpu_plugin_load(const weir_gpu_plugin **out, const char *path, weir_error *error)
{
    char found[PATH_MAX + 32];
    *out = NULL;
    if (!path) {
        WEIR_TRY(find_plugin(found, sizeof found, error));
        path = found;
    }
    /* Not RTLD_DEEPBIND: the plugin must use the OpenMP runtime that is already loaded. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return weir_error_set(error, WEIR_EUNSUPPORTED, "GPU plugin: %s", dlerror());
    weir_gpu_plugin_entry_function entry;
    void *symbol = dlsym(library, WEIR_GPU_PLUGIN_ENTRY);
    if (!symbol)
        return weir_error_set(
            error, WEIR_EMISMATCH, "GPU plugin: %s is not a plugin of Weir", path
        );
    /* ISO C has no cast from an object pointer to a function pointer. */
    memcpy(&entry, &symbol, sizeof entry);
    const weir_gpu_plugin *plugin = entry();
    if (plugin->abi != WEIR_GPU_PLUGIN_ABI)
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "GPU plugin: %s has version %u, this program needs %d; build both together", path,
            plugin->abi, WEIR_GPU_PLUGIN_ABI
        );
    *out = plugin;
    return WEIR_OK;
}

weir_status weir_gpu_open(weir_gpu *out, const char *path, weir_error *error)
{
    memset(out, 0, sizeof *out);
    if (!dlopen(driver_library, RTLD_NOW | RTLD_LOCAL))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "no NVIDIA driver on this machine (%s cannot be loaded)",
            driver_library
        );
    const weir_gpu_plugin *plugin;
    WEIR_TRY(weir_gpu_plugin_load(&plugin, path, error));
    plugin->probe(&out->probe);
    if (out->probe.n_devices <= 0)
        return weir_error_set(error, WEIR_EUNSUPPORTED, "no usable GPU: %s", out->probe.reason);
    out->plugin = plugin;
    return WEIR_OK;
}
