/* kernels/ref/kv_codec.h - the codecs of KV rows, and rows of page parts (kernels/abi/kv_format.h).
 * kernels/kv/<scheme>/codec.h defines the codes of a scheme.
 *
 * The arithmetic is f32 in the order written there (sums of squares: f64), and is the definition:
 * other kernels store the same bytes. A scale of 0 (or, before f16, below f32's normal range) gives
 * codes of 0 for the value 0, and rows that decode to 0 or to min. */
#pragma once
#include "kernels/abi/kv_format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- groups: codes one per byte -------------------------------------------------------------- */
/* 32 values; q8_0's codes are two's complement. */
void weir_kv_block_encode(weir_kv_format format, uint8_t *codes, uint16_t *scale, const float *x);
/* Scale of n values, and their codes for a scale. */
float weir_kv_float8_scale(weir_kv_format format, const float *x, int64_t n);
void weir_kv_float8_encode(
    weir_kv_format format, uint8_t *codes, float scale, const float *x, int64_t n
);
void weir_kv_affine_encode(
    int bits, uint8_t *codes, uint16_t *scale, uint16_t *min, const float *x, int64_t n
);
/* sign [dim] is D; the pages use weir_kv_sign. */
void weir_kv_turbo_encode(
    int bits, uint8_t *codes, uint16_t *scale, const float *x, const float *sign, int64_t dim
);
/* row = H row */
void weir_kv_hadamard(float *row, int64_t dim);
/* The value of a code; turbo: in the rotated domain. */
float weir_kv_value(weir_kv_format format, uint32_t code, float scale, float min);

/* ---- page parts ------------------------------------------------------------------------------ */
typedef struct weir_kv_part {
    weir_kv_format format;
    weir_kv_side side;
    int64_t dim;
    void *coded; /* weir_kv_part_bytes */
    void *unsealed; /* wide rows: an f16 part, when weir_kv_seals_pages */
} weir_kv_part;

/* Codes rows of tokens [first, first + n), 0 <= first, first + n <= 64. Parts that need it keep the
 * rows unsealed and are coded at token 63; tokens come in ascending order, in any cut. Memory of a
 * new page must be zero. */
void weir_kv_encode_rows(
    const weir_kv_part *part, int64_t first, int64_t n, const float *rows, int64_t stride
);
/* Decodes rows. `rotated`: turbo's rows as attention multiplies them, H D x. */
void weir_kv_decode_rows(
    const weir_kv_part *part, int64_t first, int64_t n, float *rows, int64_t stride, bool rotated
);
/* Decodes rows of an unsealed page. */
void weir_kv_decode_open(
    const weir_kv_part *part, int64_t first, int64_t n, float *rows, int64_t stride
);

#ifdef __cplusplus
}
#endif
