/* tools/convert/imatrix.h - an importance matrix: for each matrix of a model, the mean square of
 * each of its inputs over a text.
 *
 * The file is that of llama.cpp's imatrix: a GGUF with general.type "imatrix" and, for a tensor
 * NAME, NAME.in_sum2 [matrices, inputs] and NAME.counts [matrices, 1], both f32. */
#pragma once
#include "engine/formats/tensor_directory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_imatrix {
    weir_tensor_directory *directory; /* owned */
} weir_imatrix;

/* errors : those of opening a GGUF file; EFORMAT: it is none of an importance matrix */
WEIR_MUST_CHECK weir_status
weir_imatrix_open(weir_imatrix *out, const char *path, weir_error *error);
void weir_imatrix_close(weir_imatrix *imatrix); /* NULL-safe, idempotent */

/* Mean squares of the inputs of matrix `matrix` of tensor `name` to out [n_in]. *found becomes
 * false, and out is not set, if the file has none of this tensor, or of this matrix (an expert that
 * the text never chose).
 * errors : EMISMATCH: other sizes; EFORMAT: a sum that is negative or not finite */
WEIR_MUST_CHECK weir_status weir_imatrix_read(
    const weir_imatrix *imatrix, const char *name, int64_t matrix, int64_t n_matrices, int64_t n_in,
    float *out, bool *found, weir_error *error
);

#ifdef __cplusplus
}
#endif
