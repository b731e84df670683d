/* kernels/abi/dtype.h - element types: elements and bytes per block. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*     name      text      elements  bytes   quantised */
#define WEIR_DTYPE_MAP(X)                                                                          \
    X(F32, "f32", 1, 4, false)                                                                     \
    X(F16, "f16", 1, 2, false)                                                                     \
    X(BF16, "bf16", 1, 2, false)                                                                   \
    X(F64, "f64", 1, 8, false)                                                                     \
    X(I8, "i8", 1, 1, false)                                                                       \
    X(I16, "i16", 1, 2, false)                                                                     \
    X(I32, "i32", 1, 4, false)                                                                     \
    X(I64, "i64", 1, 8, false)                                                                     \
    X(U8, "u8", 1, 1, false)                                                                       \
    X(U16, "u16", 1, 2, false)                                                                     \
    X(U32, "u32", 1, 4, false)                                                                     \
    X(U64, "u64", 1, 8, false)                                                                     \
    X(BOOL, "bool", 1, 1, false)                                                                   \
    X(F8_E4M3, "f8_e4m3", 1, 1, false)                                                             \
    X(F8_E5M2, "f8_e5m2", 1, 1, false)                                                             \
    X(Q8_0, "q8_0", 32, 34, true)                                                                  \
    X(Q4_0, "q4_0", 32, 18, true)                                                                  \
    X(Q4_1, "q4_1", 32, 20, true)                                                                  \
    X(Q5_0, "q5_0", 32, 22, true)                                                                  \
    X(Q5_1, "q5_1", 32, 24, true)                                                                  \
    X(IQ4_NL, "iq4_nl", 32, 18, true)                                                              \
    X(IQ4_XS, "iq4_xs", 256, 136, true)                                                            \
    X(MXFP4, "mxfp4", 32, 17, true)                                                                \
    X(Q2_K, "q2_k", 256, 84, true)                                                                 \
    X(Q3_K, "q3_k", 256, 110, true)                                                                \
    X(Q4_K, "q4_k", 256, 144, true)                                                                \
    X(Q5_K, "q5_k", 256, 176, true)                                                                \
    X(Q6_K, "q6_k", 256, 210, true)                                                                \
    X(NVFP4, "nvfp4", 64, 36, true)                                                                \
    X(IQ1_S, "iq1_s", 256, 50, true)                                                               \
    X(IQ1_M, "iq1_m", 256, 56, true)                                                               \
    X(IQ2_XXS, "iq2_xxs", 256, 66, true)                                                           \
    X(IQ2_XS, "iq2_xs", 256, 74, true)                                                             \
    X(IQ2_S, "iq2_s", 256, 82, true)                                                               \
    X(IQ3_XXS, "iq3_xxs", 256, 98, true)                                                           \
    X(IQ3_S, "iq3_s", 256, 110, true)                                                              \
    X(TQ1_0, "tq1_0", 256, 54, true)                                                               \
    X(TQ2_0, "tq2_0", 256, 66, true)                                                               \
    X(Q1_0, "q1_0", 128, 18, true)                                                                 \
    X(Q2_0, "q2_0", 64, 18, true)

typedef enum weir_dtype {
#define X(name, text, elements, bytes, quantised) WEIR_##name,
    WEIR_DTYPE_MAP(X)
#undef X
        WEIR_DTYPE_COUNT
} weir_dtype;

typedef struct weir_dtype_info {
    const char *name; /* lower case, as printed and as written in TOML */
    int32_t block_elements; /* elements per block; 1 for plain types          */
    int32_t block_bytes;
    bool quantised;
} weir_dtype_info;

static inline weir_dtype_info weir_dtype_of(weir_dtype dtype)
{
    static const weir_dtype_info table[WEIR_DTYPE_COUNT] = {
#define X(name, text, elements, bytes, quantised) { text, elements, bytes, quantised },
        WEIR_DTYPE_MAP(X)
#undef X
    };
    return table[dtype];
}

/* Bytes of a row of `n` elements; n must be a multiple of the block (checked by readers). */
static inline size_t weir_row_bytes(weir_dtype dtype, int64_t n)
{
    const weir_dtype_info info = weir_dtype_of(dtype);
    return (size_t)(n / info.block_elements) * (size_t)info.block_bytes;
}
