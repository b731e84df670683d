/* offload/gpu_images.c - the images of the target regions: one fat binary for all architectures,
 * registered when there is a driver.
 *
 * clang's own wrapper would embed one cubin per architecture, none of which libomptarget 19
 * accepts: it reads the header of CUDA 13's as "sm_4", and refuses everything past sm_90.
 * gpu_driver.c shows it one that it accepts; docs/decisions/0029 says why. */
#define _GNU_SOURCE
#include "offload/gpu_images.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What clang's wrapper would emit; names and layouts are defined by libomptarget. The entries are
 * those of all files of the plugin, joined by the linker. */
typedef struct offload_entry {
    void *address;
    char *name;
    size_t size;
    int32_t flags, reserved;
} offload_entry;
typedef struct device_image {
    const void *begin, *end;
    const offload_entry *first_entry, *end_entry;
} device_image;
typedef struct offload_images {
    int32_t n_images;
    const device_image *images;
    const offload_entry *first_entry, *end_entry;
} offload_images;

/* Defined by the linker: the first entry of a section, and one past the last. Hidden, so that the
 * program's entries never replace the plugin's. */
__attribute__((visibility("hidden"))) extern const offload_entry __start_omp_offloading_entries[],
    __stop_omp_offloading_entries[];
void __tgt_register_lib(const offload_images *images);

/* From the build (toolchain/gpu.bzl): a cubin, the fat binary, the library of gpu_driver.c. */
extern const char weir_gpu_carrier[], weir_gpu_carrier_end[], weir_gpu_images[], weir_gpu_driver[],
    weir_gpu_driver_end[];

static char why[200];

/* Loads the library from memory: other programs would take a file called libcuda.so in a library
 * folder for the driver's. */
static void *open_stand_in(void)
{
    const int descriptor = memfd_create("libcuda.so", MFD_CLOEXEC);
    char path[32];
    void *library = NULL;
    size_t left = (size_t)(weir_gpu_driver_end - weir_gpu_driver);
    while (descriptor >= 0 && left > 0) {
        const ssize_t n = write(descriptor, weir_gpu_driver_end - left, left);
        if (n <= 0) break;
        left -= (size_t)n;
    }
    if (descriptor < 0 || left > 0) {
        snprintf(why, sizeof why, "memfd_create: %s", strerror(errno));
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!library) snprintf(why, sizeof why, "%s", dlerror());
    }
    if (descriptor >= 0) close(descriptor);
    return library;
}

static void register_once(void)
{
    static const device_image image = { weir_gpu_carrier, weir_gpu_carrier_end,
                                        __start_omp_offloading_entries,
                                        __stop_omp_offloading_entries };
    static const offload_images images = { 1, &image, __start_omp_offloading_entries,
                                           __stop_omp_offloading_entries };
    void *const library = open_stand_in();
    if (!library) return;
    void (*serve)(const void *shown, const void *loaded);
    void *const symbol = dlsym(library, "weir_gpu_driver_serve");
    if (!symbol) {
        snprintf(why, sizeof why, "%s", dlerror());
        return;
    }
    memcpy(&serve, &symbol, sizeof serve);
    serve(weir_gpu_carrier, weir_gpu_images);
    __tgt_register_lib(&images);
}

const char *weir_gpu_images_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_once);
    return why[0] ? why : NULL;
}
