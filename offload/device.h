/* offload/device.h - where kernels run when it is not the host: its memory, which the host may not
 * touch, and its rows of the kernel table.
 *
 *   "cpu"      the host: there is no device
 *   "gpu:N"    GPU number N through the plugin (gpu_loader.h)
 *   "auto"     gpu:0 where there is one that can be used, else the host
 *   "checked"  the host's own kernels over memory apart: pages that are protected while no kernel
 *              runs, so that a stray access of the host ends the process where it is made; freed
 *              memory stays unreadable, fresh memory is zero. For tests: it proves the hand-overs
 *              without a GPU.
 *
 * Memory of a device and kernels belong to one thread, that of its stream; copies may come from any
 * thread. What fails on the way (a device that is lost) is kept: later calls do nothing, and
 * weir_device_failure says why. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_device weir_device;

/* *out NULL: the host does the work, and `why` says so where a GPU was asked for or could have
 * been. ECONFIG: a name that is none; ENOMEM. */
WEIR_MUST_CHECK weir_status weir_device_open(weir_device **out, const char *name, char *why,
                                             size_t why_bytes, weir_error *error);
/* After all its memory was freed: that is asserted. NULL-safe. */
void weir_device_close(weir_device *device);

const char *weir_device_name(const weir_device *device); /* "gpu:0" */
const char *weir_device_title(const weir_device *device); /* as its maker calls it */
int         weir_device_capability(
            const weir_device *device); /* 90 for sm_90; 0: it runs the host's rows */
size_t weir_device_memory_bytes(const weir_device *device); /* free when it was opened */
/* Its rows in order of preference within an op; NULL: those of the host. */
const weir_kernel *const *weir_device_kernels(const weir_device *device, size_t *count);

/* What "checked" devices have that are opened from now on: rows, borrowed, and a capability. NULL,
 * 0, 0: the host's. For tests: emulated rows of a GPU make one of it, and no GPU has a kernel for
 * everything. */
void weir_device_check_with(const weir_kernel *const *rows, size_t n, int capability);

/* Memory that kernels alone read and write: zero, aligned to 256. NULL: it is full. */
void *weir_device_alloc(weir_device *device, size_t bytes);
void  weir_device_free(weir_device *device, void *memory, size_t bytes); /* NULL-safe */
/* Memory of the host that kernels reach too, at the same address, aligned to 4096: for what the
 * host writes while it launches, and for fast copies. */
void  *weir_device_alloc_reachable(weir_device *device, size_t bytes);
void   weir_device_free_reachable(weir_device *device, void *memory, size_t bytes);
bool   weir_device_owns(const weir_device *device, const void *memory); /* of weir_device_alloc */
size_t weir_device_held(const weir_device *device); /* bytes of weir_device_alloc */

/* After all kernels that were launched; any direction; done when they return. */
void        weir_device_copy(weir_device *device, void *dst, const void *src, size_t bytes);
void        weir_device_clear(weir_device *device, void *memory, size_t bytes);
void        weir_device_finish(weir_device *device); /* all launched kernels have ended */
const char *weir_device_failure(const weir_device *device); /* NULL: nothing failed */

/* ---- address space
 * -------------------------------------------------------------------------------------------------------------
 * Addresses that have no memory of their own, for what keeps its address while its bytes come and
 * go: KV pages. A place, whole multiples of 4096, is given memory of the device and loses it again.
 * Copies and clears take such addresses, within a place; so do tables of pages that are handed to
 * kernels (hand_over.h), which see what lies behind them. One space at a time; what is put into it
 * belongs to the caller. */
enum { WEIR_DEVICE_PLACE = 4096 };
size_t                      weir_device_space_book_bytes(size_t reach); /* of the host */
WEIR_MUST_CHECK weir_status weir_device_space_open(weir_device *device, void **out,
                                                   size_t reach); /* ENOMEM */
void  weir_device_space_close(weir_device *device); /* nothing is put there any more */
void  weir_device_space_put(weir_device *device, void *place, void *memory,
                            size_t bytes); /* memory NULL: none */
void *weir_device_behind(
    const weir_device *device,
    const void *address); /* itself if it is no address of the space; NULL: nothing is there */

/* ---- beside the kernels
 * --------------------------------------------------------------------------------------------------------
 * A thread that fills memory while kernels read other memory: its copies wait for no kernel and no
 * kernel waits for them, they are done when they return. A mark stands behind all that was launched
 * before it; who awaits it knows that these kernels have ended. One that was never set does not
 * hold anybody up. */
enum { WEIR_DEVICE_MARKS = 8 };
void weir_device_copy_beside(weir_device *device, void *dst, const void *src, size_t bytes);
void weir_device_mark(weir_device *device, int mark);
void weir_device_await(weir_device *device, int mark);

/* Around a launch, by the stream. */
void weir_device_begin(weir_device *device);
void weir_device_end(weir_device *device);
/* What its kernels are launched with, beside the scratch. */
void weir_device_context(const weir_device *device, weir_kernel_context *context);

#ifdef __cplusplus
}
#endif
