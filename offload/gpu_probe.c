/* offload/gpu_probe.c - see gpu_probe.h. A message names the fact, then the remedy. */
#include "offload/gpu_probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void say(weir_gpu_probe *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->reason, sizeof out->reason, format, arguments);
    va_end(arguments);
}

static bool has_image(int capability, const int *archs, size_t n_archs)
{
    for (size_t i = 0; i < n_archs; i++)
        if (archs[i] / 10 == capability / 10 && archs[i] <= capability) return true;
    return false;
}

static bool cuda_is_usable(weir_gpu_probe *out, const weir_gpu_facts *facts)
{
    switch (facts->cuda) {
    case WEIR_GPU_CUDA_OK: break;
    case WEIR_GPU_CUDA_DRIVER_OLD:
        if (facts->driver_version <= 0)
            say(out, "no NVIDIA driver: libcuda.so.1 cannot be loaded; install the driver, or "
                     "start the container with the GPU's");
        else
            say(out,
                "driver too old: it supports CUDA %d.%d, the plugin needs %d.%d; install a newer "
                "driver",
                facts->driver_version / 1000, facts->driver_version % 1000 / 10,
                facts->runtime_version / 1000, facts->runtime_version % 1000 / 10);
        return false;
    case WEIR_GPU_CUDA_NO_DEVICE:
        say(out, "no device: the driver sees no GPU; check that there is one, that the container "
                 "has access to it, and CUDA_VISIBLE_DEVICES");
        return false;
    case WEIR_GPU_CUDA_FAILED: say(out, "the CUDA runtime failed: %s", facts->text); return false;
    }
    if (facts->n_cuda <= 0) say(out, "no device: the driver sees no GPU");
    return facts->n_cuda > 0;
}

static bool device_is_usable(
    weir_gpu_probe *out, const weir_gpu_device *device, int number, const int *archs, size_t n_archs
)
{
    if (device->capability < archs[0]) {
        say(out,
            "device too old: GPU %d, %s, is sm_%d, the plugin needs sm_%d; CUDA_VISIBLE_DEVICES "
            "can leave it out",
            number, device->name, device->capability, archs[0]);
        return false;
    }
    if (has_image(device->capability, archs, n_archs)) return true;
    char known[80] = "";
    size_t n = 0;
    for (size_t i = 0; i < n_archs && n + 1 < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%d", i > 0 ? ", " : "", archs[i]);
    say(out,
        "no image for GPU %d, %s: it is sm_%d, the plugin was built for sm_%s; add the "
        "architecture to toolchain/gpu.bzl",
        number, device->name, device->capability, known);
    return false;
}

void weir_gpu_probe_explain(
    weir_gpu_probe *out, const weir_gpu_facts *facts, const int *archs, size_t n_archs
)
{
    memset(out, 0, sizeof *out);
    if (!cuda_is_usable(out, facts)) return;
    int32_t n = 0;
    while (n < facts->n_cuda && n < WEIR_GPU_MAX_DEVICES &&
           device_is_usable(out, facts->devices + n, n, archs, n_archs))
        n++;
    if (n > 0 && facts->images_failed) {
        say(out,
            "OpenMP sees no device: libcuda.so missing: the plugin's own could not be opened (%s); "
            "it needs memory that may be executed "
            "(sysctl vm.memfd_noexec=0)",
            facts->images_failed);
        return;
    }
    if (n > facts->n_openmp) {
        if (facts->n_openmp == 0) {
            say(out, "OpenMP sees no device, CUDA %d; is OMP_TARGET_OFFLOAD set to DISABLED?",
                facts->n_cuda);
        }
        n = facts->n_openmp;
    }
    memcpy(out->devices, facts->devices, (size_t)n * sizeof *out->devices);
    out->n_devices = n;
    if (n > 0) out->reason[0] = '\0';
}
