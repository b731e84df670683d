/* offload/dispatch.h - picks a kernel for an op and runs it: the only way the engine reaches
 * kernels.
 *
 * The table (kernels/list.inc) is tried in order, fastest first, ref last; the first row that does
 * not reject runs. A pinned name goes first. What the machine (or a forced lower ISA) cannot run is
 * left out once, at open, so a pick is usually one call of reject(). */
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
    int32_t      n_threads; /* 0: as many as OpenMP would use, all cores by default */
    const char  *isa; /* NULL or "auto": best of the machine; "v2", "v3", "v4" force a lower one */
    const char  *pins[WEIR_OP_COUNT]; /* kernel name per op, NULL: first that accepts */
    weir_device *device; /* NULL: the host; borrowed. Arrays of calls are then as
                            offload/hand_over.h says; embed reads and writes the host's */
} weir_stream_options;

/* ECONFIG for an unknown isa, an isa above the machine's, an unknown pin or a pin that this machine
 * cannot run. */
WEIR_MUST_CHECK weir_status weir_stream_open(weir_stream **out, const weir_stream_options *options,
                                             weir_error *error);
void                        weir_stream_close(weir_stream *stream); /* NULL-safe */
const weir_caps *
weir_stream_caps(const weir_stream *stream); /* of the machine, cut to the forced isa */
weir_device *weir_stream_device(const weir_stream *stream); /* NULL: the host */
int32_t      weir_stream_threads(const weir_stream *stream);

/* Grows the scratch so that this call will fit: worst-case shapes at open, so that steps allocate
 * nothing. */
WEIR_MUST_CHECK weir_status weir_stream_reserve(weir_stream *stream, weir_op op, const void *args);
size_t                      weir_stream_scratch_bytes(
                         const weir_stream
                             *stream); /* a call that needs more grows it: after warm-up this must not change */
/* While planning, the typed entries below run nothing and only note what their call would take:
 * scratch, and with a device what is handed over. */
typedef struct weir_stream_scratch_size {
    size_t scratch; /* bytes where the kernels run */
    size_t near, host; /* with a device: of it and of the host, for what is handed over */
} weir_stream_scratch_size;
void weir_stream_set_planning(weir_stream *stream, bool planning); /* true: from nothing on */
bool weir_stream_is_planning(const weir_stream *stream);
weir_stream_scratch_size weir_stream_planned(
    const weir_stream *stream); /* the most that calls asked for since planning began */
weir_stream_scratch_size weir_stream_held(const weir_stream *stream);
WEIR_MUST_CHECK weir_status
weir_stream_reserve_planned(weir_stream *stream); /* what it does not hold */
/* `observe` sees every call of the typed entries before it runs (bench --explain); NULL ends it. */
void weir_stream_observe(weir_stream *stream,
                         void (*observe)(void *user, weir_op op, const void *args), void *user);

/* In the order of the calls, between arrays of the host and of the stream's device; nothing while
 * planning. On the host memcpy and memset. */
void weir_stream_copy(weir_stream *stream, void *dst, const void *src, size_t bytes);
/* All calls have ended; EDEVICE: the device failed. */
WEIR_MUST_CHECK weir_status weir_stream_finish(weir_stream *stream);
void                        weir_stream_clear(weir_stream *stream, void *memory, size_t bytes);

/* The row that would run, NULL if none accepts. `visit` (may be NULL) sees every row of the op with
 * its reject reason (NULL: accepts). */
typedef void (*weir_kernel_visitor)(void *user, const weir_kernel *kernel, const char *reject);
const weir_kernel *weir_kernel_pick(const weir_stream *stream, weir_op op, const void *args,
                                    weir_kernel_visitor visit, void *user);
const char        *weir_op_name(weir_op op);
bool               weir_op_from_name(const char *name, weir_op *out);
/* All rows of this build, for tests and benches: what the stream's machine cannot run is among
 * them. */
size_t             weir_kernel_count(void);
const weir_kernel *weir_kernel_at(size_t index);
/* Why the stream would not run this row with these arguments, NULL: it would. And one row alone,
 * past the order of the table. */
const char                 *weir_kernel_reject(const weir_stream *stream, const weir_kernel *kernel,
                                               const void *args);
WEIR_MUST_CHECK weir_status weir_kernel_run(weir_stream *stream, const weir_kernel *kernel,
                                            const void *args);

/* Typed entries. EUNSUPPORTED when no row accepts, else what the kernel returned. */
WEIR_MUST_CHECK weir_status weir_embed(weir_stream *stream, const weir_embed_args *args);
WEIR_MUST_CHECK weir_status weir_rmsnorm(weir_stream *stream, const weir_rmsnorm_args *args);
WEIR_MUST_CHECK weir_status weir_gated_rmsnorm(weir_stream                   *stream,
                                               const weir_gated_rmsnorm_args *args);
WEIR_MUST_CHECK weir_status weir_rope(weir_stream *stream, const weir_rope_args *args);
WEIR_MUST_CHECK weir_status weir_matmul(weir_stream *stream, const weir_matmul_args *args);
WEIR_MUST_CHECK weir_status weir_swiglu(weir_stream *stream, const weir_swiglu_args *args);
WEIR_MUST_CHECK weir_status weir_sigmoid_gate(weir_stream                  *stream,
                                              const weir_sigmoid_gate_args *args);
WEIR_MUST_CHECK weir_status weir_add(weir_stream *stream, const weir_add_args *args);
WEIR_MUST_CHECK weir_status weir_kv_write(weir_stream *stream, const weir_kv_write_args *args);
WEIR_MUST_CHECK weir_status weir_kv_read(weir_stream *stream, const weir_kv_read_args *args);
WEIR_MUST_CHECK weir_status weir_kv_compact(weir_stream *stream, const weir_kv_compact_args *args);
WEIR_MUST_CHECK weir_status weir_key_products(weir_stream                  *stream,
                                              const weir_key_products_args *args);
WEIR_MUST_CHECK weir_status weir_attention(weir_stream *stream, const weir_attention_args *args);
WEIR_MUST_CHECK weir_status weir_attention_mass(weir_stream                    *stream,
                                                const weir_attention_mass_args *args);
WEIR_MUST_CHECK weir_status weir_conv1d(weir_stream *stream, const weir_conv1d_args *args);
WEIR_MUST_CHECK weir_status weir_gated_delta_rule(weir_stream                      *stream,
                                                  const weir_gated_delta_rule_args *args);
WEIR_MUST_CHECK weir_status weir_coda_queries(weir_stream                  *stream,
                                              const weir_coda_queries_args *args);
WEIR_MUST_CHECK weir_status weir_coda_combine(weir_stream                  *stream,
                                              const weir_coda_combine_args *args);
WEIR_MUST_CHECK weir_status weir_coda_write(weir_stream *stream, const weir_coda_write_args *args);

#ifdef __cplusplus
}
#endif
