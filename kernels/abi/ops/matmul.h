/* kernels/abi/ops/matmul.h - weights in the layouts of the kernels, and matrix products with
 * them. */
#pragma once
#include "kernels/abi/dtype.h"
#include "kernels/abi/marshal.h"

typedef enum weir_layout {
    WEIR_LAYOUT_ROWS, /* as in the file: n_out rows of n_in elements of `dtype` */
    WEIR_LAYOUT_TILES, /* quantised, repacked for the dot kernels: kernels/x86/tiles.h */
    WEIR_LAYOUT_ONEDNN, /* f32 or bf16 in the blocks of oneDNN: kernels/onednn/weight.h */
    /* f32, bf16 or f16 in panels, if oneDNN has no layout: kernels/x86/dense.h. */
    WEIR_LAYOUT_DENSE,
    WEIR_LAYOUT_AMX, /* bf16 in the order of tile registers: kernels/x86/amx.h */
    /* For a GPU: rows of elements, or of codes and scales (kernels/cuda/weight.h). */
    WEIR_LAYOUT_CUDA,
} weir_layout;

/* A matrix [n_out, n_in] in the layout of the kernel that reads it. The model owns `data`. */
typedef struct weir_weight {
    const void *data;
    /* Private to the layout: oneDNN primitives; NULL otherwise. */
    void *packed_state;
    size_t bytes; /* of data */
    int64_t n_out, n_in;
    /* ROWS, TILES, CUDA: the file's type; ONEDNN: f32 or bf16; DENSE: f32, bf16 or f16; AMX:
     * bf16. */
    weir_dtype dtype;
    weir_layout layout;
} weir_weight;

/* outputs[o].dst[t,:] (+)= W_o x[t,:] (+ bias_o[:]): matrices that read the same x are one call.
 * shapes  : x [T, n_in] with x_stride; dst [T, n_out] with dst_stride; bias NULL or [n_out];
 *           accumulate adds to dst
 * groups  : with n_groups > 0, weight is an array of matrices of the same n_out, n_in, dtype and
 *           layout, bias NULL or [matrices, n_out], and each group of rows has its own matrix, the
 *           same index for all outputs. Groups are ascending and cover all T rows; none is empty.
 *           Experts: rows that chose the same expert are a group. Host memory
 * numerics: WEIR_LAYOUT_TILES quantises each row of x to int8 per 32 elements (round to nearest
 *           even, scale = amax / 127); integer sums are exact and groups are added in ascending
 *           order in f32, so all kernels give the same bits. AMX and ONEDNN bf16 round x to bf16;
 *           ONEDNN f32, DENSE and ROWS (ref) keep f32. DENSE adds inputs in ascending order, AMX
 *           sums of 32 inputs. */
enum { WEIR_MATMUL_OUTPUTS = 4 };
typedef struct weir_matmul_output {
    const weir_weight *weight;
    float *dst;
    const float *bias;
    int64_t dst_stride;
    bool accumulate;
} weir_matmul_output;
/* Rows [first, first + n_rows) are multiplied by matrix `matrix`. */
typedef struct weir_matmul_group {
    int64_t first, n_rows;
    int32_t matrix;
} weir_matmul_group;
typedef struct weir_matmul_args {
    const float *x;
    int64_t n_rows, n_in, x_stride;
    weir_matmul_output outputs[WEIR_MATMUL_OUTPUTS];
    int32_t n_outputs, n_groups;
    const weir_matmul_group *groups; /* [n_groups]; n_groups = 0: all rows by `weight` */
} weir_matmul_args;

static inline bool weir_matmul_is_valid(const weir_matmul_args *args)
{
    if (args->n_outputs < 1 || args->n_outputs > WEIR_MATMUL_OUTPUTS) return false;
    for (int32_t o = 0; o < args->n_outputs; o++) {
        const weir_matmul_output *const output = &args->outputs[o];
        if (output->weight->n_in != args->n_in || output->dst == args->x) return false;
        if (args->n_rows > 1 && output->dst_stride < output->weight->n_out) return false;
    }
    int64_t end = 0;
    for (int32_t g = 0; g < args->n_groups; g++) {
        if (args->groups[g].first != end || args->groups[g].n_rows < 1) return false;
        end += args->groups[g].n_rows;
    }
    if (args->n_groups > 0 && end != args->n_rows) return false;
    return args->n_rows <= 1 || args->x_stride >= args->n_in;
}
/* The weights' structs are only read by the host. */
static inline void weir_matmul_marshal(weir_marshaller *m, weir_matmul_args *args)
{
    weir_marshal_require(m, args->x);
    for (int32_t o = 0; o < args->n_outputs; o++) {
        weir_marshal_require(m, args->outputs[o].dst);
        weir_marshal_require(m, args->outputs[o].bias);
        weir_marshal_require(m, args->outputs[o].weight->data);
    }
}
