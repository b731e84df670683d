/* offload/device.h - where kernels run when it is not the host: its memory, which the host cannot
 * access, and its rows of the kernel table.
 *
 *   "cpu"      the host: there is no device
 *   "gpu:N"    GPU number N through the plugin (gpu_loader.h)
 *   "auto"     gpu:0 if it is usable, else the host
 *   "checked"  the host's kernels on protected memory. The pages are accessible only while a
 *              kernel or a copy runs, so a stray access of the host faults. Freed memory stays
 *              inaccessible, new memory is zero. For tests: it checks marshalling without a GPU.
 *
 * The memory of a device and its kernels belong to one thread, that of its stream; any thread may
 * copy. The first failure (a lost device, say) is recorded: later calls do nothing, and
 * weir_device_failure returns its text. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_device weir_device;

/* *out NULL: the host does the work; `why` is set where a GPU was asked for or "auto" found none.
 * ECONFIG: an unknown name; ENOMEM. */
WEIR_MUST_CHECK weir_status weir_device_open(
    weir_device **out, const char *name, char *why, size_t why_bytes, weir_error *error
);
/* Asserts that all its memory was freed. NULL-safe. */
void weir_device_close(weir_device *device);

const char *weir_device_name(const weir_device *device); /* "gpu:0" */
const char *weir_device_title(const weir_device *device); /* the vendor's name */
/* 90 for sm_90; 0: it runs the host's rows */
int weir_device_capability(const weir_device *device);
size_t weir_device_memory_bytes(const weir_device *device); /* free when it was opened */
/* Its rows in order of preference within an op; NULL: those of the host. */
const weir_kernel *const *weir_device_kernels(const weir_device *device, size_t *count);

/* For tests: rows (borrowed) and capability of "checked" devices opened from now on, so that
 * emulated rows make a GPU of one. NULL, 0, 0: the host's. */
void weir_device_check_with(const weir_kernel *const *rows, size_t n, int capability);

/* Device memory, accessed by kernels only: zeroed, aligned to 256. NULL: the device is full. */
void *weir_device_alloc(weir_device *device, size_t bytes);
void weir_device_free(weir_device *device, void *memory, size_t bytes); /* NULL-safe */
/* Page-locked host memory at the same address on the device, aligned to 4096: for arguments that
 * the host writes while kernels run, and for fast copies. Not zeroed. */
void *weir_device_alloc_unified(weir_device *device, size_t bytes);
void weir_device_free_unified(weir_device *device, void *memory, size_t bytes);
bool weir_device_owns(const weir_device *device, const void *memory); /* of weir_device_alloc */
size_t weir_device_held(const weir_device *device); /* bytes of weir_device_alloc; for tests */

/* Ordered after all launched kernels, in any direction; complete on return. */
void weir_device_copy(weir_device *device, void *dst, const void *src, size_t bytes);
void weir_device_clear(weir_device *device, void *memory, size_t bytes);
void weir_device_finish(weir_device *device); /* waits for all launched kernels */
const char *weir_device_failure(const weir_device *device); /* NULL: nothing failed */

/* ---- address space --------------------------------------------------------------------------- */
/* A reserved range of addresses for KV pages, which keep their address while their bytes move
 * between tiers. Granules of 4096 bytes are mapped to device memory and unmapped again. Copies,
 * clears and marshalled page tables (marshal.h) resolve such addresses. One range per device; the
 * caller owns the memory that it maps. */
enum { WEIR_DEVICE_GRANULE = 4096 };
/* Host bytes that the range's table takes. */
size_t weir_device_space_metadata_bytes(size_t reach);
WEIR_MUST_CHECK weir_status
weir_device_space_open(weir_device *device, void **out, size_t reach); /* ENOMEM */
void weir_device_space_close(weir_device *device); /* the caller maps nothing afterwards */
/* memory NULL: unmap. */
void weir_device_space_map(weir_device *device, void *address, void *memory, size_t bytes);
/* The mapped memory, NULL if none is; an address outside the range resolves to itself. */
void *weir_device_resolve(const weir_device *device, const void *address);

/* ---- asynchronous copies --------------------------------------------------------------------- */
/* For a thread that fills memory while kernels read other memory. Its copies are not ordered with
 * kernels and are complete on return. Waiting for an event waits for the kernels launched before it
 * was recorded; waiting for one that was never recorded returns at once. */
enum { WEIR_DEVICE_EVENTS = 8 };
void weir_device_copy_async(weir_device *device, void *dst, const void *src, size_t bytes);
void weir_device_event_record(weir_device *device, int event);
void weir_device_event_wait(weir_device *device, int event);

/* Called by the stream before and after a launch. */
void weir_device_begin(weir_device *device);
void weir_device_end(weir_device *device);
/* Sets the device's fields of the context that kernels are launched with. */
void weir_device_context(const weir_device *device, weir_kernel_context *context);

#ifdef __cplusplus
}
#endif
