/* kernels/cuda/cublas.h - NVIDIA's cuBLASLt, opened at run time: half a gigabyte that may or may
 * not be installed, so nothing links it.
 *
 * It multiplies many rows of dense weights at the speed of wgmma and its successors. But it chooses
 * its algorithm, and so its order of summation, by the number of rows, so a row's bits depend on
 * the other rows. Its row, cublaslt.matmul, therefore comes after cuda.matmul, which accepts
 * everything that it does: it runs only if pinned (kernels.pin.matmul = "cublaslt.matmul").
 * docs/decisions/0028 describes the alternatives. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the library for the calling thread's device: weir_kernel_context.cublas.
 * errors : EUNSUPPORTED if no library of a known version is found or it does not start; `text` (may
 * be NULL) says why */
WEIR_MUST_CHECK weir_status weir_cublas_open(void **out, char *text, size_t text_bytes);
void weir_cublas_close(void *cublas); /* NULL-safe */

/* ---- what is used of the library: its types, and its numbers, which cublas.cu checks against
 * cublasLt.h  */
typedef void *weir_lt; /* any handle or descriptor */

typedef struct weir_lt_algorithm {
    uint64_t data[8];
} weir_lt_algorithm;

typedef struct weir_lt_choice {
    weir_lt_algorithm algorithm;
    size_t workspace_bytes;
    int state; /* 0: usable */
    float waves;
    int reserved[4];
} weir_lt_choice;

enum {
    WEIR_LT_F32 = 0,
    WEIR_LT_BF16 = 14,
    WEIR_LT_COMPUTE_F32 = 68,
    WEIR_LT_TRANSPOSED = 1,
    WEIR_LT_DESC_TRANSPOSE_A = 3,
    WEIR_LT_DESC_EPILOGUE = 7,
    WEIR_LT_DESC_BIAS = 8,
    WEIR_LT_EPILOGUE_BIAS = 4,
    WEIR_LT_PREFER_WORKSPACE = 1,
    WEIR_LT_PREFER_ALIGNMENT_A = 5, /* 6, 7, 8: those of B, C and D */
};

typedef struct weir_lt_functions { /* these return 0 for success */
    int (*create)(weir_lt *handle);
    int (*destroy)(weir_lt handle);
    int (*desc_create)(weir_lt *desc, int compute, int scale);
    int (*desc_set)(weir_lt desc, int attribute, const void *value, size_t bytes);
    int (*desc_destroy)(weir_lt desc);
    int (*layout_create)(
        weir_lt *layout, int type, uint64_t rows, uint64_t columns, int64_t leading
    );
    int (*layout_destroy)(weir_lt layout);
    int (*preference_create)(weir_lt *preference);
    int (*preference_set)(weir_lt preference, int attribute, const void *value, size_t bytes);
    int (*preference_destroy)(weir_lt preference);
    int (*choose)(
        weir_lt handle, weir_lt desc, weir_lt a, weir_lt b, weir_lt c, weir_lt d,
        weir_lt preference, int wanted, weir_lt_choice *choices, int *found
    );
    int (*matmul)(
        weir_lt handle, weir_lt desc, const void *alpha, const void *a, weir_lt a_layout,
        const void *b, weir_lt b_layout, const void *beta, const void *c, weir_lt c_layout, void *d,
        weir_lt d_layout, const weir_lt_algorithm *algorithm, void *workspace,
        size_t workspace_bytes, void *stream
    );
} weir_lt_functions;

/* What the choice of an algorithm depends on. */
typedef struct weir_lt_shape {
    int64_t n_out, n_in, n_rows, x_stride, dst_stride;
    uint32_t alignment_x, alignment_dst;
    int32_t type, has_bias;
} weir_lt_shape;

enum { WEIR_CUBLAS_KEPT = 64 };
typedef struct weir_cublas {
    weir_lt_functions lt;
    weir_lt handle;
    void *library;
    struct {
        weir_lt_shape shape;
        weir_lt_algorithm algorithm;
        /* A choice takes tens of microseconds; the oldest is replaced. Only the engine thread uses
         * it. */
    } kept[WEIR_CUBLAS_KEPT];
    uint32_t n_kept;
} weir_cublas;

#ifdef __cplusplus
}
#endif
