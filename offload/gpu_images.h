/* offload/gpu_images.h - inside the plugin: its device images, handed to the offload runtime when a
 * device was found. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the images to libomptarget, which then sees the devices; nothing of it may be called
 * before. Needs libcuda.so.1 on the library path. NULL when done, now or earlier; else what went
 * wrong, in static memory. Exported for tests/gpu/images_test, which plays the driver. */
__attribute__((visibility("default"))) const char *weir_gpu_images_register(void);

#ifdef __cplusplus
}
#endif
