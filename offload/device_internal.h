/* offload/device_internal.h - what a kind of device brings to device.c. */
#pragma once
#include <stdatomic.h>

#include "offload/device.h"

enum { DEVICE_BLOCKS = 4096, DEVICE_ALIGNMENT = 256, DEVICE_TEXT = 160 };

typedef struct device_kind {
    /* Zero, aligned to 256; NULL: full. */
    void *(*alloc)(weir_device *device, size_t bytes);
    void (*free)(weir_device *device, void *memory, size_t bytes);
    void *(*alloc_reachable)(weir_device *device, size_t bytes);
    void (*free_reachable)(weir_device *device, void *memory, size_t bytes);
    /* Called without the lock of device.c, by any thread, as they wait; false: `text` says why. */
    bool (*copy)(weir_device *device, void *dst, const void *src, size_t bytes,
                 char text[DEVICE_TEXT]);
    bool (*clear)(weir_device *device, void *memory, size_t bytes, char text[DEVICE_TEXT]);
    bool (*finish)(weir_device *device, char text[DEVICE_TEXT]);
    bool (*copy_beside)(weir_device *device, void *dst, const void *src, size_t bytes,
                        char text[DEVICE_TEXT]);
    bool (*mark)(weir_device *device, int mark,
                 char text[DEVICE_TEXT]); /* NULL: kernels have ended when their launch returns */
    bool (*await)(weir_device *device, int mark, char text[DEVICE_TEXT]);
    void (*begin)(weir_device *device); /* NULL: nothing to do */
    void (*end)(weir_device *device);
    void (*close)(weir_device *device); /* NULL: nothing to do */
} device_kind;

typedef struct device_block {
    char  *memory;
    size_t bytes;
} device_block;

struct weir_device {
    const device_kind        *kind;
    const weir_kernel *const *kernels;
    size_t                    n_kernels, memory_bytes;
    weir_kernel_context       context;
    int                       capability, number;
    const void               *plugin; /* weir_gpu_plugin of a GPU */
    char                      name[16], title[64], failure[200]; /* failure[0] == 0: none */
    atomic_bool               has_failed; /* there is one: asked without the lock */
    device_block              blocks[DEVICE_BLOCKS]; /* [n_blocks] by address */
    size_t                    n_blocks;
    int                       n_open; /* checked: launches and copies that run now */
    char                     *space; /* addresses without access; NULL: there is none */
    size_t                    reach;
    char                    **behind; /* [reach / WEIR_DEVICE_PLACE] what was put there */
};

void weir_device_fail(weir_device *device,
                      const char  *text); /* the first one stays; under the lock of device.c */

/* device_checked.c */
void weir_device_open_checked(weir_device *device);
/* device_gpu.c: false: it cannot be used, `why` says it. */
bool weir_device_open_gpu(weir_device *device, int number, char *why, size_t why_bytes);
