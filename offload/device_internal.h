/* offload/device_internal.h - the operations that each kind of device implements for device.c. */
#pragma once
#include <stdatomic.h>

#include "offload/device.h"

enum { DEVICE_BLOCKS = 4096, DEVICE_ALIGNMENT = 256, DEVICE_TEXT = 160 };

typedef struct device_kind {
    /* Returns zeroed memory, aligned to 256; NULL: full. */
    void *(*alloc)(weir_device *device, size_t bytes);
    void (*free)(weir_device *device, void *memory, size_t bytes);
    void *(*alloc_unified)(weir_device *device, size_t bytes);
    void (*free_unified)(weir_device *device, void *memory, size_t bytes);
    /* These block and may be called by any thread, without the lock of device.c. False: `text` says
     * why. */
    bool (*copy)(
        weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
    );
    /* These may return before they are done. queue_copy writes device memory; NULL: copy. */
    bool (*queue_copy)(
        weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
    );
    bool (*clear)(weir_device *device, void *memory, size_t bytes, char text[DEVICE_TEXT]);
    bool (*finish)(weir_device *device, char text[DEVICE_TEXT]);
    bool (*copy_async)(
        weir_device *device, void *dst, const void *src, size_t bytes, char text[DEVICE_TEXT]
    );
    /* NULL: launches are synchronous. */
    bool (*event_record)(weir_device *device, int event, char text[DEVICE_TEXT]);
    bool (*event_wait)(weir_device *device, int event, char text[DEVICE_TEXT]);
    void (*begin)(weir_device *device); /* NULL: nothing to do */
    void (*end)(weir_device *device);
    void (*close)(weir_device *device); /* NULL: nothing to do */
} device_kind;

typedef struct device_block {
    char *memory;
    size_t bytes;
    int n_open; /* checked: running copies from or to it */
} device_block;

struct weir_device {
    const device_kind *kind;
    const weir_kernel *const *kernels;
    size_t n_kernels, memory_bytes;
    weir_kernel_context context;
    int capability, number;
    const void *plugin; /* weir_gpu_plugin of a GPU, else NULL */
    char name[16], title[64], failure[200]; /* failure[0] == 0: none */
    atomic_bool has_failed; /* readable without the lock */
    device_block blocks[DEVICE_BLOCKS]; /* [n_blocks] by address */
    size_t n_blocks;
    int n_open; /* checked: running launches */
    char *space; /* reserved addresses; NULL: none */
    size_t reach;
    char **granules; /* [reach / WEIR_DEVICE_GRANULE] mapped memory */
};

/* Records the first failure; the lock of device.c is held. */
void weir_device_fail(weir_device *device, const char *text);

/* Takes the lock of device.c. Returns the block that holds the address; NULL: the device has none
 * there. */
device_block *weir_device_lock_block(weir_device *device, const void *memory);
void weir_device_unlock(void);

/* device_checked.c */
void weir_device_open_checked(weir_device *device);
/* device_gpu.c: returns false if it cannot be used; `why` says why. */
bool weir_device_open_gpu(weir_device *device, int number, char *why, size_t why_bytes);
