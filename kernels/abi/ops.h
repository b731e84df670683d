/* kernels/abi/ops.h - kernels: the ops, with args and contracts in kernels/abi/ops/, and the rows
 * of the kernel table.
 *
 * Kernels are pure functions over arrays: no allocation, no I/O, no locks, no globals. Shapes are
 * row-major, slowest first; strides are in elements. Letters: T rows of the batch (tokens of all
 * sequences, each sequence's rows contiguous), S sequences (segments), D model width, H query
 * heads, G KV heads, hd head width. All activations are f32. Accumulation is f32 (ref: f64). A
 * row's result never depends on which other rows share the call.
 *
 * weir_<op>_is_valid checks the part of a contract that needs no data; debug builds assert it. */
#pragma once
#include "kernels/abi/ops/attention.h"
#include "kernels/abi/ops/coda.h"
#include "kernels/abi/ops/experts.h"
#include "kernels/abi/ops/kv.h"
#include "kernels/abi/ops/matmul.h"
#include "kernels/abi/ops/recurrent.h"
#include "kernels/abi/ops/rowwise.h"
#include "kernels/abi/status.h"

typedef enum weir_op {
#define WEIR_OP(NAME, name, where, launches) WEIR_OP_##NAME,
#include "kernels/abi/ops.inc"
    WEIR_OP_COUNT
} weir_op;

typedef enum weir_backend {
    WEIR_BACKEND_REF,
    WEIR_BACKEND_OMP,
    WEIR_BACKEND_X86,
    WEIR_BACKEND_ONEDNN,
    WEIR_BACKEND_CUDA
} weir_backend;

/* What a kernel may know about the machine; filled in once at start. */
typedef struct weir_caps {
    bool x86_v2, x86_v3, x86_v4, avx_vnni, avx512_vnni, avx512_bf16, amx_int8, amx_bf16;
    int cuda_capability; /* 90 for sm_90, 0 without CUDA */
} weir_caps;

/* Where to run; filled in by offload/, read by kernels. */
typedef struct weir_kernel_context {
    /* omp_get_initial_device() is the host; only omp kernels use it. */
    int omp_device;
    int n_threads;
    void *cuda_stream;
    /* 64-byte aligned: at least row.scratch(args) bytes and n_threads times row.thread_scratch. */
    void *scratch;
    size_t scratch_bytes;
} weir_kernel_context;

typedef struct weir_kernel {
    weir_op op;
    weir_backend backend;
    const char *name; /* "omp.rmsnorm.v4": what --explain prints and [kernels] may pin     */
    double atol, rtol; /* allowed error against ref: |x - ref| <= atol + rtol * |ref|          */
    /* NULL: accepts; otherwise a static reason such as "needs AVX-512". Pure. */
    const char *(*reject)(const weir_caps *caps, const void *args);
    size_t (*scratch)(const void *args); /* bytes; NULL = none */
    weir_status (*run)(const weir_kernel_context *context, const void *args);
    size_t thread_scratch; /* further bytes for each thread of the context */
} weir_kernel;
