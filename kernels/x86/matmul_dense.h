/* kernels/x86/matmul_dense.h - shared by the instruction sets: panels over threads, blocks of rows,
 * bias. The sets differ in two functions only: how rows are multiplied by a piece of a panel, and
 * how a piece is expanded to f32. */
#pragma once
#include "kernels/x86/dense.h"

enum { WEIR_DENSE_ROWS = 6 /* Rows that one pass multiplies. */ };

/* Multiplies up to 6 rows of activations by a piece of a panel: sums [rows][32] = or += x [rows, n]
 * times piece [n][32]. */
typedef struct weir_dense_pass {
    const void *piece;
    const float *x;
    int64_t x_stride, n;
    float *sums;
    bool starts; /* sums start at zero */
    const char *ahead; /* prefetch address; may point anywhere */
    int64_t ahead_stride; /* bytes per input    */
} weir_dense_pass;

typedef enum weir_dense_form {
    WEIR_DENSE_F32,
    WEIR_DENSE_BF16,
    WEIR_DENSE_F16,
    WEIR_DENSE_FORMS
} weir_dense_form;

typedef struct weir_dense_isa {
    void (*pass[WEIR_DENSE_FORMS][WEIR_DENSE_ROWS + 1])(const weir_dense_pass *pass);
    void (*expand[WEIR_DENSE_FORMS])(float *dst, const void *piece, int64_t n); /* NULL for f32 */
} weir_dense_isa;

const char *weir_dense_reject(const weir_matmul_args *args);
weir_status weir_dense_matmul(
    const weir_dense_isa *isa, const weir_kernel_context *context, const weir_matmul_args *args
);
