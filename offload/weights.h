/* offload/weights.h - packs tensors of files into the layout of the fastest matmul kernel. */
#pragma once
#include "offload/dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The precision of activations in matmuls (`kernels.activations`). */
typedef enum weir_activations {
    /* Int8 for quantised weights; bf16 for f16, bf16 and f8 ones with AMX-BF16 or, unless grouped,
     * AVX-512 BF16; else f32. On a GPU bf16 for bf16 and f8, f16 for f16. */
    WEIR_ACTIVATIONS_FAST,
    /* Exact: weights are expanded to f32 (4 bytes each) unless their kernel takes f16 or bf16. */
    WEIR_ACTIVATIONS_F32,
} weir_activations;

/* A matrix in the file: n_out rows of n_in elements, unaligned. */
typedef struct weir_matrix_source {
    const void *data;
    int64_t n_out, n_in;
    weir_dtype dtype;
    /* Multiplied in groups of rows: not packed for oneDNN, whose kernels take one matrix a call. */
    bool is_grouped;
} weir_matrix_source;

/* Computes layout and bytes of packing, for the memory plan. Returns EUNSUPPORTED for a dtype
 * without a kernel. */
WEIR_MUST_CHECK weir_status weir_weight_plan(
    weir_weight *plan, const weir_stream *stream, const weir_matrix_source *source,
    weir_activations activations, weir_error *error
);
/* Packs with all threads of the stream into `memory` (plan->bytes, 64-byte aligned; owned by the
 * caller). *plan becomes the weight. errors : EFORMAT if an element or a block's scale is NaN or
 * infinite */
WEIR_MUST_CHECK weir_status weir_weight_pack(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, void *memory,
    weir_error *error
);
/* Packs into memory of the stream's device; with a GPU through a few MiB of host memory. */
WEIR_MUST_CHECK weir_status weir_weight_load(
    weir_weight *plan, weir_stream *stream, const weir_matrix_source *source, void *memory,
    weir_error *error
);
/* Packs in pieces of rows, for a weight of a GPU (WEIR_LAYOUT_CUDA): rows [first, first + count)
 * through a small staging buffer. first is a multiple of weir_weight_piece_rows, and so is count
 * except at the end. *offset: the piece's offset in the weight; *bytes: its size. *plan stays a
 * plan: the caller sets data. */
typedef struct weir_weight_piece {
    int64_t first, count;
    size_t offset, bytes;
} weir_weight_piece;
/* The rows that fit in a staging buffer, in whole panels; at least one panel, which may not fit. */
int64_t weir_weight_piece_rows(const weir_weight *plan, size_t staging_bytes);
weir_weight_piece weir_weight_piece_of(const weir_weight *plan, int64_t first, int64_t count);
WEIR_MUST_CHECK weir_status weir_weight_pack_piece(
    const weir_weight *plan, weir_stream *stream, const weir_matrix_source *source,
    weir_weight_piece piece, void *prefetch, weir_error *error
);
/* Frees the packed_state; the caller owns the memory. */
void weir_weight_release(weir_weight *weight);

/* Expands any dtype to f32, bit-exact with the reference; n is a multiple of the block. For norms,
 * biases and tests. */
WEIR_MUST_CHECK weir_status
weir_dequantise(float *dst, const void *src, weir_dtype dtype, int64_t n);

#ifdef __cplusplus
}
#endif
