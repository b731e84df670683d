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
typedef struct weir_block_nvfp4 {
    uint8_t scales[4], q[32]; /* scales: unsigned e4m3, one per 16 elements */
} weir_block_nvfp4;
typedef struct weir_block_iq1_s {
    uint16_t d;
    uint8_t q[32];
    uint16_t qh[8];
} weir_block_iq1_s;
typedef struct weir_block_iq1_m {
    uint8_t q[32], qh[16];
    uint16_t scales[4]; /* the high nibbles are d, low ones first */
} weir_block_iq1_m;
typedef struct weir_block_iq2_xxs {
    uint16_t d, q[32];
} weir_block_iq2_xxs;
typedef struct weir_block_iq2_xs {
    uint16_t d, q[32];
    uint8_t scales[8];
} weir_block_iq2_xs;
typedef struct weir_block_iq2_s {
    uint16_t d;
    uint8_t q[32], signs[32], qh[8], scales[8];
} weir_block_iq2_s;
typedef struct weir_block_iq3_xxs {
    uint16_t d;
    uint8_t q[64];
    uint16_t signs[16];
} weir_block_iq3_xxs;
typedef struct weir_block_iq3_s {
    uint16_t d;
    uint8_t q[64], qh[8], signs[32], scales[4];
} weir_block_iq3_s;
typedef struct weir_block_tq1_0 {
    uint8_t q[48], qh[4];
    uint16_t d;
} weir_block_tq1_0;
typedef struct weir_block_tq2_0 {
    uint8_t q[64];
    uint16_t d;
} weir_block_tq2_0;
typedef struct weir_block_q1_0 {
    uint16_t d;
    uint8_t q[16];
} weir_block_q1_0;
typedef struct weir_block_q2_0 {
    uint16_t d;
    uint8_t q[16];
} weir_block_q2_0;

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
WEIR_STATIC_ASSERT(sizeof(weir_block_nvfp4) == 36, "nvfp4");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq1_s) == 50, "iq1_s");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq1_m) == 56, "iq1_m");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq2_xxs) == 66, "iq2_xxs");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq2_xs) == 74, "iq2_xs");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq2_s) == 82, "iq2_s");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq3_xxs) == 98, "iq3_xxs");
WEIR_STATIC_ASSERT(sizeof(weir_block_iq3_s) == 110, "iq3_s");
WEIR_STATIC_ASSERT(sizeof(weir_block_tq1_0) == 54, "tq1_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_tq2_0) == 66, "tq2_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_q1_0) == 18, "q1_0");
WEIR_STATIC_ASSERT(sizeof(weir_block_q2_0) == 18, "q2_0");
