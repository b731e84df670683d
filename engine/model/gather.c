/* engine/model/gather.c - rows of a matrix that are not one after another in their tensor, or whose
 * blocks have their codes and scales in two, written as GGUF has them. At load, one matrix at a
 * time: a pass over the bytes, which packing follows. */
#include <string.h>

#include "engine/model/model_internal.h"
#include "kernels/abi/quant.h"

bool weir_matrix_is_scattered(const bound_matrix *matrix, int64_t n_out)
{
    return matrix->runs.length < n_out || matrix->scales != NULL;
}

/* Codes have elements 2 j and 2 j + 1 in byte j; a block of GGUF j and j + 16. */
static weir_block_mxfp4 join_block(const unsigned char *codes, unsigned char exponent)
{
    weir_block_mxfp4 block = { .exponent = exponent };
    for (int j = 0; j < 16; j++) {
        const int shift = 4 * (j & 1), low = codes[j / 2] >> shift & 15,
                  high = codes[8 + j / 2] >> shift & 15;
        block.q[j] = (uint8_t)(low | high << 4);
    }
    return block;
}

void weir_matrix_gather(unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in)
{
    const size_t row_bytes = weir_row_bytes(matrix->dtype, n_in), n_blocks = (size_t)n_in / 32;
    for (int64_t r = 0; r < n_out; r++, dst += row_bytes) {
        const size_t from = (size_t)weir_row_at(matrix->runs, r);
        if (matrix->scales == NULL) {
            memcpy(dst, matrix->data + from * row_bytes, row_bytes);
            continue;
        }
        for (size_t i = 0; i < n_blocks; i++) {
            const size_t at = from * n_blocks + i;
            const weir_block_mxfp4 block =
                join_block(matrix->data + 16 * at, matrix->scale_data[at]);
            memcpy(dst + i * sizeof block, &block, sizeof block);
        }
    }
}
