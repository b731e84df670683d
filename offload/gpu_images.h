/* offload/gpu_images.h - internal to the plugin: registers its device images with the offload
 * runtime when a device was found. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the images with libomptarget, which then finds the devices; must be called before
 * anything else of it. Needs libcuda.so.1 on the library path. Returns NULL if it succeeded, now or
 * earlier; else an error text in static memory. Exported for tests/gpu/images_test, which provides
 * a fake driver. */
__attribute__((visibility("default"))) const char *weir_gpu_images_register(void);

#ifdef __cplusplus
}
#endif
