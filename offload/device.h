/* offload/device.h - a device other than the host: its memory, which the host cannot access, and
 * its rows of the kernel table.
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

/* *out NULL: use the host; `why` is set if a GPU was requested or "auto" found none. Returns
 * ECONFIG for an unknown name; ENOMEM. */
WEIR_MUST_CHECK weir_status weir_device_open(
    weir_device **out, const char *name, char *why, size_t why_bytes, weir_error *error
);
/* Asserts that all its memory was freed. NULL-safe. */
void weir_device_close(weir_device *device);

const char *weir_device_name(const weir_device *device); /* "gpu:0" */
const char *weir_device_title(const weir_device *device); /* the vendor's name */
/* Returns 90 for sm_90; 0: it runs the host's rows. */
int weir_device_capability(const weir_device *device);
size_t weir_device_memory_bytes(const weir_device *device); /* when it was opened */
/* Its rows, in order of preference within an op; NULL: uses those of the host. */
const weir_kernel *const *weir_device_kernels(const weir_device *device, size_t *count);

/* For tests: rows (borrowed) and capability of "checked" devices opened from now on, so that
 * emulated rows run as on a GPU. NULL, 0, 0: the host's. */
void weir_device_check_with(const weir_kernel *const *rows, size_t n, int capability);

/* Allocates device memory, accessed by kernels only: zeroed, aligned to 256. Returns NULL if the
 * device is full. */
void *weir_device_alloc(weir_device *device, size_t bytes);
void weir_device_free(weir_device *device, void *memory, size_t bytes); /* NULL-safe */
/* Allocates page-locked host memory at the same address on the device, aligned to 4096: for
 * arguments that the host writes while kernels run, and for fast copies. Not zeroed. */
void *weir_device_alloc_unified(weir_device *device, size_t bytes);
void weir_device_free_unified(weir_device *device, void *memory, size_t bytes);
/* True for memory of weir_device_alloc. */
bool weir_device_owns(const weir_device *device, const void *memory);
/* For tests: bytes of weir_device_alloc. */
size_t weir_device_held(const weir_device *device);

/* Ordered after all launched kernels, in any direction; complete on return. */
void weir_device_copy(weir_device *device, void *dst, const void *src, size_t bytes);
/* The same to memory of the device, ordered with kernels launched before and after it; may return
 * earlier. What it reads of the host must stay as it is until the next weir_device_copy or
 * weir_device_finish. To memory of the host it is weir_device_copy. */
void weir_device_queue_copy(weir_device *device, void *dst, const void *src, size_t bytes);
/* Ordered with launched kernels and weir_device_copy, not with weir_device_copy_async. */
void weir_device_clear(weir_device *device, void *memory, size_t bytes);
void weir_device_finish(weir_device *device); /* waits for all launched kernels */
const char *weir_device_failure(const weir_device *device); /* NULL: nothing failed */

/* ---- address space --------------------------------------------------------------------------- */
/* A reserved range of addresses for KV pages, which keep their address while their bytes move
 * between tiers. Granules of 4096 bytes are mapped to device memory and unmapped again. Copies,
 * clears and marshalled page tables (marshal.h) resolve such addresses. One range per device; the
 * caller owns the memory that it maps. */
enum { WEIR_DEVICE_GRANULE = 4096 };
/* Host bytes of the range's table. */
size_t weir_device_space_metadata_bytes(size_t reach);
WEIR_MUST_CHECK weir_status
weir_device_space_open(weir_device *device, void **out, size_t reach); /* ENOMEM */
void weir_device_space_close(weir_device *device); /* the caller must not map afterwards */
/* memory NULL: unmap. */
void weir_device_space_map(weir_device *device, void *address, void *memory, size_t bytes);
/* Returns the mapped memory, or NULL if none is; an address outside the range resolves to
 * itself. */
void *weir_device_resolve(const weir_device *device, const void *address);

/* ---- asynchronous copies --------------------------------------------------------------------- */
/* For a thread that writes memory while kernels read other memory. Its copies are not ordered with
 * kernels and are complete on return. Waiting for an event waits for the kernels launched before it
 * was recorded; an event that was never recorded does not wait. */
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
