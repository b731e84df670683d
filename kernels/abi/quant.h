/* kernels/abi/quant.h - packed block structs of GGUF, one copy for C, OpenMP and CUDA (ggml's block
 * layouts).
 *
 * Scales d, dmin, m are IEEE binary16 as raw bits. Blocks are read from unaligned file bytes: copy
 * before use. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
#define WEIR_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define WEIR_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

typedef struct weir_block_q8_0 {
    uint16_t d;
    int8_t q[32];
} weir_block_q8_0;
typedef struct weir_block_q4_0 {
    uint16_t d;
    uint8_t q[16];
} weir_block_q4_0;
typedef struct weir_block_q4_1 {
    uint16_t d, m;
    uint8_t q[16];
} weir_block_q4_1;
typedef struct weir_block_q5_0 {
    uint16_t d;
    uint8_t qh[4], q[16];
} weir_block_q5_0;
typedef struct weir_block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4], q[16];
} weir_block_q5_1;
typedef struct weir_block_iq4_nl {
    uint16_t d;
    uint8_t q[16];
} weir_block_iq4_nl;
typedef struct weir_block_iq4_xs {
    uint16_t d, scales_high;
    uint8_t scales_low[4], q[128];
} weir_block_iq4_xs;
typedef struct weir_block_mxfp4 {
    uint8_t exponent, q[16]; /* 2^(exponent - 127) */
} weir_block_mxfp4;
typedef struct weir_block_q2_k {
    uint8_t scales[16], q[64];
    uint16_t d, dmin;
} weir_block_q2_k;
typedef struct weir_block_q3_k {
    uint8_t high_mask[32], q[64], scales[12];
    uint16_t d;
} weir_block_q3_k;
typedef struct weir_block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12], q[128];
} weir_block_q4_k;
typedef struct weir_block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], q[128];
} weir_block_q5_k;
typedef struct weir_block_q6_k {
    uint8_t ql[128], qh[64];
    int8_t scales[16];
    uint16_t d;
} weir_block_q6_k;

WEIR_STATIC_ASSERT(sizeof(weir_block_q8_0) == 34, "q8_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_q4_0) == 18, "q4_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_q4_1) == 20, "q4_1");
WEIR_STATIC_ASSERT(sizeof(weir_block_q5_0) == 22, "q5_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_q5_1) == 24, "q5_1");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq4_nl) == 18, "iq4_nl");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq4_xs) == 136, "iq4_xs");
WEIR_STATIC_ASSERT(sizeof(weir_block_mxfp4) == 17, "mxfp4");
WEIR_STATIC_ASSERT(sizeof(weir_block_q2_k) == 84, "q2_k");
WEIR_STATIC_ASSERT(sizeof(weir_block_q3_k) == 110, "q3_k");
WEIR_STATIC_ASSERT(sizeof(weir_block_q4_k) == 144, "q4_k");
WEIR_STATIC_ASSERT(sizeof(weir_block_q5_k) == 176, "q5_k");
WEIR_STATIC_ASSERT(sizeof(weir_block_q6_k) == 210, "q6_k");
