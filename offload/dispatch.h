/* offload/dispatch.h - picks a kernel for an op and runs it: the only way the engine calls kernels.
 *
 * The rows of the table (kernels/list.inc) are tried in order, fastest first, ref last; the first
 * that does not reject runs. A pinned kernel is tried first. Rows that the machine (or a forced
 * lower ISA) cannot run are excluded at open, so a pick is usually one call of reject(). */
#pragma once
#include <stdbool.h>

#include "engine/base/error.h"
#include "kernels/abi/ops.h"
#include "offload/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An ordered queue of kernel launches on one device, with its scratch memory. One thread at a
 * time. */
typedef struct weir_stream weir_stream;

typedef struct weir_stream_options {
    int32_t n_threads; /* 0: OMP_NUM_THREADS, else weir_processors */
    /* NULL or "auto": the best of the machine; "v2", "v3", "v4" force a lower one. */
    const char *isa;
    const char *pins[WEIR_OP_COUNT]; /* kernel name per op; NULL: the first that accepts */
    /* NULL: the host; borrowed. With a device, arrays of calls are as offload/marshal.h says; embed
     * always reads and writes host memory. */
    weir_device *device;
} weir_stream_options;

/* Returns ECONFIG for an unknown isa, an isa above the machine's, an unknown pin or a pin that this
 * machine cannot run. */
WEIR_MUST_CHECK weir_status
weir_stream_open(weir_stream **out, const weir_stream_options *options, weir_error *error);
void weir_stream_close(weir_stream *stream); /* NULL-safe */
/* Of the machine, limited to the forced isa. */
const weir_caps *weir_stream_caps(const weir_stream *stream);
/* Prints the level and the features of the CPU on which the bits of results depend: "v3",
 * "v4+bf16", "v4+amx_bf16". */
enum { WEIR_STREAM_ISA = 16 };
void weir_stream_print_isa(char out[WEIR_STREAM_ISA], const weir_stream *stream);
weir_device *weir_stream_device(const weir_stream *stream); /* NULL: the CPU */
int32_t weir_stream_threads(const weir_stream *stream);

/* For tests: bytes of scratch that the stream holds. A call that needs more grows it: after warm-up
 * this does not change. */
size_t weir_stream_scratch_bytes(const weir_stream *stream);
/* While planning, the typed entries run nothing and only record the memory that their call needs:
 * scratch, and with a device the copies of marshalling. */
typedef struct weir_stream_memory {
    size_t scratch; /* bytes where the kernels run */
    size_t device, host; /* with a device: bytes of it and of the host, for marshalling */
} weir_stream_memory;
void weir_stream_set_planning(weir_stream *stream, bool planning); /* true: starts from zero */
bool weir_stream_is_planning(const weir_stream *stream);
/* The most that any call needed since planning began, and at least what the stream holds. */
weir_stream_memory weir_stream_planned(const weir_stream *stream);
weir_stream_memory weir_stream_held(const weir_stream *stream);
/* Allocates what was planned and is not allocated yet. */
WEIR_MUST_CHECK weir_status weir_stream_reserve_planned(weir_stream *stream);
/* Calls `observe` with every call of the typed entries before it runs (bench --explain); NULL ends
 * it. */
void weir_stream_observe(
    weir_stream *stream, void (*observe)(void *user, weir_op op, const void *args), void *user
);

/* Ordered with the calls, between arrays of the host and of the stream's device; nothing while
 * planning. On the host memcpy and memset. */
void weir_stream_copy(weir_stream *stream, void *dst, const void *src, size_t bytes);
/* The same without waiting, if it writes memory of the device. Memory of the host that it reads
 * must stay as it is until the next weir_stream_copy or weir_stream_finish. */
void weir_stream_queue_copy(weir_stream *stream, void *dst, const void *src, size_t bytes);
/* Waits for all calls. Returns EDEVICE if the device failed. */
WEIR_MUST_CHECK weir_status weir_stream_finish(weir_stream *stream);
void weir_stream_clear(weir_stream *stream, void *memory, size_t bytes);

/* Returns the row that would run, or NULL if none accepts. `visit` (may be NULL) is called with
 * every row of the op and its reject reason (NULL: accepts). */
typedef void (*weir_kernel_visitor)(void *user, const weir_kernel *kernel, const char *reject);
const weir_kernel *weir_kernel_pick(
    const weir_stream *stream, weir_op op, const void *args, weir_kernel_visitor visit, void *user
);
const char *weir_op_name(weir_op op);
bool weir_op_from_name(const char *name, weir_op *out);
/* Returns why the stream would not run this row with these arguments, or NULL. weir_kernel_run runs
 * one row, whatever the order of the table. */
const char *weir_kernel_reject(
    const weir_stream *stream, const weir_kernel *kernel, const void *args
);
WEIR_MUST_CHECK weir_status
weir_kernel_run(weir_stream *stream, const weir_kernel *kernel, const void *args);

/* The typed entries, such as weir_rmsnorm: one per op of kernels/abi/ops.inc. Return EUNSUPPORTED
 * if no row accepts, else what the kernel returned. */
#define WEIR_OP(NAME, name, where, launches)                                                       \
    WEIR_MUST_CHECK weir_status weir_##name(weir_stream *stream, const weir_##name##_args *args);
#include "kernels/abi/ops.inc"

#ifdef __cplusplus
}
#endif
